//! Aligns the outlines of two steps: which node of one is which of the other, by names first, then by order and likeness.

use super::outline::OutlineNode;
use super::profile::ClassKind;
use super::sides::{MergedSide, SideClass};
use crate::hash::HashSet;

/// How alike two nodes of the same name are; more than any others.
const SAME_NAME: f64 = 3.0;

/// The least likeness of two nodes with other names.
const MIN_LIKENESS: f64 = 0.35;

/// The share of two lists that must match, and their mean likeness, for lists of other names to be the same work.
const MIN_COHERENCE: f64 = 0.7;

/// The least number of nodes and pieces of device work that show that two lists are the same work.
const MIN_EVIDENCE: u64 = 3;

/// One side of an alignment.
pub(super) struct AlignedSide<'s> {
    side: &'s MergedSide<'s>,
    /// By class: its counterpart of the same name.
    partners: &'s [Option<u32>],
    /// By class: what its name tells.
    hints: Vec<NameHints>,
    parents: Vec<u32>,
    /// By node: the time and number of pieces of device work in it, and the time of all.
    totals: Vec<NodeTotals>,
    is_matched: Vec<bool>,
}

#[derive(Clone, Copy, Debug, Default)]
struct NodeTotals {
    work_ns: u64,
    work_count: u64,
    ns: u64,
    nodes: u64,
}

impl<'s> AlignedSide<'s> {
    pub(super) fn new(side: &'s MergedSide<'s>, partners: &'s [Option<u32>]) -> AlignedSide<'s> {
        let outline = side.outline();
        let mut parents = vec![0; outline.nodes.len()];
        let mut totals = vec![NodeTotals::default(); outline.nodes.len()];
        // A parent comes before its children.
        for (number, node) in outline.nodes.iter().enumerate().rev() {
            let is_work = node.class.and_then(|class| side.classes.get(class as usize)?.work).is_some();
            let own = NodeTotals {
                work_ns: if is_work { node.ns } else { 0 },
                work_count: if is_work { node.count } else { 0 },
                ns: if is_work { 0 } else { node.ns },
                nodes: node.count,
            };
            let inside = node.children.iter().filter_map(|child| totals.get(*child as usize).copied());
            let sum = inside.fold(own, |sum, one| NodeTotals {
                work_ns: sum.work_ns.saturating_add(one.work_ns),
                work_count: sum.work_count + one.work_count,
                ns: sum.ns.saturating_add(one.ns),
                nodes: sum.nodes + one.nodes,
            });
            totals.get_mut(number).into_iter().for_each(|slot| *slot = sum);
            for child in &node.children {
                let parent = u32::try_from(number).unwrap_or(0);
                parents.get_mut(*child as usize).into_iter().for_each(|slot| *slot = parent);
            }
        }
        let is_matched = vec![false; outline.nodes.len()];
        let hints = side.classes.iter().map(|class| NameHints::new(class.name)).collect();
        AlignedSide { side, partners, hints, parents, totals, is_matched }
    }

    fn node(&self, number: u32) -> Option<&'s OutlineNode> {
        self.side.outline().nodes.get(number as usize)
    }

    fn class(&self, number: u32) -> Option<(u32, &'s SideClass<'s>)> {
        let class = self.node(number)?.class?;
        Some((class, self.side.classes.get(class as usize)?))
    }

    fn total(&self, number: u32) -> NodeTotals {
        self.totals.get(number as usize).copied().unwrap_or_default()
    }

    /// Returns whether a node's class has no counterpart of its name.
    fn is_nameless(&self, number: u32) -> bool {
        self.class(number).is_some_and(|(class, _)| self.partners.get(class as usize).is_none_or(Option::is_none))
    }

    fn is_open(&self, number: u32) -> bool {
        self.is_nameless(number) && self.is_matched.get(number as usize) == Some(&false)
    }

    fn children(&self, number: u32) -> &'s [u32] {
        self.node(number).map_or(&[], |node| &node.children)
    }

    /// Returns the device work below a node that has no counterpart yet, in order.
    fn open_work(&self, number: u32) -> Vec<u32> {
        let (mut found, mut stack) = (Vec::new(), vec![number]);
        while let Some(number) = stack.pop() {
            if self.is_open(number) && self.class(number).is_some_and(|(_, class)| class.work.is_some()) {
                found.push(number);
            }
            stack.extend(self.children(number).iter().rev());
        }
        found
    }
}

