//! The annotations around a span.

use super::Spans;
use super::hash::IdMap;
use kineto_trace::fallible::{self, List};

/// The most spans that one walk up goes through for the first time: more than any program nests.
const DEPTH: usize = 10_000;

/// The chain of no annotation.
const NONE: usize = usize::MAX;
/// Stands for the chain of a span whose walk is not done.
const WALKING: usize = usize::MAX - 1;

/// Chains of annotations, each of which is kept once; a chain is named by its innermost link.
pub(super) struct Chains<'s, S> {
    spans: &'s S,
    links: List<ChainLink>,
    /// The chain of each span that is an annotation or has been met on a way up.
    of_span: IdMap<u64, usize>,
    /// The slice that was asked for last, the span from which the way led up then, and the chain of both.
    last: (u64, u64, usize),
    way: List<u64>,
}

/// An annotation, and the chain around it, whose links all have lower numbers.
#[derive(Clone, Copy, Debug)]
pub(super) struct ChainLink {
    pub(super) annotation: u64,
    pub(super) around: usize,
}

impl<'s, S: Spans> Chains<'s, S> {
    pub(super) fn new(spans: &'s S) -> Chains<'s, S> {
        Chains { spans, links: List::new(), of_span: IdMap::default(), last: (0, 0, NONE), way: List::new() }
    }

    pub(super) fn link(&self, chain: usize) -> Option<ChainLink> {
        self.links.get(chain).copied()
    }

    /// Returns the chain of annotations that a slice is in.
    pub(super) fn of_slice(&mut self, slice: u64) -> usize {
        let (last_slice, last_span, last_chain) = self.last;
        if slice == last_slice {
            return last_chain;
        }
        let span = if slice == 0 { 0 } else { self.spans.span_of(slice).unwrap_or(0) };
        // The innermost span is mostly met once: nothing is kept of it if it is no annotation.
        let is_passed = span != 0 && self.spans.annotation(span) == 0;
        let span = if is_passed { self.spans.parent_of(span) } else { span };
        let chain = if span == last_span { last_chain } else { self.of_span(span) };
        self.last = (slice, span, chain);
        chain
    }

    fn of_span(&mut self, innermost: u64) -> usize {
        self.way.clear();
        let mut span = innermost;
        let mut chain = loop {
            // A way that is not kept may have no end.
            if span == 0 || self.way.len() == DEPTH || fallible::check().is_err() {
                break NONE;
            }
            match self.of_span.get(&span).copied() {
                None => self.of_span.insert(span, WALKING),
                Some(WALKING) => break self.of_ring(span),
                Some(chain) => break chain,
            };
            self.way.push(span);
            span = self.spans.parent_of(span);
        };
        while let Some(span) = self.way.pop() {
            chain = self.around(span, chain);
            self.of_span.insert(span, chain);
        }
        chain
    }

    /// The chain of spans that are each around the others: all of them have it.
    fn of_ring(&mut self, span: u64) -> usize {
        let from = self.way.iter().position(|on_way| *on_way == span).unwrap_or(0);
        let ring: List<u64> = self.way.iter().skip(from).copied().collect();
        self.way.truncate(from);
        let chain = ring.iter().fold(NONE, |chain, span| self.around(*span, chain));
        self.of_span.extend(ring.into_iter().map(|span| (span, chain)));
        chain
    }

    /// The chain of a span in another one.
    fn around(&mut self, span: u64, around: usize) -> usize {
        match self.spans.annotation(span) {
            0 => around,
            annotation => {
                self.links.push(ChainLink { annotation, around });
                self.links.len() - 1
            }
        }
    }
}
