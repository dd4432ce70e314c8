//! Call stacks of operations, and the folded lines that flame graphs are made from.

use super::averages::SortBy;
use super::events::{Event, Events, values};
use super::relations::{Attribution, Forest, Nesting};
use crate::hash::HashMap;
use crate::sorting::sort_few;
use crate::text::is_unprintable;
use crate::write::file;
use crate::{Error, ErrorKind};
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::str::FromStr;

/// The metric of folded stacks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum StackMetric {
    /// The time on the host, without that of nested operations; torch's `self_cpu_time_total`.
    #[default]
    SelfHost,
    /// The time of kernels, copies and fills that the operation itself launched; torch's `self_cuda_time_total`.
    ///
    /// Unlike [`Average::self_device_ns`](super::Average::self_device_ns), spans timed by events do not count.
    SelfDevice,
}

impl FromStr for StackMetric {
    type Err = Error;

    /// Parses torch's `self_cpu_time_total` or `self_cuda_time_total`, and [`SortBy`]'s synonyms of them.
    fn from_str(name: &str) -> Result<StackMetric, Error> {
        match name.parse() {
            Ok(SortBy::SelfHost) => Ok(StackMetric::SelfHost),
            Ok(SortBy::SelfDevice) => Ok(StackMetric::SelfDevice),
            _ => {
                let text =
                    format!("unknown metric of stacks `{name}`; use self_cpu_time_total or self_cuda_time_total");
                Err(Error::new(ErrorKind::Config, text))
            }
        }
    }
}

/// Folded stacks: one line per stack, with frames from the root separated by `;`, then microseconds.
///
/// Made by [`Events::stacks`], for flamegraph.pl, inferno and speedscope.
#[derive(Clone, Copy, Debug)]
pub struct FoldedStacks<'e> {
    events: &'e Events,
    metric: StackMetric,
    with_locations: bool,
}

impl Events {
    /// Returns the folded stacks of all operations and API calls. They are computed when they are written.
    ///
    /// A stack consists of an operation and the spans and interpreter functions around it on its thread, in order of
    /// their starts. If an operation recorded a `Call stack`, that is at the root. White space, `;` and characters that a
    /// terminal does not show become `_`.
    ///
    /// A stack has at most 512 operations and 512 functions of an interpreter, the outermost ones. The time of deeper ones is in
    /// a frame `[deeper]`.
    pub fn stacks(&self, metric: StackMetric) -> FoldedStacks<'_> {
        FoldedStacks { events: self, metric, with_locations: false }
    }

    /// Returns whether frames of [`stacks`](Events::stacks) have source locations: arguments of spans, call stacks, or functions of
    /// an interpreter, whose names contain them.
    pub fn has_locations(&self) -> bool {
        let has_location = |event: Event<'_>| {
            event.is_python_function() || event.exact_arg("location").is_some() || event.stack().next().is_some()
        };
        self.iter().filter(Event::is_slice).any(has_location)
    }

    /// Writes the folded stacks of all operations to a file; torch's `export_stacks`.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn export_stacks(&self, path: impl AsRef<Path>, metric: StackMetric) -> Result<(), Error> {
        self.stacks(metric).save(path)
    }
}