/// An alignment of two outlines.
pub(super) struct Alignment<'s> {
    a: AlignedSide<'s>,
    b: AlignedSide<'s>,
    /// Pairs of nodes in matching order: parents before their children.
    pairs: Vec<(u32, u32)>,
    /// Nodes of other names that are the same by their place.
    pub(super) by_place: Vec<(u32, u32)>,
    /// The pairs of nodes that may still be compared in full; after that, only those near the diagonals of lists.
    cells: usize,
}

/// The most pairs of nodes that one alignment compares in full.
const MAX_CELLS: usize = 32_000_000;

impl<'s> Alignment<'s> {
    /// Aligns two outlines from the steps down.
    pub(super) fn new(a: AlignedSide<'s>, b: AlignedSide<'s>) -> Alignment<'s> {
        let mut alignment = Alignment { a, b, pairs: vec![(0, 0)], by_place: Vec::new(), cells: MAX_CELLS };
        let mut next = 0;
        while let Some((a, b)) = alignment.pairs.get(next).copied() {
            let (left, right) = (alignment.a.children(a), alignment.b.children(b));
            alignment.match_lists(left, right, a == 0);
            next += 1;
        }
        // Wrappers that only one side has hide work from the lists above: inner operations first.
        let mut tried = HashSet::default();
        for (a, b) in alignment.pairs.clone().into_iter().rev() {
            let lists = (alignment.a.open_work(a), alignment.b.open_work(b));
            // What is open in the only operation inside is open here too, and was compared there.
            if !tried.contains(&lists) {
                alignment.match_lists(&lists.0, &lists.1, a == 0);
                tried.insert(lists);
            }
        }
        alignment.match_operations_of_work();
        alignment
    }

    /// Returns the classes of a pair of nodes, and the number of events.
    pub(super) fn classes(&self, (a, b): (u32, u32)) -> Option<(u32, u32, u64)> {
        let count = self.a.node(a)?.count.min(self.b.node(b)?.count);
        Some((self.a.class(a)?.0, self.b.class(b)?.0, count))
    }

    fn match_lists(&mut self, left: &[u32], right: &[u32], is_step: bool) {
        if left.is_empty() || right.is_empty() {
            return;
        }
        let cells = self.cells.min(MAX_CELLS / 4);
        self.cells = self.cells.saturating_sub(left.len().saturating_mul(right.len()).min(cells));
        let found =
            align_lists(left.len(), right.len(), cells, |at, to| self.likeness(*left.get(at)?, *right.get(to)?));
        let found: Vec<_> = found
            .into_iter()
            .filter_map(|(at, to, likeness)| Some((*left.get(at)?, *right.get(to)?, likeness)))
            .collect();
        let accepts = self.is_coherent(left, right, &found, is_step);
        for (a, b, likeness) in found {
            let is_named = likeness >= SAME_NAME;
            if is_named || accepts {
                self.add_pair(a, b, !is_named);
            }
        }
    }

    fn add_pair(&mut self, a: u32, b: u32, is_by_place: bool) {
        self.pairs.push((a, b));
        if is_by_place {
            self.by_place.push((a, b));
        }
        self.a.is_matched.get_mut(a as usize).into_iter().for_each(|is_matched| *is_matched = true);
        self.b.is_matched.get_mut(b as usize).into_iter().for_each(|is_matched| *is_matched = true);
    }

    /// Returns whether two lists are the same work: most of both matches, and is alike.
    fn is_coherent(&self, left: &[u32], right: &[u32], found: &[(u32, u32, f64)], is_step: bool) -> bool {
        let counts = |side: &AlignedSide<'_>, number: u32| {
            side.class(number).is_some_and(|(_, class)| class.kind != ClassKind::Call)
        };
        let all = [(&self.a, left), (&self.b, right)]
            .map(|(side, list)| list.iter().filter(|number| counts(side, **number)).count());
        let matched: Vec<_> = found.iter().filter(|(a, ..)| counts(&self.a, *a)).collect();
        let named = matched.iter().filter(|(.., likeness)| *likeness >= SAME_NAME).count();
        let placed = matched.len() - named;
        if placed == 0 {
            // Calls are alike by their names only.
            return true;
        }
        let likeness: f64 = matched.iter().map(|(.., likeness)| likeness.min(1.0)).sum();
        let evidence = |(a, b, _): &&(u32, u32, f64)| 1 + self.a.total(*a).work_count.min(self.b.total(*b).work_count);
        let evidence: u64 = matched.iter().map(evidence).sum();
        let most = all[0].max(all[1]) as f64;
        let is_shown = !is_step || named > 0 || evidence >= MIN_EVIDENCE;
        is_shown && matched.len() as f64 >= MIN_COHERENCE * most && likeness >= MIN_COHERENCE * matched.len() as f64
    }

    /// Returns how alike two nodes are; `None` if they are not the same.
    fn likeness(&self, a: u32, b: u32) -> Option<f64> {
        let ((class_a, found_a), (class_b, found_b)) = (self.a.class(a)?, self.b.class(b)?);
        if self.a.partners.get(class_a as usize).copied().flatten() == Some(class_b) {
            return Some(SAME_NAME);
        }
        if !self.a.is_open(a) || !self.b.is_open(b) {
            return None;
        }
        let is_scope = |kind| matches!(kind, ClassKind::Operation | ClassKind::Annotation);
        let likeness = match (found_a.kind, found_b.kind) {
            (ClassKind::Work, ClassKind::Work) if found_a.work == found_b.work => self.work_likeness(a, b)?,
            (ClassKind::Call, ClassKind::Call) => {
                return (plain_call(found_a.name) == plain_call(found_b.name)).then_some(1.0);
            }
            (kind_a, kind_b) if is_scope(kind_a) && is_scope(kind_b) => self.scope_likeness(a, b)?,
            _ => return None,
        };
        let (hints_a, hints_b) = (self.a.hints.get(class_a as usize)?, self.b.hints.get(class_b as usize)?);
        let likeness = likeness + hints_a.likeness(hints_b);
        (likeness >= MIN_LIKENESS).then_some(likeness.min(1.0))
    }

    fn work_likeness(&self, a: u32, b: u32) -> Option<f64> {
        let (a, b) = (self.a.node(a)?, self.b.node(b)?);
        let (each, count) = (ratio(a.ns / a.count.max(1), b.ns / b.count.max(1)), ratio(a.count, b.count));
        Some(match (a.threads, b.threads) {
            (0, _) | (_, 0) => 0.9 * each + 0.1 * count,
            // The same grid does the same work, however fast.
            (threads_a, threads_b) if threads_a == threads_b => 0.7 * each.max(0.5) + 0.2 + 0.1 * count,
            (threads_a, threads_b) => 0.8 * each + 0.1 * ratio(threads_a, threads_b) + 0.1 * count,
        })
    }

    fn scope_likeness(&self, a: u32, b: u32) -> Option<f64> {
        let (a, b) = (self.a.total(a), self.b.total(b));
        match (a.work_count, b.work_count) {
            (0, 0) => Some(0.8 * ratio(a.ns, b.ns) + 0.2 * ratio(a.nodes, b.nodes)),
            (0, _) | (_, 0) => None,
            (count_a, count_b) => Some(0.8 * ratio(a.work_ns, b.work_ns) + 0.2 * ratio(count_a, count_b)),
        }
    }

    /// Matches operations around matched work, if neither has a counterpart.
    fn match_operations_of_work(&mut self) {
        for (mut a, mut b) in self.by_place.clone() {
            loop {
                let parent = |side: &AlignedSide<'_>, number: u32| side.parents.get(number as usize).copied();
                let (Some(up_a), Some(up_b)) = (parent(&self.a, a), parent(&self.b, b)) else { break };
                if up_a == 0 || up_b == 0 || !self.a.is_open(up_a) || !self.b.is_open(up_b) {
                    break;
                }
                self.add_pair(up_a, up_b, true);
                (a, b) = (up_a, up_b);
            }
        }
    }
}

