//! Relations of operations: arrows from forward to backward, modules from enclosing spans, overloads.

use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use support::{File, enter, exit, on_thread, record, record_edited_with, record_with, traces};
use tracing::field::Empty;
use tracing::info_span;
use tracing_kineto::activity::{Body, CorrelationId, Flow, FlowEnd, FlowKind, Track};
use tracing_kineto::analysis::Events;
use tracing_kineto::integration::CpuTraceBuilder;
use tracing_kineto::torch::TorchOptions;
use tracing_kineto::{Activity, ActivityType, ArgValue, Timestamp, thread_id};

/// Returns each arrow of the file: its id, and the slices where it starts and ends.
fn arrows(file: &File) -> Vec<(u64, String, String)> {
    let ends = |ph: &str| file.rows(ph).into_iter().filter(|row| row["cat"] == "fwdbwd").collect::<Vec<_>>();
    let slices = file.rows("X");
    let at = |end: &Value| {
        let is_there = |slice: &&&Value| ["ts", "tid", "pid"].iter().all(|key| slice[key] == end[key]);
        slices.iter().find(is_there).unwrap()["name"].as_str().unwrap().to_owned()
    };
    let (starts, finishes) = (ends("s"), ends("f"));
    assert_eq!(starts.len(), finishes.len());
    let mut arrows: Vec<_> = starts
        .into_iter()
        .map(|start| {
            let finish = finishes.iter().find(|finish| finish["id"] == start["id"]).unwrap();
            assert_eq!(
                (&start["name"], &finish["name"], &finish["bp"]),
                (&json!("fwdbwd"), &json!("fwdbwd"), &json!("e"))
            );
            (start["id"].as_u64().unwrap(), at(start), at(finish))
        })
        .collect();
    arrows.sort();
    arrows
}

fn named(arrows: &[(u64, &str, &str)]) -> Vec<(u64, String, String)> {
    arrows.iter().map(|(id, from, to)| (*id, (*from).to_owned(), (*to).to_owned())).collect()
}

#[test]
fn arrows_go_from_forward_to_backward_operations() {
    let file = record(|| {
        let outer = info_span!("linear", seq = 3).entered();
        info_span!("mm", seq = 3).in_scope(|| ());
        drop(outer);
        info_span!("relu", seq = 4, fwd_thread = 0).in_scope(|| ());
        info_span!("other thread's", seq = 5).in_scope(|| ());
        let forward = thread_id();
        on_thread("autograd", || {
            info_span!("ReluBackward", seq = 4, fwd_thread = forward).in_scope(|| ());
            let backward = info_span!("MmBackward", seq = Empty, fwd_thread = forward).entered();
            backward.record("seq", 3);
            info_span!("within, ends first", seq = 3, fwd_thread = forward).in_scope(|| ());
            drop(backward);
            info_span!("no such number", seq = 9, fwd_thread = forward).in_scope(|| ());
            info_span!("no such thread", seq = 5, fwd_thread = thread_id()).in_scope(|| ());
            info_span!("negative", seq = -1, fwd_thread = forward).in_scope(|| ());
        });
    });
    let expected = [(1, "relu", "ReluBackward"), (2, "mm", "within, ends first")];
    assert_eq!(arrows(&file), named(&expected));
    let mut seen = Vec::new();
    file.trace.for_each(|activity| seen.extend(activity.flow.map(|flow| (activity.name.to_owned(), flow))));
    let flow = |id, end| Flow { kind: FlowKind::ForwardBackward, id, end };
    let ends = [
        ("mm", flow(2, FlowEnd::Start)),
        ("relu", flow(1, FlowEnd::Start)),
        ("ReluBackward", flow(1, FlowEnd::Finish)),
        ("within, ends first", flow(2, FlowEnd::Finish)),
    ];
    // Threads are in the order of their ids.
    seen.sort_by_key(|(name, _)| ends.iter().position(|(end, _)| end == name));
    assert_eq!(seen, ends.map(|(name, flow)| (name.to_owned(), flow)));
}

#[test]
fn arrow_starts_at_the_later_of_two_forward_operations() {
    let file = record(|| {
        let forward = thread_id();
        info_span!("first", seq = 1).in_scope(|| ());
        info_span!("second", seq = 1).in_scope(|| ());
        info_span!("backward", seq = 1, fwd_thread = forward).in_scope(|| ());
        info_span!("backward again", seq = 1, fwd_thread = forward).in_scope(|| ());
        info_span!("too late", seq = 1).in_scope(|| ());
    });
    assert_eq!(arrows(&file), named(&[(1, "second", "backward")]));
}

#[test]
fn backward_operation_is_in_the_backward_call_in_the_tree() {
    let file = record(|| {
        info_span!("mm", seq = 1).in_scope(|| ());
        let forward = thread_id();
        let _call = info_span!("backward").entered();
        on_thread("autograd", || info_span!("MmBackward", seq = 1, fwd_thread = forward).in_scope(|| ()));
    });
    let events = file.trace.events();
    let (tree, backward) = (events.tree(), events.iter().find(|event| event.name() == "MmBackward").unwrap());
    assert_eq!(tree.parent(backward).unwrap().name(), "backward");
    assert_eq!(backward.flow().unwrap().kind, FlowKind::ForwardBackward);
}

