//! Compares the values of a figure with the limits of a rule.

use super::context::CheckContext;
use super::figure::{Figure, Statistic};
use super::measure::{Measurement, Sample, measure_rule};
use super::nearest::printable;
use super::quantity::Quantity;
use super::report::{RuleOutcome, RulePlace, RuleStatus};
use super::scope::Spot;
use super::{Rule, RuleScope};
use crate::sorting::{sort_few_by, sort_few_by_key};
use std::cmp::Ordering;

/// The number of places in an outcome.
const PLACES: usize = 3;

/// The limit that a value breaks.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Limit {
    Max,
    Min,
}

impl Limit {
    /// Orders values by how far they are beyond the limit, the furthest first.
    fn order(self, a: Quantity, b: Quantity) -> Ordering {
        let order = a.compare(b).unwrap_or(Ordering::Equal);
        if self == Limit::Max { order.reverse() } else { order }
    }
}

pub(super) fn evaluate_rule(rule: &Rule, context: &CheckContext<'_>) -> RuleOutcome {
    let outcome = |status, message| RuleOutcome {
        rule: rule.clone(),
        status,
        found: None,
        measured: 0,
        broken: 0,
        message,
        places: Vec::new(),
    };
    if let Some(fault) = rule.fault() {
        return outcome(RuleStatus::Invalid, Some(fault.message));
    }
    match measure_rule(rule, context) {
        Ok(measured) => RuleOutcome { message: measured.detail.clone(), ..compare_values(rule, context, &measured) },
        Err(why) if rule.optional => outcome(RuleStatus::Skipped, Some(why)),
        Err(why) => outcome(RuleStatus::Unmatched, Some(why)),
    }
}

fn compare_values(rule: &Rule, context: &CheckContext<'_>, measured: &Measurement) -> RuleOutcome {
    // A value that does not compare breaks the limit.
    let breaks_max = |value: Quantity| rule.max.is_some_and(|max| value.compare(max).is_none_or(Ordering::is_gt));
    let breaks_min = |value: Quantity| rule.min.is_some_and(|min| value.compare(min).is_none_or(Ordering::is_lt));
    let samples = &measured.samples;
    let broken: Vec<&Sample> =
        samples.iter().filter(|sample| breaks_max(sample.value) || breaks_min(sample.value)).collect();
    let limit = match broken.iter().any(|sample| breaks_max(sample.value)) {
        false if broken.is_empty() && rule.max.is_some() => Limit::Max,
        false => Limit::Min,
        true => Limit::Max,
    };
    let worst = if broken.is_empty() { samples.iter().collect() } else { broken.clone() };
    let found = worst.iter().map(|sample| sample.value).min_by(|a, b| limit.order(*a, *b));
    let places =
        if broken.is_empty() { Vec::new() } else { worst_places(rule, context, measured, broken.clone(), limit) };
    RuleOutcome {
        rule: rule.clone(),
        status: if broken.is_empty() { RuleStatus::Holds } else { RuleStatus::Fails },
        found,
        measured: samples.len(),
        broken: broken.len(),
        message: None,
        places,
    }
}

/// Returns the worst places: spans with their values; if nothing may occur, or there are no spans, the longest events.
fn worst_places(
    rule: &Rule,
    context: &CheckContext<'_>,
    measured: &Measurement,
    mut broken: Vec<&Sample>,
    limit: Limit,
) -> Vec<RulePlace> {
    let is_each = matches!(rule.scope, RuleScope::Each(_)) || measured.spots.is_empty();
    let shows_events =
        rule.figure == Figure::LongestGap || (limit == Limit::Max && rule.forbids() && !measured.spots.is_empty());
    if is_each && !shows_events {
        sort_few_by(&mut broken, |a, b| limit.order(a.value, b.value));
        let spots = broken.iter().filter_map(|sample| Some((sample.spot?, sample.value)));
        return spots.take(PLACES).map(|(spot, value)| place(rule, context, spot, Some(value))).collect();
    }
    let is_duration = matches!(rule.figure, Figure::Duration(statistic) if statistic != Statistic::Total);
    if limit == Limit::Min && !is_duration {
        return Vec::new();
    }
    let mut spots = measured.spots.clone();
    sort_few_by_key(&mut spots, Spot::duration_ns);
    if limit == Limit::Max {
        spots.reverse();
    }
    spots.into_iter().take(PLACES).map(|spot| place(rule, context, spot, None)).collect()
}

fn place(rule: &Rule, context: &CheckContext<'_>, spot: Spot, value: Option<Quantity>) -> RulePlace {
    let event = spot.event.and_then(|event| context.events.get(event));
    let track = event.map(|event| event.track());
    let track = track.map(|track| match track.name.trim() {
        "" => format!("{}/{}", track.process, track.thread),
        name => format!("{}/{}", track.process, printable(name)),
    });
    let unnamed = if rule.figure == Figure::LongestGap { "no device work" } else { "nothing recorded" };
    RulePlace {
        name: event.map_or(unnamed, |event| event.name()).to_owned(),
        start: spot.start,
        offset_ns: spot.start.since(context.events.window().0.min(spot.start)),
        duration_ns: spot.duration_ns(),
        track: track.unwrap_or_default(),
        value,
    }
}