/// Returns the smaller of two numbers as a share of the larger; 1 if both are 0.
fn ratio(a: u64, b: u64) -> f64 {
    if a == b { 1.0 } else { a.min(b) as f64 / a.max(b) as f64 }
}

/// Returns the name of a call without its vendor and version: "`LaunchKernel`" of "`cuLaunchKernelEx`".
fn plain_call(name: &str) -> &str {
    let name = ["cuda", "hip", "cu", "ze"].iter().find_map(|prefix| name.strip_prefix(prefix)).unwrap_or(name);
    let name = ["_ptsz", "_ptds", "_v2", "_v3"].iter().find_map(|suffix| name.strip_suffix(suffix)).unwrap_or(name);
    ["ExC", "Ex"].iter().find_map(|suffix| name.strip_suffix(suffix)).unwrap_or(name)
}

/// What a name tells: the kind of computation, and the type of numbers.
#[derive(Clone, Copy, Debug)]
struct NameHints {
    family: Option<&'static str>,
    number_type: Option<&'static str>,
}

impl NameHints {
    fn new(name: &str) -> NameHints {
        let name = name.to_ascii_lowercase();
        NameHints { family: family(&name), number_type: number_type(&name) }
    }

    /// Returns what two names add to the likeness of their classes.
    fn likeness(&self, other: &NameHints) -> f64 {
        let family = match (self.family, other.family) {
            (Some(a), Some(b)) if a == b => 0.4,
            // Frameworks fuse whatever works on single elements.
            (Some("elementwise"), Some(_)) | (Some(_), Some("elementwise")) => 0.0,
            (Some(_), Some(_)) => -0.7,
            _ => 0.0,
        };
        let types = match (self.number_type, other.number_type) {
            (Some(a), Some(b)) if a != b => -0.3,
            _ => 0.0,
        };
        family + types
    }
}

