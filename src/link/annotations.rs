//! Projects annotations onto device streams.

use kineto_base::sorting::sort_in_place_by_key;
use std::cmp::Reverse;

use super::chains::Chains;
use super::{Spans, Work};
use crate::time::Timestamp;
use kineto_base::fallible::{List, Map};

/// The extent of an annotation's work on a stream, from its first start to its last end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct DeviceAnnotation {
    pub(crate) device: i32,
    pub(crate) stream: u32,
    pub(crate) start: Timestamp,
    pub(crate) end: Timestamp,
    /// The id of the annotation's activity on the host.
    pub(crate) annotation: u64,
}

/// Computes the extent of annotations on each stream.
pub(super) struct AnnotationProjector<'s, S> {
    chains: Chains<'s, S>,
    /// The extent of the work within a chain, by device, stream and chain.
    runs: Map<(i32, u32, usize), DeviceAnnotation>,
}

impl<'s, S: Spans> AnnotationProjector<'s, S> {
    pub(super) fn new(spans: &'s S) -> AnnotationProjector<'s, S> {
        AnnotationProjector { chains: Chains::new(spans), runs: Map::default() }
    }

    /// Adds work that was launched in a slice.
    #[inline]
    pub(super) fn add_work(&mut self, work: &Work, slice: u64) {
        let Work { device, stream, start, end, .. } = *work;
        let extent = DeviceAnnotation { device, stream, start, end, annotation: 0 };
        let chain = self.chains.of_slice(slice);
        self.runs.get_or_insert_with((device, stream, chain), || extent).widen(&extent);
    }

    /// Returns the annotations in order of stream and start, the longest first.
    pub(super) fn finish(self) -> List<DeviceAnnotation> {
        let mut runs: List<_> = self.runs.into_iter().collect();
        sort_in_place_by_key(&mut runs, |(key, _)| *key);
        let mut found = List::new();
        for of_stream in runs.chunk_by(|(a, _), (b, _)| (a.0, a.1) == (b.0, b.1)) {
            found.extend(annotations_on(of_stream, &self.chains));
        }
        found.shrink_to_fit();
        found
    }
}

impl DeviceAnnotation {
    fn widen(&mut self, other: &DeviceAnnotation) {
        (self.start, self.end) = (self.start.min(other.start), self.end.max(other.end));
    }
}

/// Returns the annotations with work on a stream, in order.
fn annotations_on(
    of_stream: &[((i32, u32, usize), DeviceAnnotation)],
    chains: &Chains<'_, impl Spans>,
) -> List<DeviceAnnotation> {
    let mut by_link: Map<usize, DeviceAnnotation> = Map::default();
    for ((.., chain), work) in of_stream {
        let mut next = *chain;
        // If an annotation has work, so do those around it.
        while let Some(link) = chains.chain_link(next).filter(|_| by_link.get(&next).is_none()) {
            by_link.insert(next, DeviceAnnotation { annotation: link.annotation, ..*work });
            next = link.outer;
        }
        if let Some(found) = by_link.get_mut(chain) {
            found.widen(work);
        }
    }
    // Outer links have lower numbers.
    let mut links: List<usize> = by_link.keys().copied().collect();
    sort_in_place_by_key(&mut links, |link| Reverse(*link));
    let mut found: List<DeviceAnnotation> = List::with_capacity(links.len());
    for number in links {
        let (Some(inner), Some(link)) = (by_link.get(&number).copied(), chains.chain_link(number)) else { continue };
        if let Some(around) = by_link.get_mut(&link.outer) {
            around.widen(&inner);
        }
        found.push(inner);
    }
    // Several spans may share an annotation.
    sort_in_place_by_key(&mut found, |span| span.annotation);
    found.dedup_by(|later, earlier| {
        let are_same = later.annotation == earlier.annotation;
        if are_same {
            earlier.widen(later);
        }
        are_same
    });
    sort_in_place_by_key(&mut found, |span| (span.start, Reverse(span.end), span.annotation));
    found
}
