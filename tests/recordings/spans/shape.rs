//! Random programs of spans on several threads: the file matches an oracle.

use proptest::prelude::*;
use std::collections::HashMap;
use std::sync::mpsc;
use support::{File, enter, exit, record};
use tracing::field::Empty;
use tracing::{Dispatch, Span, dispatcher, info_span};
use tracing_kineto::Loss;

/// One step of a program, run on one of its threads.
#[derive(Clone, Debug)]
enum Step {
    /// Makes a span, with fields or without, as a root or under the current or an earlier span.
    New {
        fields: bool,
        parent: Parent,
    },
    /// Enters a span that was made before.
    Enter(usize),
    /// Exits the n-th innermost span that the thread is inside.
    Exit(usize),
    Record(usize),
    /// Drops the program's handle; the span closes when no thread is inside it.
    Drop(usize),
}

#[derive(Clone, Debug)]
enum Parent {
    Current,
    Root,
    Span(usize),
}

const THREADS: usize = 4;

fn steps(order: bool) -> impl Strategy<Value = Vec<(usize, Step)>> {
    let parent =
        prop_oneof![3 => Just(Parent::Current), 1 => Just(Parent::Root), 1 => (0usize..8).prop_map(Parent::Span)];
    let step = prop_oneof![
        3 => (any::<bool>(), parent).prop_map(|(fields, parent)| Step::New { fields, parent }),
        4 => (0usize..8).prop_map(Step::Enter),
        3 => if order { Just(0).boxed() } else { (0usize..3).boxed() }.prop_map(Step::Exit),
        1 => (0usize..8).prop_map(Step::Record),
        1 => (0usize..8).prop_map(Step::Drop),
    ];
    prop::collection::vec((0..THREADS, step), 1..60)
}

/// The state of a program, and the rows that the file must contain.
#[derive(Default)]
struct Oracle {
    spans: Vec<Made>,
    /// Per thread, the open slices: an index into `slices`.
    stacks: [Vec<usize>; THREADS],
    slices: Vec<Expected>,
}

struct Made {
    handle: Option<Span>,
    parent: Option<usize>,
    fields: bool,
    recorded: Option<u64>,
}

#[derive(Debug)]
struct Expected {
    span: usize,
    thread: usize,
    /// The numbers of the steps in which it was entered and exited.
    enter: usize,
    exit: Option<usize>,
}

/// Threads that run one job at a time.
struct Workers {
    senders: Vec<mpsc::Sender<Box<dyn FnOnce() + Send>>>,
    done: mpsc::Receiver<()>,
}

impl Workers {
    fn with(work: impl FnOnce(&Workers)) {
        let dispatch = dispatcher::get_default(Dispatch::clone);
        let (finished, done) = mpsc::channel();
        std::thread::scope(|scope| {
            let worker = |i: usize| {
                let (sender, receiver) = mpsc::channel::<Box<dyn FnOnce() + Send>>();
                let (dispatch, finished) = (dispatch.clone(), finished.clone());
                let run = move || {
                    dispatcher::with_default(&dispatch, || {
                        receiver.iter().for_each(|job| {
                            job();
                            finished.send(()).unwrap();
                        });
                    });
                };
                std::thread::Builder::new().name(format!("t{i}")).spawn_scoped(scope, run).unwrap();
                sender
            };
            let workers = Workers { senders: (0..THREADS).map(worker).collect(), done };
            work(&workers);
        });
    }

    fn run(&self, thread: usize, job: impl FnOnce() + Send + 'static) {
        self.senders[thread].send(Box::new(job)).unwrap();
        self.done.recv().unwrap();
    }
}

impl Oracle {
    /// Returns span `n`, modulo their number; `None` if there is no span or it is dropped.
    fn handle(&self, n: usize) -> Option<(usize, Span)> {
        let span = n.checked_rem(self.spans.len())?;
        Some((span, self.spans[span].handle.clone()?))
    }

