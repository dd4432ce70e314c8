//! The values of figures.

use super::context::CheckContext;
use super::figure::{Figure, Statistic};
use super::nearest::{nearest_names, printable};
use super::pattern::NamePattern;
use super::quantity::Quantity;
use super::scope::{CountedItem, FoundSpans, NameMatcher, SpanMembers, Spot};
use super::{Rule, RuleScope};
use crate::Loss;
use crate::activity::ActivityType;
use crate::analysis::events::{Event, Note};
use crate::analysis::percentile::percentile;
use crate::analysis::summary::{CallRole, Intervals, PathPiece, WorkClass, memory_events, percent_of, recorded_losses};
use crate::hash::{HashMap, HashSet};
use crate::sorting::sort_few_by_key;
use crate::text::count_with_noun;
use crate::time::Timestamp;

/// The value of a figure in the trace, in all spans of a name, or in one of them.
pub(super) struct Sample {
    pub(super) value: Quantity,
    /// The span.
    pub(super) spot: Option<Spot>,
}

/// The values of a figure, and the events that they are made of.
pub(super) struct Measurement {
    pub(super) samples: Vec<Sample>,
    pub(super) spots: Vec<Spot>,
    /// More about the value.
    pub(super) detail: Option<String>,
}

/// Measures the figure of a rule; an error says what the rule does not match.
pub(super) fn measure_rule(rule: &Rule, context: &CheckContext<'_>) -> Result<Measurement, String> {
    match rule.figure {
        Figure::Synchronizations => measure_items(rule, context, synchronizations(context)?),
        Figure::Launches => measure_items(rule, context, launches(context)?),
        Figure::Calls => {
            require_calls(context)?;
            measure_items(rule, context, select_named(rule, context, is_call, "call")?)
        }
        Figure::Kernels | Figure::Copies | Figure::Fills => {
            require_work(context)?;
            let noun = match rule.figure {
                Figure::Copies => "copy",
                Figure::Fills => "fill",
                _ => "kernel",
            };
            let work = select_named(rule, context, |event| is_work_of(rule.figure, event), noun)?;
            measure_items(rule, context, launched_at(context, work))
        }
        Figure::KernelShare => measure_kernel_share(rule, context),
        Figure::UnlinkedWork => {
            require_work(context)?;
            let unlinked = context.devices().work.iter().filter(|work| work.launch.is_none());
            measure_items(rule, context, unlinked.map(|work| CountedItem::of(&work.event)).collect())
        }
        Figure::Spans => measure_spans(rule, context),
        Figure::Duration(statistic) => measure_durations(rule, context, statistic),
        Figure::Busy | Figure::Idle | Figure::LongestGap | Figure::ExposedCommunication => measure_times(rule, context),
        Figure::PathKind(kind) => measure_path(rule, context, |piece| piece.kind == kind),
        Figure::PathPlace(place) => measure_path(rule, context, |piece| piece.kind.place() == place),
        Figure::DeviceMemoryPeak => measure_memory(context, |device| device >= 0, "devices"),
        Figure::HostMemoryPeak => measure_memory(context, |device| device < 0, "the host"),
        Figure::Losses => {
            let losses = recorded_losses(context.events);
            let losses = losses.ok_or("the trace's header has no list of losses; record it with tracing-kineto")?;
            let known = Loss::ALL.iter().filter(|loss| loss.is_loss()).map(|loss| loss.as_str());
            let losses: Vec<_> = losses.iter().map(|(cause, count)| (cause.as_str(), *count)).collect();
            measure_causes(rule, &losses, known, None)
        }
        Figure::Notes => {
            let notes: Vec<_> = context.events.notes().map(|(note, count)| (note.as_str(), count)).collect();
            measure_causes(rule, &notes, Note::ALL.iter().map(|note| note.as_str()), Some(Note::AsyncTrack.as_str()))
        }
    }
}

fn is_call(event: &Event<'_>) -> bool {
    event.is_slice() && event.is_call()
}

fn is_work_of(figure: Figure, event: &Event<'_>) -> bool {
    use ActivityType as T;
    event.is_slice()
        && match figure {
            Figure::Copies => event.kind() == Some(T::GpuMemcpy),
            Figure::Fills => event.kind() == Some(T::GpuMemset),
            _ => matches!(event.kind(), Some(T::ConcurrentKernel | T::MtiaCcpEvents)),
        }
}

