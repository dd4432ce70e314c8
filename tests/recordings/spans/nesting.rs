//! Slices and parents of spans, for any order of enters and exits on any thread.
#![allow(clippy::mem_forget, reason = "tests")]

use super::FRAMES;
use std::collections::HashSet;
use std::sync::Barrier;
use support::{File, check, check_parents, enter, exit, layer, on_thread, record, record_with, spawn};
use tracing::{Span, info_span};
use tracing_kineto::{AsyncSpans, Loss, Timestamp};
use tracing_subscriber::layer::SubscriberExt;

#[test]
fn spans_nest_as_they_are_entered() {
    let work = || {
        let _step = info_span!("step").entered();
        {
            let _load = info_span!("load").entered();
            info_span!("read").in_scope(|| ());
        }
        info_span!("train").in_scope(|| info_span!("forward").in_scope(|| ()));
    };
    check(
        work,
        "
        main
          step
            load
              read
            train
              forward
        ",
    );
    check_parents(work, "step< load<step read<load train<step forward<train");
}

#[test]
fn parent_is_the_registrys_when_a_span_is_reentered() {
    let work = || {
        let outer = info_span!("outer");
        let _again = (outer.clone().entered(), info_span!("inner").entered(), outer.entered());
        info_span!("made").in_scope(|| ());
    };
    // The registry does not take a span for the current one that is entered inside itself.
    check_parents(work, "outer< inner<outer outer< made<inner");
}

#[test]
fn span_made_once_has_a_slice_for_each_enter() {
    let layer = Span::none();
    let file = record(|| {
        let layers = [info_span!("attention"), info_span!("mlp")];
        for _ in 0..3 {
            let _step = info_span!("forward").entered();
            layers.iter().for_each(|layer| layer.in_scope(|| ()));
        }
        drop(layer);
    });
    let step = "  forward\n    attention\n    mlp\n";
    assert_eq!(file.tree(&[]), format!("main\n{}", step.repeat(3)));
    let spans: HashSet<_> = file.all("mlp").iter().map(|slice| slice.span()).collect();
    assert_eq!(spans.len(), 1, "one span, three slices");
    // Made outside the steps, so it is a child of none.
    assert!(file.all("mlp").iter().all(|slice| slice.parent() == 0), "{}", file.parents());
    assert_eq!(file.all("forward").iter().map(|slice| slice.span()).collect::<HashSet<_>>().len(), 3);
}

#[test]
fn span_keeps_its_parent_when_entered_again_elsewhere() {
    check_parents(
        || {
            let outer = info_span!("outer");
            let inner = outer.in_scope(|| info_span!("inner"));
            outer.in_scope(|| inner.in_scope(|| ()));
            info_span!("other").in_scope(|| inner.in_scope(|| ()));
            inner.in_scope(|| ());
            on_thread("worker", || inner.in_scope(|| ()));
        },
        "outer< outer< inner<outer other< inner<outer inner<outer inner<outer",
    );
}

#[test]
fn span_entered_twice_on_one_thread_has_two_slices() {
    let file = record(|| {
        let span = info_span!("twice");
        let _outer = span.enter();
        info_span!("between").in_scope(|| {
            let _inner = span.enter();
        });
    });
    assert_eq!(file.tree(&[]), "main\n  twice\n    between\n      twice\n");
    let [outer, inner] = &file.all("twice")[..] else { unreachable!() };
    assert_eq!(outer.span(), inner.span());
    assert_eq!((outer.parent(), inner.parent()), (0, 0));
}

#[test]
fn slices_that_overlap_get_a_second_row_of_the_same_thread() {
    let file = record(|| {
        let (a, b) = (info_span!("a"), info_span!("b"));
        enter(&a);
        enter(&b);
        exit(&a);
        exit(&b);
        info_span!("c").in_scope(|| ());
    });
    assert_eq!(file.tree(&[]), "main\n  a\n  c\nmain (2)\n  b\n");
    let (a, b) = (file.slice("a"), file.slice("b"));
    assert!(a.start <= b.start && b.start < a.end && a.end < b.end);
    assert_ne!(a.tid, b.tid);
    assert_eq!(b.args["thread id"].as_u64(), Some(a.tid), "the row's id is not a kernel thread id");
    assert!(a.args.get("thread id").is_none());
    assert_eq!(file.lost(Loss::Overlapping), 1);
}