#[test]
fn engine_operation_shares_its_backward_operations_values() {
    let file = record(|| {
        let forward = thread_id();
        info_span!("mm", seq = 7).in_scope(|| ());
        info_span!("relu", seq = 9).in_scope(|| ());
        let engine =
            || info_span!("engine", kineto.name = "autograd::engine::evaluate_function: MmBackward0").entered();
        {
            let _engine = engine();
            info_span!("MmBackward0", seq = 7, fwd_thread = forward, record_scope = "BACKWARD_FUNCTION")
                .in_scope(|| ());
        }
        {
            let _engine = engine();
            info_span!("between").in_scope(|| ());
            info_span!("later", seq = 8, fwd_thread = forward, record_scope = 1).in_scope(|| ());
        }
        drop(engine());
        info_span!("behind", seq = 10, fwd_thread = forward, record_scope = 1).in_scope(|| ());
        let engines = "autograd::engine::evaluate_function: ReluBackward0";
        let _engine = info_span!("engine", kineto.name = engines, seq = 9, fwd_thread = forward).entered();
        info_span!("ReluBackward0", record_scope = 1).in_scope(|| ());
    });
    let expected = [(1, "mm", "MmBackward0"), (2, "relu", "ReluBackward0")];
    assert_eq!(arrows(&file), named(&expected));
    assert_eq!(file.slice("ReluBackward0").args["Sequence number"], 9);
    let engines = file.all("autograd::engine::evaluate_function: MmBackward0");
    assert_eq!(
        (&engines[0].args["Sequence number"], &engines[0].args["Fwd thread id"]),
        (&json!(7), &json!(thread_id()))
    );
    assert!(engines[1..].iter().all(|engine| engine.args.get("Sequence number").is_none()), "{engines:?}");
}

// Shows the key FWD_BWD.
#[test]
fn arrows_can_be_disabled_and_follow_post_processing() {
    let work = || {
        info_span!("mm", seq = 1).in_scope(|| ());
        info_span!("relu", seq = 2).in_scope(|| ());
        info_span!("ReluBackward", seq = 2, fwd_thread = thread_id()).in_scope(|| ());
        info_span!("MmBackward", seq = 1, fwd_thread = thread_id()).in_scope(|| ());
    };
    assert_eq!(arrows(&record_with(|builder| builder.torch(TorchOptions::new().fwd_bwd(false)), work)), []);
    let without_relu = |builder: tracing_kineto::KinetoLayerBuilder| {
        builder.post_process(|event| {
            if event.activity().name == "relu" {
                event.leave_out();
            }
        })
    };
    assert_eq!(arrows(&record_edited_with(without_relu, work)), named(&[(1, "mm", "MmBackward")]));
}

#[test]
fn pushed_operations_have_arrows_and_keep_their_own() {
    let at = |us: u64| Timestamp::from_nanos(1_790_857_026_000_000_000 + us * 1000);
    let mut builder = CpuTraceBuilder::new(at(0), "own");
    let mut push = |name: &str, start: u64, args: &dyn tracing_kineto::Args, flow| {
        let body = Body::Slice { start: at(start), end: at(start + 5) };
        let mut op = Activity::new(ActivityType::CpuOp, name, Track::new(0, 7), body);
        (op.args, op.flow) = (args, flow);
        op.id = CorrelationId(start + 1);
        builder.push(&op).unwrap();
    };
    let own = |end| Some(Flow { kind: FlowKind::ForwardBackward, id: 4, end });
    let (seq, thread) = (("Sequence number", ArgValue::I64(1)), ("Fwd thread id", ArgValue::U64(7)));
    push("own forward", 0, &[seq], own(FlowEnd::Start));
    push("forward", 10, &[seq], None);
    push("own backward", 20, &[seq, thread], own(FlowEnd::Finish));
    push("backward", 30, &[seq, thread], None);
    let file = File::of(builder.finish(at(100)));
    assert_eq!(arrows(&file), named(&[(4, "own forward", "own backward"), (5, "forward", "backward")]));
}

/// An arrow: its id, and the thread and start of the slices at both ends.
type ArrowEnds = (u64, [(i64, Timestamp); 2]);

fn places(events: &Events) -> BTreeSet<ArrowEnds> {
    let mut starts = BTreeMap::new();
    let mut finishes = BTreeMap::new();
    for event in events.iter() {
        for flow in event.flows().filter(|flow| flow.kind == FlowKind::ForwardBackward) {
            let ends = if flow.end == FlowEnd::Start { &mut starts } else { &mut finishes };
            assert_eq!(ends.insert(flow.id, (event.thread().unwrap(), event.start())), None);
        }
    }
    assert!(starts.keys().eq(finishes.keys()));
    starts.into_iter().zip(finishes).map(|((id, start), (_, finish))| (id, [start, finish])).collect()
}