    fn step(&mut self, number: usize, thread: usize, step: &Step, workers: &Workers) {
        match step {
            Step::New { fields, parent } => self.make(thread, *fields, parent, workers),
            Step::Enter(n) => {
                let Some((span, handle)) = self.handle(*n) else { return };
                // The registry's current span differs once a thread is inside a span twice.
                if self.stacks[thread].iter().any(|slice| self.slices[*slice].span == span) {
                    return;
                }
                // An empty last enter after another looks like the drop of a future.
                let is_again = self.slices.iter().any(|slice| slice.span == span);
                self.stacks[thread].push(self.slices.len());
                self.slices.push(Expected { span, thread, enter: number, exit: None });
                workers.run(thread, move || {
                    enter(&handle);
                    if is_again {
                        tracing::error!("inside");
                    }
                });
            }
            Step::Exit(from_top) => {
                let stack = &mut self.stacks[thread];
                let Some(at) = stack.len().checked_sub(from_top + 1) else { return };
                let slice = stack.remove(at);
                self.slices[slice].exit = Some(number);
                let Some(handle) = self.spans[self.slices[slice].span].handle.clone() else { return };
                workers.run(thread, move || exit(&handle));
            }
            Step::Record(n) => {
                let Some((span, handle)) = self.handle(*n) else { return };
                if self.spans[span].fields {
                    self.spans[span].recorded = Some(number as u64);
                    workers.run(thread, move || {
                        handle.record("late", number as u64);
                    });
                }
            }
            Step::Drop(n) => {
                let Some((span, handle)) = self.handle(*n) else { return };
                if !self.stacks.iter().flatten().any(|slice| self.slices[*slice].span == span) {
                    self.spans[span].handle = None;
                    workers.run(thread, move || drop(handle));
                }
            }
        }
    }

    fn make(&mut self, thread: usize, fields: bool, parent: &Parent, workers: &Workers) {
        let number = self.spans.len() as u64;
        let (parent, explicit) = match parent {
            Parent::Current => (self.stacks[thread].last().map(|slice| self.slices[*slice].span), None),
            Parent::Root => (None, Some(None)),
            Parent::Span(n) => match self.handle(*n) {
                Some((span, handle)) => (Some(span), Some(handle.id())),
                None => return,
            },
        };
        let (sender, made) = mpsc::channel();
        workers.run(thread, move || {
            let span = match (fields, explicit) {
                (true, None) => info_span!("with_fields", number, late = Empty),
                (true, Some(id)) => info_span!(parent: id, "with_fields", number, late = Empty),
                (false, None) => info_span!("plain"),
                (false, Some(id)) => info_span!(parent: id, "plain"),
            };
            sender.send(span).unwrap();
        });
        self.spans.push(Made { handle: Some(made.recv().unwrap()), parent, fields, recorded: None });
    }

    /// Compares the file with the expected slices.
    fn check(&self, file: &File) -> Result<(), TestCaseError> {
        let mut found: HashMap<String, Vec<&support::Slice>> = HashMap::new();
        let row_of = |row: &str| row.split(' ').next().unwrap().to_owned();
        file.slices().iter().for_each(|slice| found.entry(row_of(&slice.row)).or_default().push(slice));
        let mut ids: HashMap<usize, u64> = HashMap::new();
        let mut in_time: Vec<(usize, u64)> = Vec::new();
        for thread in 0..THREADS {
            let expected: Vec<_> = self.slices.iter().filter(|slice| slice.thread == thread).collect();
            let mut found = found.remove(&format!("t{thread}")).unwrap_or_default();
            found.sort_by_key(|slice| slice.start);
            prop_assert_eq!(found.len(), expected.len(), "slices of thread {}", thread);
            for (found, expected) in found.iter().zip(expected) {
                let span = &self.spans[expected.span];
                prop_assert_eq!(&found.name, if span.fields { "with_fields" } else { "plain" });
                prop_assert_eq!(*ids.entry(expected.span).or_insert(found.span()), found.span());
                prop_assert_eq!(
                    found.args.get("number").and_then(|n| n.as_u64()),
                    span.fields.then_some(expected.span as u64)
                );
                prop_assert_eq!(found.args.get("late").and_then(|n| n.as_u64()), span.recorded);
                prop_assert_eq!(found.args.get("finished").is_some(), expected.exit.is_none());
                in_time.push((expected.enter, found.start));
                in_time.extend(expected.exit.map(|exit| (exit, found.end)));
            }
        }
        // The steps run in sequence across threads, so times give their order.
        in_time.sort_unstable();
        prop_assert!(in_time.is_sorted_by_key(|(_, at)| *at), "{:?}", in_time);
        for slice in file.slices() {
            let span = ids.iter().find(|(_, id)| **id == slice.span()).unwrap().0;
            match self.spans[*span].parent {
                None => prop_assert_eq!(slice.parent(), 0, "span {} is a root", span),
                // A parent that was never entered has an id that no slice has.
                Some(parent) => match ids.get(&parent) {
                    Some(id) => prop_assert_eq!(slice.parent(), *id, "the parent of span {}", span),
                    None => prop_assert!(slice.parent() != 0 && !ids.values().any(|id| *id == slice.parent())),
                },
            }
        }
        prop_assert_eq!(file.lost(Loss::Reentered) + file.lost(Loss::FieldsNotSeen) + file.lost(Loss::Clipped), 0);
        Ok(())
    }
}