/// Returns the kind of computation that a name tells.
fn family(name: &str) -> Option<&'static str> {
    const PARTS: [(&str, &[&str]); 11] = [
        ("attention", &["attention", "attn", "flash", "sdpa"]),
        ("softmax", &["softmax"]),
        ("norm", &["norm"]),
        ("loss", &["nll", "cross_entropy", "crossentropy"]),
        ("optimizer", &["adam", "sgd", "optimizer"]),
        ("pool", &["pool"]),
        ("activation", &["relu", "gelu", "silu", "sigmoid", "tanh"]),
        ("gemm", &["gemm", "matmul", "linear", "cutlass", "cublas", "xmma"]),
        ("embedding", &["embed", "gather", "index_select", "indexselect"]),
        ("reduce", &["reduce", "argmax"]),
        ("elementwise", &["elementwise"]),
    ];
    const WORDS: [(&str, &[&str]); 4] = [
        ("gemm", &["mm", "bmm", "addmm", "gemv"]),
        ("reduce", &["sum", "mean", "max", "min"]),
        ("elementwise", &["add", "mul", "sub", "div", "badd", "bmul", "bsub", "bdiv"]),
        ("copy", &["copy", "contiguous", "cast", "ucopy"]),
    ];

    if name.contains("conv") && !name.contains("convert") {
        return Some("conv");
    }
    let has_part = |parts: &[&str]| parts.iter().any(|part| name.contains(part));
    let words = || name.split(|c: char| !c.is_ascii_alphanumeric());
    let by_part = PARTS.iter().find(|(_, parts)| has_part(parts));
    by_part.or_else(|| WORDS.iter().find(|(_, of)| words().any(|word| of.contains(&word)))).map(|(family, _)| *family)
}

/// Returns the type of numbers that a name tells.
fn number_type(name: &str) -> Option<&'static str> {
    const TYPES: [(&str, &[&str]); 4] = [
        ("bf16", &["bf16", "bfloat16"]),
        ("f16", &["f16", "fp16", "half", "hgemm", "h16"]),
        ("f64", &["f64", "fp64", "double", "dgemm"]),
        ("f32", &["f32", "fp32", "sgemm", "tf32"]),
    ];

    TYPES.iter().find(|(_, parts)| parts.iter().any(|part| name.contains(part))).map(|(name, _)| *name)
}