#[test]
fn averages_count_time_once_when_guards_cross() {
    let file = record(|| {
        for _ in 0..300 {
            let (first, second) = (info_span!("first").entered(), info_span!("second").entered());
            info_span!("inside").in_scope(|| ());
            drop(first);
            info_span!("behind").in_scope(|| ());
            drop(second);
        }
    });
    assert_eq!(file.lost(Loss::Overlapping), 300);
    let events = file.trace.events();
    let (mut covered_ns, mut until) = (0, Timestamp::default());
    for slice in events.iter() {
        covered_ns += slice.end().since(slice.start().max(until));
        until = until.max(slice.end());
    }
    assert_eq!(events.key_averages().cpu_base_ns(), covered_ns.cast_signed());
    let tree = events.tree();
    let around = |name: &str| {
        let slice = events.iter().find(|event| event.name() == name).unwrap();
        tree.ancestors(slice).map(|event| event.name().to_owned()).collect::<Vec<_>>()
    };
    assert!(around("second").is_empty(), "it outlives the first");
    assert_eq!([around("inside"), around("behind")], [["second"], ["second"]]);
}

#[test]
fn parents_are_right_when_exits_are_out_of_order() {
    let work = || {
        let spans = ["root", "a", "b"].map(|name| match name {
            "root" => info_span!("root"),
            "a" => info_span!("a"),
            _ => info_span!("b"),
        });
        // `a` and `b` are made here, outside `root`.
        spans.iter().for_each(enter);
        exit(&spans[1]);
        let child = info_span!("child_of_b");
        child.in_scope(|| info_span!("grandchild").in_scope(|| ()));
        exit(&spans[2]);
        info_span!("child_of_root").in_scope(|| ());
        exit(&spans[0]);
    };
    check_parents(work, "root< a< b< child_of_b<b grandchild<child_of_b child_of_root<root");
}

#[test]
fn span_keeps_its_parent_when_the_parent_exits_first() {
    check_parents(
        || {
            let root = info_span!("root").entered();
            let a = info_span!("a");
            enter(&a);
            let b = info_span!("b");
            enter(&b);
            exit(&a);
            let c = info_span!("c");
            enter(&c);
            exit(&b);
            info_span!("d").in_scope(|| ());
            exit(&c);
            drop(root);
        },
        "root< a<root b<a c<b d<c",
    );
}

#[test]
fn reentered_span_keeps_a_parent_that_exited_first() {
    let work = || {
        let root = info_span!("root").entered();
        let a = info_span!("a");
        enter(&a);
        let b = info_span!("b");
        enter(&b);
        exit(&a);
        exit(&b);
        b.in_scope(|| ());
        drop(root);
        b.in_scope(|| ());
        on_thread("worker", || b.in_scope(|| ()));
    };
    check_parents(work, "root< a<root b<a b<a b<a b<a");
}

#[test]
fn guards_dropped_out_of_order_end_their_own_slices() {
    for depth in [3, FRAMES + 1, FRAMES + 2, FRAMES + 3, FRAMES + 4, FRAMES + 40] {
        let file = record(|| {
            let spans: Vec<Span> = (0..depth).map(|i| info_span!("deep", i)).collect();
            spans.iter().for_each(enter);
            // Outermost first: each exit but the last is out of order.
            spans.iter().for_each(exit);
            info_span!("after").in_scope(|| ());
        });
        let slices = file.all("deep");
        assert_eq!(slices.len(), depth);
        for (i, pair) in slices.windows(2).enumerate() {
            assert_eq!(pair[0].fields(), format!("{{\"i\":{i}}}"));
            assert!(pair[0].end <= pair[1].end, "slice {i} of {depth} ends before the next");
        }
        assert_eq!((file.lost(Loss::Unfinished), file.lost(Loss::Overlapping)), (0, depth as u64 - 1));
        assert_eq!(file.slice("after").parent(), 0, "the stack of {depth} is empty again");
    }
}

#[test]
fn recursion_nests_four_hundred_levels_deep() {
    fn descend(levels: u64) {
        let _level = info_span!("level", levels).entered();
        if levels > 1 {
            descend(levels - 1);
        }
    }
    let file = record(|| descend(400));
    let expected: String = (1..=400).map(|depth| format!("{:1$}level\n", "", depth * 2)).collect();
    assert_eq!(file.tree(&[]), format!("main\n{expected}"));
    let slices = file.all("level");
    assert!(slices.windows(2).all(|pair| pair[1].parent() == pair[0].span()), "{}", file.parents());
    assert_eq!(file.lost(Loss::Unfinished), 0);
}

