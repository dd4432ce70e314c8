//! The critical path in a summary: text, JSON, and the finding if one cause dominates it.

use super::{PathFigures, PathKind, PathNameFigures, PathPlace, PathStretch};
use crate::analysis::summary::Summary;
use crate::analysis::summary::findings::{Finding, GainClaim, MAX_NAME_CHARS, format_ns, percent_of};
use crate::analysis::summary::json::{ns_to_micros, rounded_percent};
use crate::text::{count_with_noun, filled_lines, text_width, truncate_name};
use serde_json::{Value, json};

/// The number of names in the text.
const TEXT_NAMES: usize = 5;
/// Smaller shares would print as 0.0 %.
const MIN_PERCENT: f64 = 0.05;
/// The number of names in JSON.
const JSON_NAMES: usize = 20;

/// A path as a heading and lines of text.
pub(in crate::analysis::summary) struct PathText {
    pub(in crate::analysis::summary) heading: String,
    pub(in crate::analysis::summary) lines: Vec<String>,
}

impl PathText {
    /// Returns the text of a path: shares by kind, and the names with the most time. `subject` names the window, such as "the trace".
    pub(in crate::analysis::summary) fn new(subject: &str, path: &PathFigures, width: usize) -> PathText {
        let share = |ns| percent_of(ns, path.window_ns);
        let [device, host, wait] =
            [PathPlace::Device, PathPlace::Host, PathPlace::Wait].map(|place| path.place_percent(place));
        let subject = format!("Critical path of {subject}, {}", format_ns(path.window_ns));
        let shares = format!("host {host:.0} %, device {device:.0} %, waits {wait:.0} %");
        let heading = format!("{subject}: {shares}");
        let (heading, shares) = if text_width(&heading) <= width { (heading, None) } else { (subject, Some(shares)) };
        let kinds = path.kinds.iter().filter(|row| share(row.ns) >= MIN_PERCENT);
        let kinds: Vec<_> = kinds.map(|row| format!("{} {:.1} %", row.kind, share(row.ns))).collect();
        let mut lines: Vec<_> = shares.into_iter().chain(filled_lines(&kinds, "   ", width - 2)).collect();
        for row in path.names.iter().take(TEXT_NAMES) {
            let start = format!("{:5.1} %  {:>10}  ", share(row.ns), format_ns(row.ns));
            let name_width = (width - 2).saturating_sub(text_width(&start));
            lines.push(start + &truncate_name(&row.name, name_width));
        }
        PathText { heading, lines }
    }
}

/// Returns the paths of the trace and of its longest step.
pub(in crate::analysis::summary) fn paths_json(summary: &Summary) -> Value {
    let Some(path) = &summary.critical_path else { return Value::Null };
    let mut object = figures_json(path);
    let step = summary.longest_step_path.as_ref().map(|step| {
        let mut object = figures_json(&step.figures);
        insert_member(&mut object, "n", json!(step.number));
        object
    });
    insert_member(&mut object, "longest_step", json!(step));
    object
}

fn insert_member(object: &mut Value, key: &str, value: Value) {
    object.as_object_mut().and_then(|members| members.insert(key.to_owned(), value));
}

pub(super) fn figures_json(path: &PathFigures) -> Value {
    let place = |place| ns_to_micros(path.place_ns(place));
    let share = |ns| rounded_percent(ns, path.window_ns);
    json!({
        "window": ns_to_micros(path.window_ns),
        "host": place(PathPlace::Host),
        "device": place(PathPlace::Device),
        "wait": place(PathPlace::Wait),
        "kinds": path.kinds.iter().map(|row| {
            json!({ "kind": row.kind.as_str(), "sum": ns_to_micros(row.ns), "pct": share(row.ns), "pieces": row.pieces })
        }).collect::<Vec<_>>(),
        "names": path.names.iter().take(JSON_NAMES).map(|row| {
            json!({ "name": row.name, "kind": row.kind.as_str(), "sum": ns_to_micros(row.ns), "pct": share(row.ns), "pieces": row.pieces })
        }).collect::<Vec<_>>(),
        "longest_outside": path.longest_outside.iter().map(|row| {
            json!({ "start": ns_to_micros(row.start.since(path.start)), "dur": ns_to_micros(row.ns), "in": row.around, "after": row.before, "before": row.after })
        }).collect::<Vec<_>>(),
    })
}

/// What can dominate a path.
struct PathCause<'s> {
    what: &'static str,
    ns: u64,
    /// The name that takes most of it.
    main: Option<&'s PathNameFigures>,
    advice: &'static str,
    /// The maximum gain, in nanoseconds.
    gain_ns: u64,
    claim: GainClaim,
}

