//! The chain of annotations around each span.

use super::Spans;
use kineto_base::fallible::{self, List, Map};

/// The most new spans that a walk visits; no program nests deeper.
const DEPTH: usize = 10_000;

/// The chain of no annotation.
const NONE: usize = usize::MAX;
/// Marks a span whose walk is in progress.
const WALKING: usize = usize::MAX - 1;

/// Chains of annotations, without duplicates. The innermost link identifies a chain.
pub(super) struct Chains<'s, S> {
    spans: &'s S,
    links: List<ChainLink>,
    /// The chain of each span that is an annotation, or was visited by a walk.
    of_span: Map<u64, usize>,
    /// The last lookup: slice, the span where the walk started, and their chain.
    last: (u64, u64, usize),
    path: List<u64>,
}

/// An annotation, and the chain around it, whose links have lower numbers.
#[derive(Clone, Copy, Debug)]
pub(super) struct ChainLink {
    pub(super) annotation: u64,
    pub(super) outer: usize,
}

impl<'s, S: Spans> Chains<'s, S> {
    pub(super) fn new(spans: &'s S) -> Chains<'s, S> {
        Chains { spans, links: List::new(), of_span: Map::default(), last: (0, 0, NONE), path: List::new() }
    }

    pub(super) fn chain_link(&self, chain: usize) -> Option<ChainLink> {
        self.links.get(chain).copied()
    }

    /// Returns the chain of annotations around a slice.
    pub(super) fn of_slice(&mut self, slice: u64) -> usize {
        let (last_slice, last_span, last_chain) = self.last;
        if slice == last_slice {
            return last_chain;
        }
        let span = if slice == 0 { 0 } else { self.spans.span_of(slice).unwrap_or(0) };
        // Most innermost spans occur only once, so only annotations are cached.
        let is_passed = span != 0 && self.spans.annotation_of(span) == 0;
        let span = if is_passed { self.spans.parent_of(span) } else { span };
        let chain = if span == last_span { last_chain } else { self.of_span(span) };
        self.last = (slice, span, chain);
        chain
    }

    fn of_span(&mut self, innermost: u64) -> usize {
        self.path.clear();
        let mut span = innermost;
        let mut chain = loop {
            // A path that is not cached may not end.
            if span == 0 || self.path.len() == DEPTH || fallible::check_memory().is_err() {
                break NONE;
            }
            match self.of_span.get(&span).copied() {
                None => self.of_span.insert(span, WALKING),
                Some(WALKING) => break self.of_cycle(span),
                Some(chain) => break chain,
            };
            self.path.push(span);
            span = self.spans.parent_of(span);
        };
        while let Some(span) = self.path.pop() {
            chain = self.chain_for_span(span, chain);
            self.of_span.insert(span, chain);
        }
        chain
    }

    /// Gives all spans of a parent cycle the same chain.
    fn of_cycle(&mut self, span: u64) -> usize {
        let from = self.path.iter().position(|on_way| *on_way == span).unwrap_or(0);
        let ring: List<u64> = self.path.iter().skip(from).copied().collect();
        self.path.truncate(from);
        let chain = ring.iter().fold(NONE, |chain, span| self.chain_for_span(*span, chain));
        self.of_span.extend(ring.into_iter().map(|span| (span, chain)));
        chain
    }

    /// Returns the chain of a span inside another.
    fn chain_for_span(&mut self, span: u64, around: usize) -> usize {
        match self.spans.annotation_of(span) {
            0 => around,
            annotation => {
                self.links.push(ChainLink { annotation, outer: around });
                self.links.len() - 1
            }
        }
    }
}