impl FoldedStacks<'_> {
    /// Shows spans as `name_(file:line)` where the trace has their locations. Default: false.
    pub fn with_locations(self, on: bool) -> Self {
        FoldedStacks { with_locations: on, ..self }
    }

    /// Writes the lines in alphabetical order; times are rounded to microseconds, and stacks that round to 0 are omitted.
    ///
    /// # Errors
    /// If `out` fails.
    pub fn write(&self, mut out: impl Write) -> io::Result<()> {
        for (stack, ns) in self.fold_stacks() {
            let micros = ns.saturating_add(500) / 1000;
            if micros > 0 {
                writeln!(out, "{stack} {micros}")?;
            }
        }
        out.flush()
    }

    /// Writes the lines to a file, compressed if its name ends with `.gz`; on failure, the previous file remains.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<(), Error> {
        file::save(path.as_ref(), GZIP_LEVEL, &mut |out| self.write(BufWriter::new(out)))
    }

    /// Returns all stacks with their nanoseconds, in alphabetical order.
    fn fold_stacks(&self) -> Vec<(String, i64)> {
        let nesting = Nesting::new(self.events);
        let forest = Forest::new(self.events, &nesting).merge_same_named_only_children(self.events);
        let times = match self.metric {
            StackMetric::SelfHost => forest.self_ns(),
            StackMetric::SelfDevice => device_ns(self.events, &nesting, &forest),
        };
        let stacks = CallStacks::new(self.events, &forest);
        let outer_ops = forest.outer_nodes(MAX_FRAMES);
        let outer_frames = stacks.interpreter_frames.outer_nodes(MAX_FRAMES);
        let mut shown = HashMap::<(usize, Option<usize>, bool), i64>::default();
        for (node, ns) in times.into_iter().enumerate().filter(|(_, ns)| *ns > 0) {
            let frame = stacks.frame_around(node);
            let outer = |nodes: &[u32], node| nodes.get(node).map_or(node, |node| *node as usize);
            let (shown_op, shown_frame) = (outer(&outer_ops, node), frame.map(|frame| outer(&outer_frames, frame)));
            let is_cut = shown_op != node || shown_frame != frame;
            let time = shown.entry((shown_op, shown_frame, is_cut)).or_default();
            *time = time.saturating_add(ns);
        }
        let mut lines = HashMap::<String, i64>::default();
        for ((op, frame, is_cut), ns) in shown {
            let frames: Vec<_> = stacks.stack_of(op, frame, self.with_locations).collect();
            let mut line = String::new();
            for frame in frames.iter().rev().map(String::as_str).chain(is_cut.then_some(DEEPER)) {
                if !line.is_empty() {
                    line.push(';');
                }
                let is_separator = |c: char| c == ';' || c.is_whitespace() || is_unprintable(c);
                line.extend(frame.chars().map(|c| if is_separator(c) { '_' } else { c }));
            }
            let time = lines.entry(line).or_default();
            *time = time.saturating_add(ns);
        }
        let mut lines: Vec<_> = lines.into_iter().collect();
        sort_few(&mut lines);
        lines
    }
}

/// The same level as for traces.
const GZIP_LEVEL: u32 = 1;

/// Stacks have at most so many operations, and as many functions of an interpreter.
const MAX_FRAMES: u32 = 512;

/// The innermost frame of a stack that is deeper.
const DEEPER: &str = "[deeper]";

/// Returns the time of the work that each node itself launched.
fn device_ns(events: &Events, nesting: &Nesting, forest: &Forest) -> Vec<i64> {
    let attribution = Attribution::new(events, nesting);
    let mut times = vec![0i64; forest.nodes.len()];
    for work in events.iter().filter(Event::is_device_work) {
        let node = attribution.op(work).and_then(|op| forest.node_of(op.index()));
        if let Some(time) = node.and_then(|node| times.get_mut(node)) {
            *time = time.saturating_add(i64::try_from(work.duration_ns()).unwrap_or(i64::MAX));
        }
    }
    times
}

/// The spans and frames around the operations of a forest.
#[derive(Debug)]
pub(super) struct CallStacks<'a> {
    events: &'a Events,
    ops: &'a Forest,
    interpreter_frames: Forest,
    /// The innermost frame around each operation.
    enclosing_frame: Vec<Option<usize>>,
}