impl<'s> PathCause<'s> {
    /// Returns the cause with the largest share of the path; `None` if there is no advice for it.
    fn find_largest(path: &'s PathFigures, idle_ns: u64) -> Option<PathCause<'s>> {
        let host = path.place_ns(PathPlace::Host);
        let largest = path.kinds.iter().filter(|row| row.kind.place() != PathPlace::Host).max_by_key(|row| row.ns);
        let Some(largest) = largest.filter(|row| row.ns > host) else {
            let advice = "Shorten or fuse these operations, or launch a graph: the device is not the bottleneck.";
            let main = path.names_in(PathPlace::Host).next();
            // The devices' work still takes its time.
            let (gain_ns, claim) = (host.min(idle_ns), GainClaim::Idle);
            return Some(PathCause { what: "host work", ns: host, main, advice, gain_ns, claim });
        };
        let main = path.names.iter().find(|row| row.kind == largest.kind);
        let advice = match largest.kind {
            PathKind::Compute => "Only faster or fewer kernels shorten the trace; host work does not matter.",
            PathKind::Communication => "Start communication earlier, so that it overlaps with computation.",
            PathKind::Copy => "Copy in a second stream, ahead of the kernels that need the data.",
            PathKind::LaunchDelay => {
                "Kernels start late after their launch: launch a graph, or fewer and larger kernels."
            }
            PathKind::KernelGap => "A stream pauses between kernels: launch a graph, or fewer and larger kernels.",
            PathKind::StreamWait => {
                "Remove dependencies between streams, or raise the priority of the stream that is waited for."
            }
            PathKind::DeviceWait => "The host resumes late after synchronizing: synchronize less often.",
            PathKind::ThreadWait => "Threads wait for each other: run the work on one thread, or start it earlier.",
            _ => return None,
        };
        let gain_ns = main.map_or(largest.ns, |main| main.ns);
        let claim = match largest.kind {
            PathKind::Communication => GainClaim::Communication,
            PathKind::Copy => GainClaim::Copies,
            PathKind::Compute | PathKind::ThreadWait => GainClaim::Other,
            _ => GainClaim::Idle,
        };
        Some(PathCause { what: largest.kind.description(), ns: largest.ns, main, advice, gain_ns, claim })
    }
}

/// One cause dominates the critical path.
pub(in crate::analysis::summary) fn find_dominated_path(summary: &Summary) -> Option<Finding> {
    const DOMINATING_PERCENT: f64 = 50.0;
    /// Shorter paths are too small to judge.
    const MIN_PIECES: u64 = 20;

    let (path, devices) = (summary.critical_path.as_ref()?, summary.occupation.as_ref()?);
    let cause = PathCause::find_largest(path, devices.idle_ns())?;
    let share = percent_of(cause.ns, path.window_ns);
    if share < DOMINATING_PERCENT || path.kinds.iter().map(|row| row.pieces).sum::<u64>() < MIN_PIECES {
        return None;
    }
    let mut title = format!("{share:.0} % of the critical path is {}: {}", cause.what, format_ns(cause.ns));
    let outside = path.kind_ns(PathKind::OutsideOperations);
    if cause.claim == GainClaim::Idle && cause.ns == path.place_ns(PathPlace::Host) && outside > cause.ns / 2 {
        title += &format!(", of it {} outside of operations.", format_ns(outside));
        let evidence = format_outside(path, outside);
        return Some(Finding { title, evidence, gain_ns: cause.gain_ns, claim: cause.claim });
    }
    let main = cause.main.map(|main| {
        let (name, share) = (truncate_name(&main.name, MAX_NAME_CHARS), percent_of(main.ns, path.window_ns));
        let pieces = count_with_noun(main.pieces, "piece");
        format!("`{name}` takes {} of it ({share:.0} % of the path, {pieces}). ", format_ns(main.ns))
    });
    let evidence = main.unwrap_or_default() + cause.advice;
    Some(Finding { title: title + ".", evidence, gain_ns: cause.gain_ns, claim: cause.claim })
}

/// Returns where a thread is outside of operations, and what is around that.
fn format_outside(path: &PathFigures, outside_ns: u64) -> String {
    let name = |name: &Option<String>| name.as_ref().map(|name| format!("`{}`", truncate_name(name, MAX_NAME_CHARS)));
    let stretch = |stretch: &PathStretch| {
        let place = match (name(&stretch.before), name(&stretch.after)) {
            (Some(before), Some(after)) => format!(" between {before} and {after}"),
            (Some(before), None) => format!(" after {before}"),
            (None, Some(after)) => format!(" before {after}"),
            (None, None) => String::new(),
        };
        let around = name(&stretch.around).map_or_else(String::new, |around| format!(" in {around}"));
        format_ns(stretch.ns) + &place + &around
    };
    let stretches: Vec<_> = path.longest_outside.iter().map(stretch).collect();
    format!(
        "{:.0} % of the path has no operation that says what the host does. The longest stretches: {}. Add spans there.",
        percent_of(outside_ns, path.window_ns),
        stretches.join("; ")
    )
}