/// Without calls, a rule on calls would hold for any trace.
fn require_calls(context: &CheckContext<'_>) -> Result<(), String> {
    let has_calls = context.events.iter().any(|event| is_call(&event));
    has_calls.then_some(()).ok_or_else(|| {
        "the trace has no call of a runtime or driver; record a device's runtime, or set `optional`".to_owned()
    })
}

fn require_work(context: &CheckContext<'_>) -> Result<(), String> {
    let has_work = !context.devices().work.is_empty();
    has_work.then_some(()).ok_or_else(|| "the trace has no device work; record a device, or set `optional`".to_owned())
}

/// Returns the events of a kind whose names the rule selects. None are an error, unless the rule forbids them.
fn select_named(
    rule: &Rule,
    context: &CheckContext<'_>,
    is_meant: impl Fn(&Event<'_>) -> bool,
    noun: &str,
) -> Result<Vec<CountedItem>, String> {
    let events = || context.events.iter().filter(&is_meant);
    let pattern = rule.pattern_or_all();
    let mut matcher = NameMatcher::new(&pattern);
    let found: Vec<_> = events().filter(|event| matcher.matches(event)).map(|event| CountedItem::of(&event)).collect();
    if found.is_empty() && !rule.forbids() {
        let nearest = nearest_names(pattern.as_str(), events().map(|event| event.name()));
        return Err(format!("no {noun} named `{}`; nearest: {nearest}", printable(pattern.as_str())));
    }
    Ok(found)
}

/// Sets the time and the track of work to those of its launch.
fn launched_at(context: &CheckContext<'_>, mut items: Vec<CountedItem>) -> Vec<CountedItem> {
    let launches = context.devices().work.iter().filter_map(|work| Some((work.event.index(), work.launch?)));
    let launches: HashMap<usize, Event<'_>> = launches.collect();
    for item in &mut items {
        if let Some(launch) = launches.get(&item.index) {
            (item.at, item.host_track) = (launch.start(), Some(launch.track_index()));
        }
    }
    items
}

/// Returns the calls that wait for a device. A driver's call inside a runtime's is the same wait.
fn synchronizations(context: &CheckContext<'_>) -> Result<Vec<CountedItem>, String> {
    require_calls(context)?;
    let mut waits = HashMap::default();
    let calls = context.events.iter().filter(is_call);
    let found = calls.filter(|call| *waits.entry(call.name_id()).or_insert_with(|| CallRole::is_wait(call.name())));
    Ok(outermost_calls(context, found))
}

/// Returns the calls that put work on a device: by the work, or launches by their name if that was not recorded.
fn launches(context: &CheckContext<'_>) -> Result<Vec<CountedItem>, String> {
    require_calls(context)?;
    let launched = context.devices().work.iter().filter_map(|work| work.launch);
    let launched: HashSet<usize> = launched.map(|launch| launch.index()).collect();
    // A function of the host that a stream runs is not device work.
    let has_name = |call: &Event<'_>| call.name().contains("Launch") && !call.name().contains("LaunchHostFunc");
    let is_launch = |call: &Event<'_>| launched.contains(&call.index()) || has_name(call);
    Ok(outermost_calls(context, context.events.iter().filter(is_call).filter(is_launch)))
}

/// Leaves out calls directly inside another one of the same set.
fn outermost_calls<'e>(context: &CheckContext<'e>, calls: impl Iterator<Item = Event<'e>>) -> Vec<CountedItem> {
    let calls: Vec<_> = calls.collect();
    let all: HashSet<usize> = calls.iter().map(Event::index).collect();
    let is_outermost =
        |call: &&Event<'e>| context.tree().parent(**call).is_none_or(|around| !all.contains(&around.index()));
    calls.iter().filter(is_outermost).map(CountedItem::of).collect()
}

/// Counts items in the rule's scope.
fn measure_items(rule: &Rule, context: &CheckContext<'_>, mut items: Vec<CountedItem>) -> Result<Measurement, String> {
    let members = scope_members(rule, context)?;
    let is_by_launch = matches!(rule.figure, Figure::Kernels | Figure::Copies | Figure::Fills);
    if let Some(members) = &members {
        if is_by_launch {
            require_spans_of_work(rule, context, members, &items)?;
        }
        members.retain_members(context, &mut items);
    }
    let totals = scope_totals(rule, context, members.as_ref(), &items).into_iter();
    let samples = totals.map(|(count, spot)| Sample { value: Quantity::Count(count), spot }).collect();
    let detail = unlinked_detail(context).filter(|_| is_by_launch && members.is_some());
    Ok(Measurement { samples, spots: items.iter().map(|item| item.spot).collect(), detail })
}

