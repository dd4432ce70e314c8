//! Finds for each class of one side its counterpart on the other.

use super::MatchReason;
use super::align::{AlignedSide, Alignment};
use super::outline::Outline;
use super::profile::ClassKind;
use super::sides::MergedSide;
use crate::hash::HashMap;
use crate::sorting::{sort_few, sort_few_by_key};

/// Classes that match: of one side, of the other, or of both.
#[derive(Clone, Debug)]
pub(super) struct ClassPair {
    pub(super) a: Vec<u32>,
    pub(super) b: Vec<u32>,
    pub(super) matched: MatchReason,
}

/// Returns all classes of both sides, in pairs where they match.
pub(super) fn match_classes(a: &MergedSide<'_>, b: &MergedSide<'_>) -> Vec<ClassPair> {
    let (partners_a, partners_b) = match_names(a, b);
    let mut pairs: Vec<ClassPair> = Vec::new();
    for (class, partner) in (0..).zip(&partners_a) {
        pairs.extend(partner.map(|partner| ClassPair { a: vec![class], b: vec![partner], matched: MatchReason::Name }));
    }
    let is_open = |partners: &[Option<u32>]| partners.iter().any(Option::is_none);
    let mut groups = Groups::new(partners_a.len(), partners_b.len());
    if is_open(&partners_a) && is_open(&partners_b) {
        let alignment = Alignment::new(AlignedSide::new(a, &partners_a), AlignedSide::new(b, &partners_b));
        groups.join(&alignment, [a.outline(), b.outline()]);
    }
    pairs.extend(groups.into_pairs(&partners_a, &partners_b));
    pairs
}

/// Returns the counterparts of the same name, by class of either side. Operations and annotations of one name match.
fn match_names(a: &MergedSide<'_>, b: &MergedSide<'_>) -> (Vec<Option<u32>>, Vec<Option<u32>>) {
    let (mut partners_a, mut partners_b) = (vec![None; a.classes.len()], vec![None; b.classes.len()]);
    let exact = |kind: ClassKind| kind;
    let loose = |kind: ClassKind| if kind == ClassKind::Annotation { ClassKind::Operation } else { kind };
    for key in [exact as fn(ClassKind) -> ClassKind, loose] {
        let known: HashMap<(ClassKind, &str), u32> = (0u32..)
            .zip(&b.classes)
            .filter(|(number, _)| partners_b.get(*number as usize).is_some_and(Option::is_none))
            .map(|(number, class)| ((key(class.kind), class.name), number))
            .collect();
        for (number, class) in (0u32..).zip(&a.classes) {
            let Some(slot) = partners_a.get_mut(number as usize).filter(|slot| slot.is_none()) else { continue };
            let Some(found) = known.get(&(key(class.kind), class.name)) else { continue };
            if let Some(back) = partners_b.get_mut(*found as usize).filter(|back| back.is_none()) {
                (*slot, *back) = (Some(*found), Some(number));
            }
        }
    }
    (partners_a, partners_b)
}

/// Groups of classes that match by place; those of the second side are numbered after those of the first.
struct Groups {
    parents: Vec<usize>,
    first_b: usize,
}

impl Groups {
    fn new(a: usize, b: usize) -> Groups {
        Groups { parents: (0..a + b).collect(), first_b: a }
    }

    /// Joins classes of which at least half of the events match each other.
    fn join(&mut self, alignment: &Alignment<'_>, outlines: [&Outline; 2]) {
        let mut votes: HashMap<(u32, u32), u64> = HashMap::default();
        for (a, b, count) in alignment.by_place.iter().filter_map(|pair| alignment.classes(*pair)) {
            *votes.entry((a, b)).or_default() += count;
        }
        let counts = outlines.map(|outline| {
            let mut counts: HashMap<u32, u64> = HashMap::default();
            for node in &outline.nodes {
                node.class.into_iter().for_each(|class| *counts.entry(class).or_default() += node.count);
            }
            counts
        });
        let mut votes: Vec<_> = votes.into_iter().collect();
        sort_few(&mut votes);
        for ((a, b), count) in &votes {
            let is_most = |of: &HashMap<u32, u64>, class: &u32| of.get(class).is_some_and(|all| count * 2 >= *all);
            if is_most(&counts[0], a) || is_most(&counts[1], b) {
                let roots = (self.root(*a as usize), self.root(self.first_b + *b as usize));
                let (low, high) = (roots.0.min(roots.1), roots.0.max(roots.1));
                self.parents.get_mut(high).into_iter().for_each(|parent| *parent = low);
            }
        }
    }

    fn root(&self, mut class: usize) -> usize {
        while let Some(parent) = self.parents.get(class).copied().filter(|parent| *parent != class) {
            class = parent;
        }
        class
    }

    fn into_pairs(self, partners_a: &[Option<u32>], partners_b: &[Option<u32>]) -> Vec<ClassPair> {
        let mut groups: HashMap<usize, ClassPair> = HashMap::default();
        for (number, partner) in partners_a.iter().chain(partners_b).enumerate() {
            if partner.is_some() {
                continue;
            }
            let group = groups.entry(self.root(number)).or_insert_with(|| ClassPair {
                a: Vec::new(),
                b: Vec::new(),
                matched: MatchReason::Unmatched,
            });
            let (list, class) = match number.checked_sub(self.first_b) {
                Some(class) => (&mut group.b, class),
                None => (&mut group.a, number),
            };
            list.extend(u32::try_from(class).ok());
            if !group.a.is_empty() && !group.b.is_empty() {
                group.matched = MatchReason::Place;
            }
        }
        let mut groups: Vec<_> = groups.into_iter().collect();
        sort_few_by_key(&mut groups, |(root, _)| *root);
        groups.into_iter().map(|(_, pair)| pair).collect()
    }
}
