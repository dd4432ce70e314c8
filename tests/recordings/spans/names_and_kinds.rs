//! Names and kinds of spans: `annotate!`, `kineto.name`, `kineto.kind`, the classifier, targets.

use support::{record, record_with};
use tracing::field::Empty;
use tracing::info_span;
use tracing_kineto::{ActivityType, Loss, annotate};

#[test]
fn kineto_name_replaces_the_name() {
    let file = record(|| {
        info_span!("a", kineto.name = "given", n = 1).in_scope(|| ());
        info_span!("b", kineto.name = %format_args!("step {}", 2)).in_scope(|| ());
        let late = info_span!("c", kineto.name = Empty);
        late.record("kineto.name", "later");
        late.in_scope(|| ());
        info_span!("d", kineto.name = Empty).in_scope(|| ());
    });
    assert_eq!(file.tree(&["kineto.name"]), "main\n  given\n  step 2\n  later\n  d\n");
    assert_eq!(file.fields("given"), r#"{"n":1}"#);
}

#[test]
fn annotate_makes_user_annotations() {
    let file = record(|| {
        let step = 3;
        annotate!("ProfilerStep#{}", step).in_scope(|| annotate!("load"; batch = 3).in_scope(|| ()));
        annotate!("inline {step}").in_scope(|| ());
        annotate!("{{literal}}").in_scope(|| ());
        info_span!("op").in_scope(|| ());
    });
    assert_eq!(file.tree(&["batch"]), "main\n  ProfilerStep#3\n    load batch=3\n  inline 3\n  {literal}\n  op\n");
    let cats: Vec<_> = file.slices().iter().map(|slice| slice.cat.clone()).collect();
    assert_eq!(cats, ["user_annotation", "user_annotation", "user_annotation", "user_annotation", "cpu_op"]);
    assert!(!file.json["traceEvents"].to_string().contains("kineto.annotation"));
}

#[test]
fn kineto_kind_sets_the_kind_of_its_callsite() {
    for (kind, cat) in [
        ("user_annotation", "user_annotation"),
        ("python_function", "python_function"),
        ("cpu_op", "cpu_op"),
        ("cuda_runtime", "cuda_runtime"),
        ("overhead", "overhead"),
    ] {
        let file = record_with(
            |builder| builder.activities(tracing_kineto::ActivityTypes::ALL),
            || (0..2).for_each(|_| info_span!("s", kineto.kind = kind).in_scope(|| ())),
        );
        let slices = file.all("s");
        assert_eq!(slices.len(), 2, "{kind}");
        assert!(slices.iter().all(|slice| slice.cat == cat && slice.args.get("kineto.kind").is_none()), "{slices:?}");
        assert_eq!(file.lost(Loss::KindsRefused), 0);
    }
}

#[test]
fn device_kind_of_a_span_is_rejected_once_per_callsite() {
    for kind in ["kernel", "gpu_memcpy", "nonsense", ""] {
        let file = record(|| {
            (0..3).for_each(|_| info_span!("a", kineto.kind = kind).in_scope(|| ()));
            info_span!("b", kineto.kind = %kind).in_scope(|| ());
        });
        assert_eq!((file.all("a").len(), file.slice("b").cat.as_str()), (3, "cpu_op"));
        assert!(file.all("a").iter().all(|slice| slice.cat == "cpu_op"));
        assert_eq!(file.lost(Loss::KindsRefused), 2, "{kind}");
    }
}

#[test]
fn spans_are_excluded_when_their_kind_is_not_selected() {
    let file = record_with(
        |builder| builder.activities(ActivityType::UserAnnotation),
        || {
            let _op = info_span!("op").entered();
            annotate!("kept").in_scope(|| info_span!("inner op", n = 1).in_scope(|| annotate!("deep").in_scope(|| ())));
        },
    );
    assert_eq!(file.tree(&[]), "main\n  kept\n    deep\n");
    assert_eq!(file.lost(Loss::Overlapping), 0);
}

#[test]
fn classifier_and_targets_decide_when_the_span_does_not() {
    let file = record_with(
        |builder| {
            let classify = |metadata: &tracing::Metadata<'_>| match metadata.name() {
                "function" => Some(ActivityType::PythonFunction),
                "impossible" => Some(ActivityType::ConcurrentKernel),
                _ => None,
            };
            builder.classify(classify).annotate_target("app::steps").activities(tracing_kineto::ActivityTypes::ALL)
        },
        || {
            info_span!("function").in_scope(|| ());
            info_span!("impossible").in_scope(|| ());
            info_span!(target: "app::steps::inner", "step").in_scope(|| ());
            info_span!(target: "app", "op").in_scope(|| ());
        },
    );
    let cats: Vec<_> = file.slices().iter().map(|slice| slice.cat.clone()).collect();
    assert_eq!(cats, ["python_function", "cpu_op", "user_annotation", "cpu_op"]);
}

// Shows the key WITH_TARGET.
#[test]
fn targets_and_locations_are_shown_when_enabled() {
    for (target, location) in [(true, false), (false, true)] {
        let file = record_with(
            |builder| builder.with_target(target).with_location(location),
            || info_span!(target: "some::target", "s").in_scope(|| ()),
        );
        let args = file.slice("s").args;
        assert_eq!(args.get("target").and_then(|text| text.as_str()), target.then_some("some::target"));
        assert_eq!(
            args.get("location")
                .is_some_and(|at| at.as_str().unwrap().starts_with("tests/recordings/spans/names_and_kinds.rs:")),
            location
        );
    }
}
