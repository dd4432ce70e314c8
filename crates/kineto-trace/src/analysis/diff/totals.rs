//! Divides the mean step, or the mean trace, into parts that add up to it exactly.

use super::matching::ClassPair;
use super::sides::MergedSide;
use super::{ClassChange, DiffPart};
use crate::analysis::summary::PathKind;
use crate::hash::HashMap;
use crate::sorting::{sort_few, sort_few_by, sort_few_by_key};
use std::cmp::Reverse;

/// A part of the path: a kind, and the pair of its class.
type PartKey = (PathKind, Option<u32>);

/// Returns the mean time of both sides, in nanoseconds, and its parts on the critical path.
///
/// Means are rounded down to whole nanoseconds, and so are the parts; what their rounding leaves goes to the parts with the largest
/// remainders. So the parts of each side add up to its mean, and their changes to the change of the mean.
pub(super) fn divide_totals(
    (a, b): (&MergedSide<'_>, &MergedSide<'_>),
    pairs: &[ClassPair],
    classes: &[ClassChange],
    has_steps: bool,
) -> ([u64; 2], Vec<DiffPart>) {
    let mut pair_of = [vec![None; a.classes.len()], vec![None; b.classes.len()]];
    for (number, pair) in (0u32..).zip(pairs) {
        let [of_a, of_b] = &mut pair_of;
        for (list, of) in [(&pair.a, of_a), (&pair.b, of_b)] {
            for class in list {
                of.get_mut(*class as usize).into_iter().for_each(|slot| *slot = Some(number));
            }
        }
    }
    let [of_a, of_b] = &pair_of;
    let sides = [(a, of_a), (b, of_b)].map(|(side, pair_of)| {
        let units = if has_steps { side.steps() } else { side.traces() };
        mean_parts(side, pair_of, units, has_steps)
    });
    let mut parts: HashMap<PartKey, [u64; 2]> = HashMap::default();
    for (side, (_, shares)) in sides.iter().enumerate() {
        for (key, ns) in shares {
            parts.entry(*key).or_default().get_mut(side).into_iter().for_each(|slot| *slot = *ns);
        }
    }
    let name = |pair: Option<u32>| classes.get(pair? as usize).map(|change| change.name().to_owned());
    let part = |((kind, pair), [a_ns, b_ns]): (PartKey, [u64; 2])| DiffPart { kind, name: name(pair), a_ns, b_ns };
    let mut parts: Vec<_> = parts.into_iter().map(part).filter(|part| part.a_ns > 0 || part.b_ns > 0).collect();
    sort_few_by(&mut parts, |a, b| {
        let key =
            |part: &DiffPart| (Reverse(part.change_ns().unsigned_abs()), Reverse(part.a_ns.max(part.b_ns)), part.kind);
        key(a).cmp(&key(b)).then_with(|| a.name.cmp(&b.name))
    });
    (sides.map(|(mean, _)| mean), parts)
}

/// Returns the mean time of a side, and its parts, which add up to it.
fn mean_parts(
    side: &MergedSide<'_>,
    pair_of: &[Option<u32>],
    units: u64,
    has_steps: bool,
) -> (u64, Vec<(PartKey, u64)>) {
    let mut sums: HashMap<PartKey, u128> = HashMap::default();
    for (kind, class, ns) in side.path(has_steps) {
        let pair = class.and_then(|class| pair_of.get(class as usize).copied().flatten());
        *sums.entry((kind, pair)).or_default() += u128::from(ns);
    }
    let mut sums: Vec<_> = sums.into_iter().collect();
    sort_few(&mut sums);
    let units = u128::from(units.max(1));
    let narrow = |ns: u128| u64::try_from(ns).unwrap_or(u64::MAX);
    let mean = sums.iter().map(|(_, ns)| ns).sum::<u128>() / units;
    let left = mean - sums.iter().map(|(_, ns)| ns / units).sum::<u128>();
    let mut by_remainder: Vec<usize> = (0..sums.len()).collect();
    sort_few_by_key(&mut by_remainder, |at| Reverse(sums.get(*at).map_or(0, |(_, ns)| ns % units)));
    let mut parts: Vec<_> = sums.iter().map(|(key, ns)| (*key, narrow(ns / units))).collect();
    for at in by_remainder.into_iter().take(usize::try_from(left).unwrap_or(0)) {
        parts.get_mut(at).into_iter().for_each(|(_, ns)| *ns += 1);
    }
    (narrow(mean), parts)
}