fn run(program: &[(usize, Step)]) -> (Oracle, File) {
    let mut oracle = Oracle::default();
    let file = record(|| {
        Workers::with(|workers| {
            program.iter().enumerate().for_each(|(number, (thread, step))| oracle.step(number, *thread, step, workers));
        });
    });
    (oracle, file)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn file_matches_any_program_with_nested_guards(program in steps(true)) {
        let (oracle, file) = run(&program);
        oracle.check(&file)?;
        prop_assert_eq!(file.lost(Loss::Overlapping), 0);
    }

    #[test]
    fn file_matches_any_program(program in steps(false)) {
        let (oracle, file) = run(&program);
        oracle.check(&file)?;
    }

    #[test]
    fn any_text_is_read_back(text in "\\PC*|(?s).{0,80}", key in any::<String>()) {
        let file = record(|| {
            info_span!("s", kineto.name = text.as_str(), text, shown = %text, debug = ?text).in_scope(|| ());
            tracing_kineto::counter!(text.as_str(), n = 1);
        });
        file.trace.add_metadata(&key, &text);
        let again = File::of(file.trace);
        let slice = &again.slices()[0];
        let debug = format!("{text:?}");
        // Kineto writes "kernel" with a capital, and HTA cannot read U+0000 in names.
        let name = text.replace('\0', "\u{2400}");
        prop_assert!(slice.name == name || text == "kernel");
        prop_assert_eq!(slice.args["text"].as_str(), Some(text.as_str()));
        prop_assert_eq!(slice.args["shown"].as_str(), Some(text.as_str()));
        prop_assert_eq!(slice.args["debug"].as_str(), Some(debug.as_str()));
        prop_assert_eq!(again.rows("C")[0]["name"].as_str(), Some(text.as_str()));
        prop_assert_eq!(again.json[&key].as_str(), Some(text.as_str()));
    }

    #[test]
    fn any_number_is_read_back(i in any::<i64>(), u in any::<u64>(), f in any::<f64>(), b in any::<bool>(), w in any::<i128>()) {
        let file = record(|| info_span!("s", i, u, f, b, w).in_scope(|| ()));
        let args = file.slice("s").args;
        let text = |key: &str| args[key].as_str().map_or_else(|| args[key].to_string(), str::to_owned);
        prop_assert_eq!((text("i"), text("u"), text("w"), args["b"].as_bool()), (i.to_string(), u.to_string(), w.to_string(), Some(b)));
        prop_assert_eq!(args["u"].is_string(), u > i64::MAX as u64);
        if f.is_finite() {
prop_assert_eq!(text("f").parse::<f64>().unwrap(), f)
} else {
prop_assert!(["nan", "inf", "-inf"].contains(&text("f").as_str()))
}
    }
}