/// Returns the spans of the rule's scope; `None` for the trace.
fn scope_members(rule: &Rule, context: &CheckContext<'_>) -> Result<Option<SpanMembers>, String> {
    match &rule.scope {
        RuleScope::Trace => Ok(None),
        RuleScope::Within(span) | RuleScope::Each(span) => SpanMembers::new(context, span).map(Some),
    }
}

/// Returns the sum of the weights of items that lie in the scope, or those of each span.
fn scope_totals(
    rule: &Rule,
    context: &CheckContext<'_>,
    members: Option<&SpanMembers>,
    items: &[CountedItem],
) -> Vec<(u64, Option<Spot>)> {
    match (members, &rule.scope) {
        (Some(members), RuleScope::Each(_)) => {
            let spans = members.found.spans.iter().map(|span| Some(*span));
            members.totals(context, items).into_iter().zip(spans).collect()
        }
        _ => vec![(items.iter().map(|item| item.weight).fold(0, u64::saturating_add), None)],
    }
}

/// Returns an error if the rule selects work, but the span of none of it is known: then the rule would hold for any span.
fn require_spans_of_work(
    rule: &Rule,
    context: &CheckContext<'_>,
    members: &SpanMembers,
    items: &[CountedItem],
) -> Result<(), String> {
    if items.is_empty() || items.iter().any(|item| members.knows_span(context, item)) {
        return Ok(());
    }
    let pieces = count_with_noun(items.len() as u64, "piece");
    Err(format!(
        "{pieces} of work named `{}` ran, but without a known launch, so its span is unknown; record the launches, or set `optional`",
        printable(rule.pattern_or_all().as_str())
    ))
}

/// Says that work whose span is unknown is not counted.
fn unlinked_detail(context: &CheckContext<'_>) -> Option<String> {
    let unlinked = context.devices().work.iter().filter(|work| work.launch.is_none()).count();
    let count = count_with_noun(unlinked as u64, "piece");
    (unlinked > 0).then(|| format!("{count} of device work without a known launch, whose span may be unknown"))
}

fn measure_kernel_share(rule: &Rule, context: &CheckContext<'_>) -> Result<Measurement, String> {
    require_work(context)?;
    let weighted = |mut items: Vec<CountedItem>| {
        items.iter_mut().for_each(|item| item.weight = item.spot.duration_ns());
        launched_at(context, items)
    };
    let is_kernel = |event: &Event<'_>| is_work_of(rule.figure, event);
    let mut all = weighted(context.events.iter().filter(is_kernel).map(|event| CountedItem::of(&event)).collect());
    let mut own = weighted(select_named(rule, context, is_kernel, "kernel")?);
    let members = scope_members(rule, context)?;
    if let Some(members) = &members {
        members.retain_members(context, &mut all);
        members.retain_members(context, &mut own);
    }
    let totals = |items: &[CountedItem]| scope_totals(rule, context, members.as_ref(), items).into_iter();
    let share =
        |((own, spot), (all, _))| (all > 0).then(|| Sample { value: Quantity::Percent(percent_of(own, all)), spot });
    let samples: Vec<_> = totals(&own).zip(totals(&all)).filter_map(share).collect();
    if samples.is_empty() {
        return Err("no kernel ran there; check the scope, or set `optional`".to_owned());
    }
    Ok(Measurement { samples, spots: own.iter().map(|item| item.spot).collect(), detail: None })
}

fn measure_spans(rule: &Rule, context: &CheckContext<'_>) -> Result<Measurement, String> {
    let items = match FoundSpans::new(context.events, &rule.pattern_or_all()) {
        Ok(found) => found.items(context.events),
        // Without any span, the rule would hold for any trace.
        Err(fault) if !rule.forbids() || FoundSpans::new(context.events, &NamePattern::from("*")).is_err() => {
            return Err(fault);
        }
        Err(_) => Vec::new(),
    };
    measure_items(rule, context, items)
}