/// Returns the pairs of an alignment of two lists with the highest sum of likeness: places of both, ascending, and the likeness.
///
/// At most so many cells are compared; of longer lists, those near the diagonal.
fn align_lists(
    left: usize,
    right: usize,
    cells: usize,
    likeness: impl Fn(usize, usize) -> Option<f64>,
) -> Vec<(usize, usize, f64)> {
    let reach = (cells / left.max(1) / 2).max(1);
    let band = |row: usize| {
        let center = row * right / left.max(1);
        (center.saturating_sub(reach), (center + reach).min(right))
    };
    let mut steps: Vec<Vec<u8>> = Vec::with_capacity(left);
    let mut above: (usize, Vec<f64>) = (0, vec![0.0; band(0).1 + 1]);
    for row in 0..left {
        let (first, last) = band(row + 1);
        let mut sums = vec![0.0f64; last - first + 1];
        let mut taken = vec![0u8; last - first + 1];
        let of_above = |column: usize| {
            // Beyond the band, the sum stays that of its edge.
            let last = above.1.len().saturating_sub(1);
            above.1.get(column.checked_sub(above.0)?.min(last)).copied()
        };
        for column in first..=last {
            let mut best = (of_above(column).unwrap_or(0.0), 1u8);
            let before = column.checked_sub(first + 1).and_then(|at| sums.get(at).copied());
            if let Some(before) = before.filter(|before| *before >= best.0) {
                best = (before, 2);
            }
            let diagonal = column.checked_sub(1).and_then(|column| Some(of_above(column)? + likeness(row, column)?));
            if let Some(diagonal) = diagonal.filter(|diagonal| *diagonal >= best.0) {
                best = (diagonal, 3);
            }
            sums.get_mut(column - first).into_iter().for_each(|slot| *slot = best.0);
            taken.get_mut(column - first).into_iter().for_each(|slot| *slot = best.1);
        }
        above = (first, sums);
        steps.push(taken);
    }
    let (mut row, mut column, mut pairs) = (left, right, Vec::new());
    while row > 0 && column > 0 {
        let (first, last) = band(row);
        column = column.min(last);
        let step = column.checked_sub(first).and_then(|at| steps.get(row - 1)?.get(at).copied());
        match step {
            Some(3) => {
                (row, column) = (row - 1, column - 1);
                pairs.push((row, column, likeness(row, column).unwrap_or(0.0)));
            }
            Some(2) => column -= 1,
            _ => row -= 1,
        }
    }
    pairs.reverse();
    pairs
}

#[cfg(test)]
mod tests {
    use super::*;

    fn align(left: &str, right: &str) -> String {
        let (a, b): (Vec<char>, Vec<char>) = (left.chars().collect(), right.chars().collect());
        let found = align_lists(a.len(), b.len(), MAX_CELLS, |at, to| (a[at] == b[to]).then_some(1.0));
        found.iter().map(|(at, _, _)| a[*at]).collect()
    }

    #[test]
    fn lists_are_aligned_in_order() {
        assert_eq!(align("abcde", "abcde"), "abcde");
        assert_eq!(align("abxcde", "aybcd"), "abcd");
        assert_eq!(
            (align("", "abc"), align("abc", ""), align("abc", "xyz")),
            (String::new(), String::new(), String::new())
        );
        assert_eq!(align("ab", "xxxxxxxxab"), "ab");
        let long = "abcdefgh".repeat(600);
        assert_eq!(align(&long, &long), long);
    }

    #[test]
    fn cells_of_long_lists_are_bounded() {
        let count = std::cell::Cell::new(0);
        let found = align_lists(500, 500, 10_000, |at, to| {
            count.set(count.get() + 1);
            (at == to).then_some(1.0)
        });
        assert_eq!(found.len(), 500);
        assert!(count.get() < 2 * 10_000, "{}", count.get());
    }

    fn name_likeness(a: &str, b: &str) -> f64 {
        NameHints::new(a).likeness(&NameHints::new(b))
    }

    #[test]
    fn names_tell_computations_and_calls() {
        assert!(name_likeness("aten::addmm", "matmul") > 0.0 && name_likeness("aten::softmax", "conv2d") < 0.0);
        assert!(name_likeness("ampere_sgemm_128x64", "gemm_f16") < name_likeness("ampere_sgemm_128x64", "gemm_f32"));
        assert_eq!(name_likeness("a", "b"), 0.0);
        assert_eq!(plain_call("cuLaunchKernelEx"), plain_call("cudaLaunchKernelExC"));
        assert_ne!(plain_call("cudaMalloc"), plain_call("cudaFree"));
    }
}
