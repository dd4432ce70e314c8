//! Averages of a GPU recording: device time is in the rows of the launching spans, in trace and file.

use support::cuda::Stream;
use support::gpu;
use support::own_process;
use tracing::info_span;
use tracing_kineto::analysis::{Events, GroupBy, Section, StackMetric};
use tracing_kineto::{Format, annotate};

#[own_process]
fn device_time_is_in_the_rows_of_its_span_and_its_kernel() {
    let machine = gpu::machine("");
    let (add, mul) = (machine.only_kernel("add"), machine.only_kernel("mul"));
    let file = gpu::record(|| {
        for n in 0..2 {
            let _step = annotate!("ProfilerStep#{}", n).entered();
            info_span!("forward").in_scope(|| {
                info_span!("sum").in_scope(|| (0..3).for_each(|_| machine.launch(add, 8, Stream::NULL)));
                machine.launch(mul, 8, Stream::NULL);
            });
            machine.synchronize();
        }
    });
    let averages = file.trace.key_averages();
    let op = |name| averages.get(Section::Ops, name).unwrap();
    let kernel = |name| averages.get(Section::Kernels, name).unwrap();
    assert_eq!((kernel("add").count(), kernel("mul").count(), op("ProfilerStep*").count()), (6, 2, 2));
    assert_eq!(op("sum").self_device_ns(), kernel("add").self_device_ns());
    assert_eq!(op("forward").self_device_ns(), kernel("mul").self_device_ns());
    assert_eq!(op("ProfilerStep*").device_ns(), averages.device_base_ns());
    assert_eq!((op("ProfilerStep*").self_device_ns(), averages.unattributed_device_ns()), (0, 0));
    assert_eq!(op("forward").device_ns(), averages.device_base_ns());
    assert_eq!(averages.device_annotations()[0].name(), "ProfilerStep*");
    let steps = op("ProfilerStep*").cpu_ns();
    assert_eq!(averages.cpu_base_ns(), steps.cast_signed(), "all other time lies in the steps");

    let mut text = Vec::new();
    file.trace.write(&mut text, Format::Json).unwrap();
    let read = Events::from_reader(text.as_slice()).unwrap();
    let exported = |events: &Events| {
        let averages = events.averages().by(GroupBy::Stack(3)).by(GroupBy::Device).compute();
        (events.key_averages().to_json(), averages.to_json(), events.key_averages().table().to_string())
    };
    assert_eq!(exported(&read), exported(&file.trace.events()));

    let mut folded = Vec::new();
    read.stacks(StackMetric::SelfDevice).write(&mut folded).unwrap();
    let folded = String::from_utf8(folded).unwrap();
    let stacks: Vec<&str> = folded.lines().map(|line| line.rsplit_once(' ').unwrap().0).collect();
    let expected = [0, 1].map(|n| ["", ";sum"].map(|leaf| format!("ProfilerStep#{n};forward{leaf}")));
    assert_eq!(stacks, expected.concat());
}