#[test]
fn deep_spans_can_be_reentered_and_moved() {
    let work = || {
        let around: Vec<_> = (0..FRAMES + 8).map(|_| info_span!("around").entered()).collect();
        let deep = info_span!("deep");
        deep.in_scope(|| ());
        deep.in_scope(|| on_thread("worker", || deep.in_scope(|| info_span!("child").in_scope(|| ()))));
        around.into_iter().rev().for_each(drop);
        deep.in_scope(|| ());
    };
    let file = record_with(|builder| builder.async_spans(AsyncSpans::PerPoll), work);
    let deep = file.all("deep");
    assert_eq!(deep.len(), 4);
    let parent = file.all("around").last().unwrap().span();
    assert!(deep.iter().all(|slice| slice.span() == deep[0].span() && slice.parent() == parent), "{deep:?}");
    assert_eq!(file.slice("child").parent(), deep[0].span());
}

#[test]
fn span_exited_by_another_thread_ends_where_entered() {
    let file = record(|| {
        let (around, span) = (info_span!("around").entered(), info_span!("moved"));
        enter(&span);
        on_thread("worker", || {
            info_span!("before").in_scope(|| ());
            exit(&span);
            info_span!("after").in_scope(|| ());
        });
        info_span!("next").in_scope(|| ());
        drop(around);
    });
    let [moved, before, after] = ["moved", "before", "after"].map(|name| file.slice(name));
    assert_eq!(moved.row, "main");
    assert!(before.end <= moved.end && moved.end <= after.start);
    assert_eq!(file.lost(Loss::Unfinished), 0);
    assert_eq!(file.slice("next").parent(), file.slice("around").span(), "its thread has left it too");
}

#[test]
fn span_closed_late_or_elsewhere_is_complete() {
    let file = record(|| {
        let span = info_span!("late");
        span.in_scope(|| ());
        let (sender, receiver) = std::sync::mpsc::channel::<Span>();
        std::thread::scope(|scope| {
            spawn(scope, "closer", move || receiver.recv().map(drop));
            sender.send(span).unwrap();
        });
        info_span!("next").in_scope(|| ());
    });
    assert_eq!(file.tree(&["finished"]), "main\n  late\n  next\n");
    assert!(file.rows("b").is_empty(), "a span entered once has no track");
}

#[test]
fn span_never_entered_has_no_slice_but_may_be_a_parent() {
    let file = record(|| {
        let never = info_span!("never");
        info_span!(parent: &never, "child").in_scope(|| ());
        drop(info_span!("neither"));
    });
    assert_eq!(file.parents(), "child<?");
    assert_ne!(file.slice("child").parent(), file.slice("child").span());
}

#[test]
fn explicit_parents_and_roots_are_kept() {
    check_parents(
        || {
            let (a, b) = (info_span!("a").entered(), info_span!("b"));
            b.in_scope(|| ());
            info_span!(parent: &b, "of_b").in_scope(|| info_span!("inside").in_scope(|| ()));
            info_span!(parent: None, "root").in_scope(|| ());
            info_span!(parent: &a, "of_a", fields = true).in_scope(|| ());
            info_span!(parent: None, "root_with_fields", x = 1).in_scope(|| ());
        },
        "a< b<a of_b<b inside<of_b root< of_a<a root_with_fields<",
    );
}

#[test]
fn parent_may_be_on_another_thread() {
    let file = record(|| {
        let request = info_span!("request").entered();
        let parent: Span = (*request).clone();
        on_thread("worker", || {
            info_span!(parent: &parent, "job").in_scope(|| info_span!("part").in_scope(|| ()));
            info_span!(parent: &parent, "job_with_fields", n = 1).in_scope(|| ());
        });
    });
    assert_eq!(file.tree(&[]), "main\n  request\nworker\n  job\n    part\n  job_with_fields\n");
    assert_eq!(file.parents(), "request< job<request part<job job_with_fields<request");
}

#[test]
fn root_stays_a_root_when_exits_are_out_of_order() {
    check_parents(
        || {
            let a = info_span!("a");
            enter(&a);
            let root = info_span!(parent: None, "root");
            enter(&root);
            exit(&a);
            exit(&root);
        },
        "a< root<",
    );
}