impl<'a> CallStacks<'a> {
    pub(super) fn new(events: &'a Events, ops: &'a Forest) -> CallStacks<'a> {
        let frames = Forest::new(events, &Nesting::from_selected(events, |event| event.is_python_function()));
        let mut sweep = frames.sweep(events);
        let innermost = |node| sweep.innermost_node(&ops.node_event(events, node)?);
        let around = (0..ops.nodes.len()).map(innermost).collect();
        CallStacks { events, ops, interpreter_frames: frames, enclosing_frame: around }
    }

    /// Returns the innermost interpreter frame around an operation.
    fn frame_around(&self, node: usize) -> Option<usize> {
        self.enclosing_frame.get(node).copied().flatten()
    }

    /// Returns an operation and its callers, innermost first; `frame` is the innermost interpreter frame.
    fn stack_of(&self, node: usize, frame: Option<usize>, with_locations: bool) -> impl Iterator<Item = String> {
        let text = move |event: Event<'_>| {
            let location = event.exact_arg("location").and_then(values::as_text).filter(|_| with_locations);
            location.map_or_else(|| event.name().to_owned(), |location| format!("{} ({location})", event.name()))
        };
        let mut spans = self.ops.self_and_ancestors(self.events, Some(node)).peekable();
        let mut frames = self.interpreter_frames.self_and_ancestors(self.events, frame).peekable();
        let op = spans.peek().copied();
        let stack = std::iter::from_fn(move || {
            let take_frame = match (spans.peek(), frames.peek()) {
                (Some(span), Some(frame)) => frame.start() > span.start(),
                (span, _) => span.is_none(),
            };
            if take_frame { frames.next() } else { spans.next() }
        });
        stack.map(text).chain(op.into_iter().flat_map(|op| op.stack()).map(str::to_owned))
    }

    /// Returns an operation's callers: its own source location if known, then the spans and frames around it.
    pub(super) fn describe_callers(&self, node: usize, most: usize) -> Vec<String> {
        let own =
            self.ops.node_event(self.events, node).and_then(|op| op.exact_arg("location")).and_then(values::as_text);
        let own = own.map(str::to_owned);
        own.into_iter().chain(self.stack_of(node, self.frame_around(node), true).skip(1)).take(most).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::activity::{ActivityType, ArgValue, NO_ARGS};
    use crate::analysis::sample::SampleTrace;

    fn folded(stacks: FoldedStacks<'_>) -> String {
        let mut text = Vec::new();
        stacks.write(&mut text).unwrap();
        String::from_utf8(text).unwrap()
    }

    #[test]
    fn torch_metric_names_parse() {
        for (name, metric) in [
            ("self_cpu_time_total", StackMetric::SelfHost),
            ("self_cuda_time_total", StackMetric::SelfDevice),
            ("self_device_time_total", StackMetric::SelfDevice),
        ] {
            assert_eq!(name.parse::<StackMetric>().unwrap(), metric);
        }
        assert_eq!("cuda_time_total".parse::<StackMetric>().unwrap_err().kind(), ErrorKind::Config);
    }

    #[test]
    fn equal_stacks_fold_into_one_line() {
        let location = [("location", ArgValue::Str("src/a b.rs:7"))];
        let sample = SampleTrace::default()
            .op("train; all", 0, 100)
            .op_with("mm", 10, 30, &location)
            .op_with("mm", 40, 50, &location)
            .op("short", 60, 60)
            .kernel("gemm", 100, 130, 2)
            .kernel("gemm", 130, 137, 3);
        let events = sample.into_events();
        assert_eq!(folded(events.stacks(StackMetric::SelfHost)), "train__all 70\ntrain__all;mm 30\n");
        let device = events.stacks(StackMetric::SelfDevice).with_locations(true);
        assert_eq!(folded(device), "train__all;mm_(src/a_b.rs:7) 37\n");
    }

    #[test]
    fn frames_and_spans_interleave_by_start() {
        let python =
            |sample: SampleTrace, name, time| sample.host_slice(ActivityType::PythonFunction, name, 1, time, NO_ARGS);
        let sample = python(SampleTrace::default(), "main", (0, 100)).op("step", 1, 99);
        let sample = python(python(sample, "forward", (2, 50)), "after", (60, 70)).op("mm", 3, 40).op("add", 80, 90);
        let call = [("Call stack", ArgValue::Str("leaf; root"))];
        let events = sample.op_with("called", 200, 300, &call).into_events();
        let expected = "main;step 51\nmain;step;add 10\nmain;step;forward;mm 37\nroot;leaf;called 100\n";
        assert_eq!(folded(events.stacks(StackMetric::SelfHost)), expected);
        let averages = events.averages().by(crate::analysis::GroupBy::Stack(2)).compute();
        let keys = |name| averages.get(crate::analysis::Section::Ops, name).unwrap().keys()[0].clone();
        assert_eq!([keys("mm"), keys("add"), keys("called")], ["forward\nstep", "step\nmain", "leaf\nroot"]);
    }

    #[test]
    fn stack_deeper_than_the_limit_is_cut() {
        let depth = u64::from(MAX_FRAMES) + 100;
        let sample =
            (0..depth).fold(SampleTrace::default(), |sample, at| sample.op(&format!("op{at}"), at, 2 * depth - at));
        let text = folded(sample.into_events().stacks(StackMetric::SelfHost));
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines.len(), MAX_FRAMES as usize + 1);
        let cut: Vec<_> = lines.iter().filter(|line| line.contains("[deeper]")).collect();
        let [cut] = cut.as_slice() else { panic!("{cut:?}") };
        assert!(cut.ends_with(";op511;[deeper] 200"), "{cut:.100}");
        assert_eq!(
            lines.iter().map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap()).sum::<u64>(),
            2 * depth
        );
    }

    #[test]
    fn save_writes_the_folded_lines() {
        let folder = tempfile::tempdir().unwrap();
        let events = SampleTrace::default().op("a", 0, 2).into_events();
        let path = folder.path().join("stacks.folded");
        events.export_stacks(&path, StackMetric::SelfHost).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "a 2\n");
        let error = events.export_stacks(folder.path().join("none/stacks"), StackMetric::SelfHost).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Io);
    }
}
