//! Selection of spans by torch's record scopes.

use super::FRAMES;
use std::sync::{Arc, Mutex};
use support::{File, layer, on_thread, record_with};
use tracing::{Span, info_span, subscriber};
use tracing_kineto::activity::RecordScope::{self, BackwardFunction, CustomClass, Function, UserScope};
use tracing_kineto::torch::TorchOptions;
use tracing_kineto::{ActivityType, Fields, KinetoLayerBuilder, Mode, ObservedSpan, SpanObserver, annotate};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry;

/// Makes nested spans of all kinds, each around a span without a scope.
fn work() {
    let spans: [Span; 9] = [
        annotate!("step"),
        info_span!("op", n = 1),
        info_span!("backward", seq = 3, fwd_thread = 1),
        info_span!("forward", seq = 3, fwd_thread = 0),
        info_span!("class", record_scope = 4),
        info_span!("by name", record_scope = "custom_class"),
        info_span!("shown", record_scope = debug("CUSTOM_CLASS"), other = display(1)),
        info_span!("unknown", record_scope = "whatever"),
        info_span!("said wins", fwd_thread = 1, record_scope = 7),
    ];
    // Made together, they evict one another.
    for span in spans {
        let _outer = span.entered();
        annotate!("mark").in_scope(|| {});
    }
}

fn only(scopes: impl IntoIterator<Item = RecordScope>) -> TorchOptions {
    TorchOptions::new().record_scopes(scopes)
}

fn record(scopes: &[RecordScope]) -> String {
    record_with(|b| b.torch(only(scopes.iter().copied())), work).parents()
}

#[test]
fn scope_selects_spans_and_excluded_ones_pass_on_parents() {
    let all = "step< mark<step op< mark<op backward< mark<backward forward< mark<forward class< mark<class \
               by name< mark<by name shown< mark<shown unknown< mark<unknown said wins< mark<said wins";
    assert_eq!(record(&[]), all);
    assert_eq!(record(RecordScope::ALL), all);
    let marks = |count: usize| vec!["mark<"; count].join(" ");
    assert_eq!(record(&[UserScope]), format!("step< mark<step {} said wins< mark<said wins", marks(7)));
    assert_eq!(record(&[Function]), "op< forward< unknown<");
    assert_eq!(record(&[BackwardFunction]), "backward<");
    assert_eq!(record(&[CustomClass]), "class< by name< shown<");
    let spans = |name| format!("{name}< mark<{name} ");
    let nested = ["op", "forward", "unknown", "said wins"].map(spans);
    assert_eq!(
        record(&[Function, UserScope]),
        format!("step< mark<step {}mark< {}{} {}{}", nested[0], nested[1], marks(3), nested[2], nested[3]).trim()
    );
}

#[test]
fn scope_is_read_without_args_and_from_annotations() {
    for name in ["kept", "left out"] {
        let scope = if name == "kept" { 1 } else { 0 };
        let file = record_with(
            |b| b.torch(only([BackwardFunction])).fields(Fields::new().record(false)),
            || {
                let class = info_span!("span", kineto.kind = "user_annotation", record_scope = scope);
                class.in_scope(|| info_span!("inner", fwd_thread = 9u64).in_scope(|| ()));
            },
        );
        assert_eq!(file.tree(&[]), if scope == 1 { "main\n  span\n    inner\n" } else { "main\n  inner\n" });
    }
}

#[test]
fn kind_of_a_callsites_first_span_sets_its_scope() {
    let work = || {
        let note = |scope| info_span!("note", kineto.kind = "user_annotation", record_scope = scope);
        [note(None::<u8>), note(None), note(Some(4))].into_iter().for_each(|span| span.in_scope(|| ()));
    };
    for (scope, count) in [(UserScope, 2), (Function, 0), (CustomClass, 1)] {
        assert_eq!(record_with(|b| b.torch(only([scope])), work).all("note").len(), count, "{scope:?}");
    }
}