/// Pushes the operations of a torch trace with their arguments, without its arrows.
fn pushed_again(events: &Events) -> Events {
    let (start, end) =
        (events.iter().map(|event| event.start()).min().unwrap(), events.iter().map(|event| event.end()).max());
    let mut builder = CpuTraceBuilder::new(start, "again");
    let operations = || events.iter().filter(|event| event.sequence_number().is_some());
    // Torch numbers threads by their first operation; each of these recordings has one forward thread.
    let threads: BTreeSet<_> = operations().filter(|op| op.forward_thread().is_none()).map(|op| op.thread()).collect();
    assert_eq!(threads.len(), 1);
    let forward = u64::try_from(threads.first().unwrap().unwrap()).unwrap();
    for op in operations() {
        let seq = ("Sequence number", ArgValue::U64(op.sequence_number().unwrap()));
        let thread = ("Fwd thread id", ArgValue::U64(op.forward_thread().map_or(0, |_| forward)));
        let body = Body::Slice { start: op.start(), end: op.end() };
        let track = Track::new(op.process().unwrap(), op.thread().unwrap());
        let mut activity = Activity::new(ActivityType::CpuOp, op.name(), track, body);
        let args = [seq, thread];
        activity.args = &args;
        builder.push(&activity).unwrap();
    }
    builder.finish(end.unwrap()).events()
}

#[test]
fn arrows_equal_torchs() {
    for (trace, arrows) in [
        ("torch215_cpu/cpu_plain_noschedule", 12),
        ("torch215_cpu/cpu_steps", 18),
        ("torch215_cpu/cpu_steps_all", 18),
        ("torch215_cpu/cpu_steps_memory", 18),
        ("gpu/mi250_minitoy_train", 4),
        ("gpu/nccl_training_rank", 543),
    ] {
        if cfg!(feature = "gzip") && traces::are_available() {
            let events = Events::read(traces::folder().join(format!("{trace}.pt.trace.json.gz"))).unwrap();
            let torchs = places(&events);
            assert_eq!((places(&pushed_again(&events)), torchs.len()), (torchs, arrows), "{trace}");
        }
    }
}

// Shows the key PROFILE_WITH_MODULES.
#[test]
fn operations_are_in_the_modules_of_enclosing_spans() {
    let work = || {
        let model = info_span!("forward", module = "Mlp").entered();
        let step = info_span!("step", module = Empty).entered();
        step.record("module", "Linear_0");
        info_span!("mm").in_scope(|| ());
        info_span!("own", module_hierarchy = "A.B").in_scope(|| ());
        info_span!("backward", seq = 1, fwd_thread = thread_id()).in_scope(|| ());
        info_span!("by scope", record_scope = 1).in_scope(|| ());
        let span = tracing::Span::current();
        on_thread("worker", || info_span!(parent: &span, "elsewhere").in_scope(|| ()));
        drop((step, model));
        info_span!("outside").in_scope(|| ());
    };
    let modules = |file: &File, name: &str| file.slice(name).args.get("Module Hierarchy").cloned();
    let file = record_with(|builder| builder.torch(TorchOptions::new().with_modules(true)), work);
    for (name, expected) in [
        ("forward", None),
        ("step", Some("Mlp")),
        ("mm", Some("Mlp.Linear_0")),
        ("own", Some("A.B")),
        ("backward", None),
        ("by scope", None),
        ("elsewhere", Some("Mlp.Linear_0")),
        ("outside", None),
    ] {
        assert_eq!(modules(&file, name), expected.map(Value::from), "{name}");
    }
    let events = file.trace.events();
    let mm = events.iter().find(|event| event.name() == "mm").unwrap();
    assert!(mm.module_hierarchy().eq(["Mlp", "Linear_0"]));
    assert_eq!(modules(&record(work), "mm"), None);
}

#[test]
fn span_entered_elsewhere_keeps_its_modules() {
    let file = record_with(
        |builder| builder.torch(TorchOptions::new().with_modules(true)),
        || {
            let layer = info_span!("layer", module = "Conv2d_1");
            enter(&layer);
            let op = info_span!("conv");
            exit(&layer);
            drop(layer);
            op.in_scope(|| ());
        },
    );
    assert_eq!(file.slice("conv").args["Module Hierarchy"], "Conv2d_1");
}

// Shows the key CAPTURE_OVERLOAD_NAMES.
#[test]
fn overloads_follow_names_when_enabled() {
    let work = || {
        info_span!("aten::add", overload_name = "Tensor").in_scope(|| ());
        info_span!("aten::mul", overload_name = "").in_scope(|| ());
        info_span!("op", kineto.name = "aten::sub", overload_name = Empty).in_scope(|| {
            tracing::Span::current().record("overload_name", "Scalar");
        });
    };
    let names = |file: &File| file.slices().iter().map(|slice| slice.name.clone()).collect::<Vec<_>>();
    let file = record_with(|builder| builder.torch(TorchOptions::new().capture_overload_names(true)), work);
    assert_eq!(names(&file), ["aten::add.Tensor", "aten::mul", "aten::sub.Scalar"]);
    assert_eq!(file.slice("aten::add.Tensor").args["overload_name"], "Tensor");
    assert_eq!(names(&record(work)), ["aten::add", "aten::mul", "aten::sub"]);
}