fn measure_durations(rule: &Rule, context: &CheckContext<'_>, statistic: Statistic) -> Result<Measurement, String> {
    let found = FoundSpans::new(context.events, &rule.pattern_or_all())?;
    let mut items = found.items(context.events);
    if let RuleScope::Within(span) = &rule.scope {
        SpanMembers::new(context, span)?.retain_members(context, &mut items);
        if items.is_empty() {
            return Err(format!("no such span lies in a span named `{}`", printable(span.as_str())));
        }
    }
    let mut sorted: Vec<u64> = items.iter().map(|item| item.spot.duration_ns()).collect();
    sorted.sort_unstable();
    let value =
        statistic_of(&sorted, statistic).ok_or("all these spans have a duration of 0, so they have no spread")?;
    let spots = items.iter().map(|item| item.spot).collect();
    let detail = format!("of {}", count_with_noun(items.len() as u64, "span"));
    Ok(Measurement { samples: vec![Sample { value, spot: None }], spots, detail: Some(detail) })
}

/// Returns a statistic of sorted durations; `None` for the spread if the median is 0.
fn statistic_of(sorted: &[u64], statistic: Statistic) -> Option<Quantity> {
    let rank = |permille: usize| percentile(sorted, permille);
    let (first, last) = (rank(0), rank(1000));
    let total = sorted.iter().map(|ns| u128::from(*ns)).sum::<u128>();
    Some(Quantity::Nanoseconds(match statistic {
        Statistic::P50 => rank(500),
        Statistic::P90 => rank(900),
        Statistic::P95 => rank(950),
        Statistic::P99 => rank(990),
        Statistic::P999 => rank(999),
        Statistic::Max => last,
        Statistic::Min => first,
        Statistic::Mean => u64::try_from(total / sorted.len().max(1) as u128).unwrap_or(u64::MAX),
        Statistic::Total => u64::try_from(total).unwrap_or(u64::MAX),
        Statistic::Spread => {
            let median = rank(500);
            return (median > 0).then(|| Quantity::Percent(percent_of(last - first, median)));
        }
    }))
}

/// Measures times of devices during windows.
fn measure_times(rule: &Rule, context: &CheckContext<'_>) -> Result<Measurement, String> {
    require_work(context)?;
    let busy = context.busy();
    let has_communication = context.devices().work.iter().any(|work| work.class == WorkClass::Communication);
    if rule.figure == Figure::ExposedCommunication && !has_communication {
        return Err("the trace has no communication between devices; record some, or set `optional`".to_owned());
    }
    let windows = scope_windows(rule, context, busy.window(), "")?;
    let mut gaps = Vec::new();
    let mut value_of = |times: &Intervals| {
        let ns = |ns_within: &dyn Fn(Timestamp, Timestamp) -> u64| -> u64 {
            times.parts().iter().map(|(start, end)| ns_within(*start, *end)).sum()
        };
        let busy_ns = |start, end| busy.ns_within(start, end);
        let share = |part| Quantity::Percent(percent_of(part, times.total_ns()));
        match (rule.figure, times.parts()) {
            (Figure::Busy, _) => share(ns(&busy_ns)),
            (Figure::Idle, _) => Quantity::Nanoseconds(times.total_ns() - ns(&busy_ns)),
            (Figure::LongestGap, &[(start, end), ..]) => {
                let (start, end) = busy.longest_gap(start, end);
                gaps.push(Spot { event: None, start, end });
                Quantity::Nanoseconds(end.since(start))
            }
            _ => share(ns(&|start, end| context.exposed_ns(start, end))),
        }
    };
    let samples = windows.iter().map(|(times, spot)| Sample { value: value_of(times), spot: *spot }).collect();
    if rule.figure == Figure::LongestGap && rule.scope == RuleScope::Trace {
        gaps = busy.gaps().map(|(start, end)| Spot { event: None, start, end }).collect();
    }
    Ok(Measurement { samples, spots: gaps, detail: None })
}