#[test]
fn scope_is_ignored_when_recorded_late_or_before_the_start() {
    for kept in [false, true] {
        let (layer, guard) =
            layer(|b| b.torch(only([Function])).record_from_start(false).fields(Fields::new().while_idle(kept)));
        subscriber::with_default(registry().with(layer), || {
            let made = [info_span!("before", record_scope = 1), info_span!("text", record_scope = "USER_SCOPE")];
            guard.profiler().start().unwrap();
            made.iter().for_each(|span| span.in_scope(|| ()));
            let late = info_span!("late", record_scope = tracing::field::Empty);
            late.record("record_scope", 1);
            late.in_scope(|| ());
            let gone = info_span!("gone", record_scope = 1, n = tracing::field::Empty);
            gone.in_scope(|| info_span!("inside").in_scope(|| ()));
            // No layer owns it, on other threads either.
            on_thread("other", || {
                gone.record("n", 1);
                gone.in_scope(|| info_span!(parent: &gone, "inside").in_scope(|| ()));
                info_span!("follows").follows_from(&gone);
            });
        });
        let tree = File::of(guard.finish().unwrap()).tree(&["n"]);
        let before = if kept { "" } else { "  before\n  text\n" };
        assert_eq!(tree, format!("main\n{before}  late\n  inside\nother\n  inside\n"));
    }
}

#[test]
fn scopes_apply_at_any_depth_and_on_any_thread() {
    let file = record_with(
        |b| b.torch(only([CustomClass])),
        || {
            let depth: Vec<_> = (0..FRAMES + 8).map(|_| info_span!("deep", record_scope = 4).entered()).collect();
            let make = |scope: u64| (0..3).map(|_| info_span!("made", record_scope = scope)).collect::<Vec<_>>();
            let made: Vec<_> = on_thread("ends", || [make(1), make(4)].concat()).into_iter().chain(make(1)).collect();
            made.iter().for_each(|span| span.in_scope(|| ()));
            drop(depth);
            on_thread("other", || made.iter().for_each(|span| span.in_scope(|| ())));
            // Entered here, exited elsewhere.
            support::enter(&made[0]);
            on_thread("other", || support::exit(&made[0]));
            made.iter().for_each(|span| span.in_scope(|| ()));
        },
    );
    assert_eq!((file.all("deep").len(), file.all("made").len()), (FRAMES + 8, 9));
}

#[derive(Clone, Debug, Default)]
struct EnteredNames(Arc<Mutex<Vec<String>>>);

impl SpanObserver for EnteredNames {
    fn name(&self) -> &'static str {
        "seen"
    }
    fn enter(&self, span: &ObservedSpan) {
        self.0.lock().unwrap().push(span.name().to_owned());
    }
    fn exit(&self, _: &ObservedSpan) {}
}

#[test]
fn observers_see_selected_scopes_alone() {
    for mode in [Mode::Kineto, Mode::PrivateUse1] {
        let seen = EnteredNames::default();
        let (layer, guard) = layer(|b| b.mode(mode).observer(seen.clone()).torch(only([CustomClass])));
        subscriber::with_default(registry().with(layer), work);
        drop(guard);
        assert_eq!(*seen.0.lock().unwrap(), ["class", "by name", "shown"]);
    }
}

#[test]
fn scopes_and_types_apply_together() {
    let file = record_with(|b| b.torch(only([Function, CustomClass])).activities(ActivityType::UserAnnotation), work);
    assert!(file.slices().is_empty() && file.trace.why_empty().unwrap().contains("scopes"));
}

#[test]
fn target_may_map_to_a_scope() {
    let work = || {
        info_span!(target: "app::autograd", "MmBackward", seq = 3).in_scope(|| {
            info_span!(target: "app::autograd::hooks", "hook").in_scope(|| ());
        });
        info_span!(target: "app::autograd", "says itself", record_scope = 4).in_scope(|| ());
        info_span!(target: "app::ops", "mm").in_scope(|| ());
    };
    let targets = |builder: KinetoLayerBuilder| {
        let torch = TorchOptions::new().scope_target("app::autograd", BackwardFunction);
        builder.torch(torch.scope_target("app::autograd::hooks", UserScope))
    };
    let file = record_with(targets, work);
    let scopes: Vec<_> =
        file.slices().iter().map(|slice| (&*slice.name, slice.args["Record function scope"].as_u64())).collect();
    assert_eq!(
        scopes,
        [("MmBackward", Some(1)), ("hook", Some(7)), ("says itself", Some(4)), ("mm", None)],
        "in the file"
    );
    let events = file.trace.events();
    let read: Vec<_> = events.iter().filter(|event| event.is_slice()).map(|event| event.scope()).collect();
    assert_eq!(read[..3], [Some(BackwardFunction), Some(UserScope), Some(CustomClass)]);
    let chosen =
        |scopes: &[RecordScope]| record_with(|b| targets(b).torch(only(scopes.iter().copied())), work).parents();
    assert_eq!(chosen(&[BackwardFunction]), "MmBackward<");
    assert_eq!(chosen(&[UserScope, Function]), "hook< mm<");
}
