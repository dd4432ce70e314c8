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
    /// The current run of each stream, by its number.
    running: List<Option<StreamRun>>,
    /// Finished runs, by stream and chain.
    done: Map<(usize, usize), StreamRun>,
}

/// Consecutive work of a stream within the same chain.
#[derive(Clone, Copy, Debug)]
struct StreamRun {
    stream: (i32, u32),
    chain: usize,
    extent: AnnotationExtent,
}

impl<'s, S: Spans> AnnotationProjector<'s, S> {
    pub(super) fn new(spans: &'s S) -> AnnotationProjector<'s, S> {
        AnnotationProjector { chains: Chains::new(spans), running: List::new(), done: Map::default() }
    }

    /// Adds work that was launched in a slice, on a stream of this number; numbers are dense.
    #[inline]
    pub(super) fn add_work(&mut self, number: usize, work: &Work, slice: u64) {
        let chain = self.chains.of_slice(slice);
        let extent = AnnotationExtent { start: work.start, end: work.end };
        let next = StreamRun { stream: (work.device, work.stream), chain, extent };
        if self.running.len() <= number {
            self.running.resize(number + 1, None);
        }
        match self.running.get_mut(number) {
            Some(Some(running)) if running.chain == chain => running.extent.merge_extent(extent),
            Some(running) => {
                if let Some(before) = running.replace(next) {
                    let done = self.done.get_or_insert_with((number, before.chain), || before);
                    done.extent.merge_extent(before.extent);
                }
            }
            None => {}
        }
    }

    /// Returns the annotations in order of stream and start, the longest first.
    pub(super) fn finish(self) -> List<DeviceAnnotation> {
        let mut done: List<_> =
            self.done.into_iter().map(|(_, done)| done).chain(self.running.into_iter().flatten()).collect();
        sort_in_place_by_key(&mut done, |done| done.stream);
        let mut found = List::new();
        let mut extents = Extents::default();
        for of_stream in done.chunk_by(|a, b| a.stream == b.stream) {
            for StreamRun { chain, extent, .. } in of_stream {
                extents.add_extent(&self.chains, *chain, *extent);
            }
            let Some(&StreamRun { stream: (device, stream), .. }) = of_stream.first() else { continue };
            let rows = extents.take_extents(&self.chains).into_iter();
            found.extend(rows.map(|(annotation, AnnotationExtent { start, end })| DeviceAnnotation {
                device,
                stream,
                start,
                end,
                annotation,
            }));
        }
        found.shrink_to_fit();
        found
    }
}

#[derive(Clone, Copy, Debug)]
struct AnnotationExtent {
    start: Timestamp,
    end: Timestamp,
}

impl AnnotationExtent {
    const NONE: AnnotationExtent =
        AnnotationExtent { start: Timestamp::from_nanos(u64::MAX), end: Timestamp::from_nanos(0) };

    fn merge_extent(&mut self, other: AnnotationExtent) {
        self.start = self.start.min(other.start);
        self.end = self.end.max(other.end);
    }
}

/// The extents of annotations on a stream.
#[derive(Debug, Default)]
struct Extents {
    /// By link of the chains; `None` for annotations without work on the stream.
    extent_by_link: List<Option<AnnotationExtent>>,
    used_links: List<usize>,
}

impl Extents {
    /// Adds work of a chain to its innermost annotation; [`take_extents`](Self::take_extents) extends the outer annotations.
    fn add_extent(&mut self, chains: &Chains<'_, impl Spans>, chain: usize, extent: AnnotationExtent) {
        let mut next = chain;
        // If an annotation has work, so do those around it.
        while let Some(link) = chains.chain_link(next).filter(|_| self.link_extent(next).is_none()) {
            if self.extent_by_link.len() <= next {
                self.extent_by_link.resize(next + 1, None);
            }
            if let Some(extent) = self.extent_by_link.get_mut(next) {
                *extent = Some(AnnotationExtent::NONE);
            }
            self.used_links.push(next);
            next = link.outer;
        }
        if let Some(found) = self.link_extent(chain) {
            found.merge_extent(extent);
        }
    }

    fn link_extent(&mut self, link: usize) -> Option<&mut AnnotationExtent> {
        self.extent_by_link.get_mut(link)?.as_mut()
    }

    /// Returns the annotations with work on the stream, in order, and resets.
    fn take_extents(&mut self, chains: &Chains<'_, impl Spans>) -> List<(u64, AnnotationExtent)> {
        // Outer links have lower numbers.
        let mut touched = std::mem::take(&mut self.used_links);
        sort_in_place_by_key(&mut touched, |link| Reverse(*link));
        let mut found = List::with_capacity(touched.len());
        for number in touched {
            let Some(extent) = self.extent_by_link.get_mut(number).and_then(Option::take) else { continue };
            let Some(link) = chains.chain_link(number) else { continue };
            if let Some(around) = self.link_extent(link.outer) {
                around.merge_extent(extent);
            }
            found.push((link.annotation, extent));
        }
        // Several spans may share an annotation.
        sort_in_place_by_key(&mut found, |(annotation, _)| *annotation);
        found.dedup_by(|later, earlier| {
            let are_same = later.0 == earlier.0;
            if are_same {
                earlier.1.merge_extent(later.1);
            }
            are_same
        });
        sort_in_place_by_key(&mut found, |(annotation, extent)| (extent.start, Reverse(extent.end), *annotation));
        found
    }
}