/// Returns the times of the scope: of the trace, of all spans together or of each; an error if none takes time.
fn scope_windows(
    rule: &Rule,
    context: &CheckContext<'_>,
    trace: Option<(Timestamp, Timestamp)>,
    why: &str,
) -> Result<Vec<(Intervals, Option<Spot>)>, String> {
    let times_of = |span: &Spot| Intervals::union([(span.start, span.end.max(span.start))]);
    let mut windows: Vec<_> = match &rule.scope {
        RuleScope::Trace => vec![(Intervals::union(trace), None)],
        RuleScope::Within(span) => vec![(FoundSpans::new(context.events, span)?.union(), None)],
        RuleScope::Each(span) => {
            let spans = FoundSpans::new(context.events, span)?.spans.into_iter();
            spans.map(|span| (times_of(&span), Some(span))).collect()
        }
    };
    windows.retain(|(times, _)| times.total_ns() > 0);
    if windows.is_empty() {
        return Err(format!("the scope takes no time{why}; check it, or set `optional`"));
    }
    Ok(windows)
}

/// Measures the share of the pieces of critical paths that `is_meant` selects.
fn measure_path(
    rule: &Rule,
    context: &CheckContext<'_>,
    is_meant: impl Fn(&PathPiece<'_>) -> bool,
) -> Result<Measurement, String> {
    let range = context.events.slice_range();
    let windows = scope_windows(rule, context, Some((range.start, range.end)), ", so it has no critical path")?;
    let paths = context.paths();
    let (mut samples, mut spots) = (Vec::new(), Vec::new());
    for (times, spot) in windows {
        let mut ns = 0;
        for piece in times.parts().iter().flat_map(|(start, end)| paths.walk(*start..*end)).filter(&is_meant) {
            ns += piece.duration_ns();
            let event = piece.event.map(|event| event.index());
            spots.push(Spot { event, start: piece.start, end: piece.end });
        }
        samples.push(Sample { value: Quantity::Percent(percent_of(ns, times.total_ns())), spot });
    }
    Ok(Measurement { samples, spots, detail: None })
}

/// Measures the largest total of allocated bytes, with the event at which each device reached its own.
fn measure_memory(
    context: &CheckContext<'_>,
    is_meant: impl Fn(i64) -> bool,
    whose: &str,
) -> Result<Measurement, String> {
    let mut peaks: HashMap<(i64, i64), (u64, Event<'_>)> = HashMap::default();
    for ((kind, device), event) in memory_events(context.events) {
        if let Some(total) = event.total_allocated().filter(|_| is_meant(device)) {
            let peak = peaks.entry((kind, device)).or_insert((total, event));
            *peak = if total > peak.0 { (total, event) } else { *peak };
        }
    }
    let mut peaks: Vec<_> = peaks.into_values().collect();
    sort_few_by_key(&mut peaks, |(total, event)| (std::cmp::Reverse(*total), event.index()));
    let sample =
        |(total, event): &(u64, Event<'_>)| Sample { value: Quantity::Bytes(*total), spot: Some(Spot::of(event)) };
    if peaks.is_empty() {
        return Err(format!("the trace has no totals of the memory of {whose}; record memory, or set `optional`"));
    }
    Ok(Measurement { samples: peaks.iter().map(sample).collect(), spots: Vec::new(), detail: None })
}

/// Adds up the counts of the causes that a rule selects; without a pattern all but `regular`.
///
/// A pattern must match a known cause, or one of the trace: a newer version may have written it.
fn measure_causes<'c>(
    rule: &Rule,
    causes: &[(&'c str, u64)],
    known: impl Iterator<Item = &'c str>,
    regular: Option<&str>,
) -> Result<Measurement, String> {
    if let Some(pattern) = &rule.pattern {
        let names: Vec<_> = known.chain(causes.iter().map(|(cause, _)| *cause)).collect();
        if !names.iter().any(|name| pattern.matches(name)) {
            let nearest = nearest_names(pattern.as_str(), names);
            return Err(format!("no cause named `{}`; nearest: {nearest}", printable(pattern.as_str())));
        }
    }
    let is_meant = |cause: &str| match &rule.pattern {
        Some(pattern) => pattern.matches(cause),
        None => Some(cause) != regular,
    };
    let found: Vec<_> = causes.iter().filter(|(cause, _)| is_meant(cause)).collect();
    let texts: Vec<_> = found.iter().map(|(cause, count)| format!("{} ({count})", printable(cause))).collect();
    let value = Quantity::Count(found.iter().map(|(_, count)| *count).fold(0, u64::saturating_add));
    let detail = (!texts.is_empty()).then(|| texts.join(", "));
    Ok(Measurement { samples: vec![Sample { value, spot: None }], spots: Vec::new(), detail })
}
