//! `Debug` of public types stays short, since `#[instrument]` records it for each argument.

use std::fmt::Debug;
use tracing_kineto::activity::{Activity, ActivityType, ActivityTypes, Body, Track};
use tracing_kineto::analysis::{Events, FlopRegistry, Section, StackMetric};
use tracing_kineto::integration::CpuTraceBuilder;
#[cfg(feature = "rocm")]
use tracing_kineto::integration::Rocm;
#[cfg(feature = "xpu")]
use tracing_kineto::integration::Xpu;
use tracing_kineto::integration::trial::Trial;
#[cfg(feature = "cuda")]
use tracing_kineto::integration::{CudaEvents, Cupti, EventTimers};
use tracing_kineto::integration::{DeferredEvents, Options, Selection};
use tracing_kineto::memory::{self, Category, Device, Tracked};
use tracing_kineto::torch::Libkineto;
use tracing_kineto::{Doctor, KinetoLayer, Schedule, Timestamp};
use tracing_subscriber::prelude::*;

/// The longest `Debug` text allowed.
const LONGEST: usize = 300;

/// Types whose `Debug` is longer, with its length.
#[derive(Default)]
struct LongDebugs(Vec<(String, usize)>);

impl LongDebugs {
    fn add<T: Debug>(&mut self, value: &T) {
        let (text, name) = (format!("{value:?}"), std::any::type_name::<T>());
        if text.len() > LONGEST {
            self.0.push((name.to_owned(), text.len()));
        }
    }
}

#[test]
fn debug_of_public_types_is_short() {
    let mut long = LongDebugs::default();
    let builder = KinetoLayer::builder().no_output().with_memory(true).record_from_start(false);
    long.add(&builder);
    let (layer, guard) = builder.build().unwrap();
    let profiler = guard.profiler();
    long.add(&layer);
    long.add(&guard);
    long.add(&Libkineto::of(&profiler).prepare().unwrap());
    profiler.start().unwrap();
    tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
        let _step = tracing::info_span!("step", n = 1).entered();
        let work = |at: u64| tracing::info_span!("work", at).in_scope(|| memory::record(at, 64, 0, 0, Device::CPU));
        (0..1000).for_each(work);
        profiler.disable_in_this_thread().unwrap();
        long.add(&profiler.enable_in_this_thread().unwrap());
        long.add(&profiler);
    });
    long.add(&profiler.record_while("train"));
    let trace = guard.finish().unwrap();
    long.add(&trace);
    long.add(&trace.memory_timeline(Device::CPU));
    let events = trace.events();
    assert!(events.len() >= 2000, "{}", events.len());
    add_analysis(&mut long, &events);
    add_tools(&mut long);
    assert_eq!(long.0, []);
}

fn add_analysis(long: &mut LongDebugs, events: &Events) {
    let work = events.iter().find(|event| event.name() == "work").unwrap();
    long.add(events);
    long.add(&work);
    long.add(&work.metadata());
    long.add(&events.tree());
    long.add(&events.attribution());
    long.add(&events.stacks(StackMetric::SelfHost));
    long.add(&events.averages());
    let averages = events.key_averages();
    long.add(&averages);
    long.add(&averages.table());
    long.add(averages.get(Section::Ops, "work").unwrap());
    long.add(&FlopRegistry::default());
}

fn add_tools(long: &mut LongDebugs) {
    let at = |nanos: u64| Timestamp::from_nanos(nanos);
    let mut builder = CpuTraceBuilder::new(at(0), "interpreter");
    let body = Body::Slice { start: at(10), end: at(25) };
    for _ in 0..1000 {
        builder.push(&Activity::new(ActivityType::CpuOp, "matmul", Track::new(0, 7), body)).unwrap();
    }
    long.add(&builder);
    long.add(&builder.finish(at(100)));
    long.add(&Schedule::new(1, 2, 3).unwrap().repeat(4));
    let gpu = DeferredEvents::new("gpu");
    long.add(&gpu);
    long.add(&Options::default());
    #[cfg(feature = "cuda")]
    long.add(&(CudaEvents::new(), EventTimers::new(CudaEvents::new()), Cupti::new(&Options::default())));
    #[cfg(feature = "rocm")]
    long.add(&Rocm::new(&Options::default()));
    #[cfg(feature = "xpu")]
    long.add(&Xpu::new(&Options::default()));
    long.add(&Trial::start(&gpu, &Selection::of(ActivityTypes::ALL)).unwrap());
    long.add(&Doctor::new().collector(gpu));
    long.add(&memory::scope(Category::Parameter));
    long.add(&Tracked::system());
}
