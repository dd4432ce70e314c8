//! Field values whose `Debug` traces: under a global subscriber they re-enter the layer.
//!
//! Under a scoped default, as in the other tests, such spans do not reach the layer.
#![allow(clippy::disallowed_methods, reason = "tests")]

use std::fmt;
use std::sync::{Mutex, OnceLock};
use support::File;
use tracing::field::{Empty, debug};
use tracing::{Level, error, info, info_span};
use tracing_kineto::{KinetoGuard, Profiler};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

/// Records `work` with the process's only layer.
fn record(work: impl FnOnce()) -> File {
    static PROFILER: OnceLock<(Profiler, KinetoGuard)> = OnceLock::new();
    let (profiler, _guard) = PROFILER.get_or_init(|| {
        let (layer, guard) = support::layer(|builder| builder.record_from_start(false).events(Level::INFO));
        tracing_subscriber::registry().with(layer).init();
        (guard.profiler(), guard)
    });
    let _alone = crate::lock_subscriber();
    profiler.start().unwrap();
    work();
    File::of(profiler.stop().unwrap())
}

/// A value whose `Debug` runs a closure.
struct DebugHook<F: Fn()>(F);

impl<F: Fn()> fmt::Debug for DebugHook<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("before ")?;
        (self.0)();
        f.write_str("after")
    }
}

#[test]
fn spans_made_in_debug_are_recorded() {
    let file = record(|| {
        let value =
            DebugHook(|| info_span!("inside", n = 1).in_scope(|| info_span!("deeper", text = "x").in_scope(|| ())));
        let span = info_span!("s", ?value, late = Empty);
        span.record("late", debug(&value));
        span.in_scope(|| info!(?value, "event"));
    });
    let inside = "inside\n    deeper\n".to_owned();
    let deeper = "    inside\n      deeper\n";
    assert_eq!(file.tree(&[]), format!("main\n  {inside}  {inside}  s\n{deeper}"));
    assert_eq!(file.fields("s"), r#"{"late":"before after","value":"before after"}"#);
    assert!(file.all("inside").iter().all(|slice| slice.fields() == r#"{"n":1}"#));
    assert!(file.all("deeper").iter().all(|slice| slice.fields() == r#"{"text":"x"}"#));
    assert_eq!(file.trace.stats().losses, []);
}

#[test]
fn events_made_in_debug_are_recorded() {
    let file = record(|| {
        let value = DebugHook(|| info!(n = 1, "inside"));
        info_span!("s", ?value).in_scope(|| info!(?value, "outer"));
        let fails = DebugHook(|| error!("from inside"));
        info_span!("failing").in_scope(|| error!(?fails, "outside"));
    });
    let names: Vec<_> = file.rows("i").iter().filter_map(|row| row["name"].as_str()).collect();
    assert_eq!(names, ["inside", "inside", "outer", "from inside", "outside"]);
    assert_eq!(file.fields("s"), r#"{"value":"before after"}"#);
    assert_eq!(file.slice("failing").args["error"], "from inside", "the first one");
}

#[test]
fn span_left_open_by_debug_is_recorded() {
    let file = record(|| {
        let kept = Mutex::new(Vec::new());
        let value = DebugHook(|| {
            let span = info_span!("left open");
            support::enter(&span);
            kept.lock().unwrap().push(span);
        });
        let span = info_span!("s", ?value).entered();
        info_span!("child").in_scope(|| ());
        drop(span);
        kept.lock().unwrap().iter().for_each(support::exit);
    });
    assert_eq!(file.tree(&["finished"]), "main\n  left open\n    s\n      child\n");
}

#[test]
fn recursive_debug_terminates() {
    struct Nested(u32);
    impl fmt::Debug for Nested {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            if self.0 > 0 {
                info_span!("nested", value = ?Nested(self.0 - 1)).in_scope(|| ());
            }
            write!(f, "{}", self.0)
        }
    }
    let file = record(|| info_span!("s", value = ?Nested(20)).in_scope(|| ()));
    assert_eq!((file.all("nested").len(), file.fields("s").as_str()), (20, r#"{"value":"20"}"#));
    let values: Vec<_> = file.all("nested").iter().map(|slice| slice.fields()).collect();
    assert_eq!(values.first().unwrap(), r#"{"value":"0"}"#);
    assert_eq!(values.last().unwrap(), r#"{"value":"19"}"#);
}