#[test]
fn span_sent_before_any_enter_keeps_parent_and_fields() {
    let file = record(|| {
        let outer = info_span!("outer").entered();
        let plain = info_span!("plain");
        let with_fields = info_span!("with_fields", n = 7);
        on_thread("worker", || {
            plain.in_scope(|| ());
            with_fields.in_scope(|| ());
        });
        drop(outer);
    });
    assert_eq!(file.tree(&["n"]), "main\n  outer\nworker\n  plain\n  with_fields n=7\n");
    let outer = file.slice("outer").span();
    assert_eq!((file.slice("plain").parent(), file.slice("with_fields").parent()), (outer, outer));
}

#[test]
fn span_entered_by_threads_at_once_has_one_slice_each() {
    const THREADS: usize = 4;
    let file = record(|| {
        let span = info_span!("shared", n = 1);
        let all_inside = Barrier::new(THREADS);
        std::thread::scope(|scope| {
            for i in 0..THREADS {
                let (span, all_inside) = (&span, &all_inside);
                spawn(scope, &format!("worker {i}"), move || {
                    let _entered = span.enter();
                    all_inside.wait();
                    info_span!("own").in_scope(|| ());
                    all_inside.wait();
                });
            }
        });
    });
    let shared = file.all("shared");
    assert_eq!(shared.iter().map(|slice| slice.tid).collect::<HashSet<_>>().len(), THREADS);
    assert_eq!(shared.iter().map(|slice| slice.span()).collect::<HashSet<_>>().len(), 1);
    assert!(shared.iter().all(|slice| slice.fields() == r#"{"n":1}"#));
    let latest_start = shared.iter().map(|slice| slice.start).max().unwrap();
    assert!(shared.iter().all(|slice| slice.end > latest_start), "all were open at once");
    assert!(file.all("own").iter().all(|slice| slice.parent() == shared[0].span()));
}

#[test]
fn spans_of_two_registries_do_not_mix() {
    let [(first, first_guard), (second, second_guard)] = [layer(|b| b), layer(|b| b)];
    let [first, second] = [tracing_subscriber::registry().with(first), tracing_subscriber::registry().with(second)]
        .map(tracing::Dispatch::new);
    let in_first = |work: &dyn Fn()| tracing::dispatcher::with_default(&first, work);
    let in_second = |work: &dyn Fn()| tracing::dispatcher::with_default(&second, work);
    for _ in 0..3 {
        // The registries hand out the same keys.
        in_first(&|| {
            let _a = info_span!("a").entered();
            in_second(&|| {
                let _b = info_span!("b").entered();
                in_first(&|| info_span!("inside_a").in_scope(|| ()));
                info_span!("inside_b").in_scope(|| ());
            });
        });
    }
    let [first, second] = [first_guard, second_guard].map(|guard| File::of(guard.finish().unwrap()));
    assert_eq!(first.tree(&[]), format!("main\n{}", "  a\n    inside_a\n".repeat(3)));
    assert_eq!(second.tree(&[]), format!("main\n{}", "  b\n    inside_b\n".repeat(3)));
    assert!(first.parents().starts_with("a< inside_a<a"));
}

#[test]
fn span_may_outlive_its_registry() {
    let mut kept = None;
    let file = record(|| {
        let span = info_span!("kept");
        enter(&span);
        kept = Some(span);
    });
    let span = kept.unwrap();
    exit(&span);
    info_span!("nowhere").in_scope(|| ());
    drop(span);
    assert_eq!(file.tree(&["finished"]), "main\n  kept finished=false\n");
}

#[test]
fn ids_are_unique_across_threads_and_operations() {
    const THREADS: usize = 8;
    const OPERATIONS: usize = 500;
    let file = record(|| {
        std::thread::scope(|scope| {
            for i in 0..THREADS {
                spawn(scope, &format!("worker {i}"), || {
                    for n in 0..OPERATIONS {
                        info_span!("plain").in_scope(|| info_span!("with_fields", n).in_scope(|| ()));
                    }
                });
            }
        });
    });
    let (plain, with_fields) = (file.all("plain"), file.all("with_fields"));
    assert_eq!((plain.len(), with_fields.len()), (THREADS * OPERATIONS, THREADS * OPERATIONS));
    // `File` checks every file for unique "External id" values.
    let spans: HashSet<_> = plain.iter().chain(&with_fields).map(|slice| slice.span()).collect();
    assert_eq!(spans.len(), 2 * THREADS * OPERATIONS);
    let parents: HashSet<_> = with_fields.iter().map(|slice| slice.parent()).collect();
    assert_eq!(parents, plain.iter().map(|slice| slice.span()).collect());
}
