//! Groups async spans into requests, and decides which of them share a track.

use super::{Index, Track};
use crate::config::AsyncSpans;
use crate::time::Timestamp;
use crate::trace::TraceContents;
use crate::trace::recorded::Recorded;
use kineto_base::fallible::{List, Map};
use kineto_base::sorting::sort_in_place_by_key;
use std::cmp::Reverse;

/// The spans that have an async track.
///
/// A request is such a span without an ancestor that has a track. A span shares the track of its nearest ancestor that has one
/// where it nests directly inside that; one that overlaps another there, or outlives the ancestor, has a track of its own.
#[derive(Debug, Default)]
pub(crate) struct Requests {
    /// In the order of their start.
    tracks: List<AsyncTrack>,
    /// The request of each span.
    of_span: Map<u64, u64>,
}

/// The async track of a span, drawn in addition to its slices.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AsyncTrack {
    pub(crate) span: u64,
    /// The id of the track, which several spans may share.
    pub(crate) track: u64,
    pub(crate) request: u64,
    pub(crate) start: Timestamp,
    /// The last exit; if the span has not closed, the end of the recording.
    pub(crate) end: Timestamp,
    /// The drawn end: within the span around it.
    pub(crate) drawn: Timestamp,
    /// All its enters.
    pub(crate) total: Track,
}

/// Caches the requests of recently looked-up spans.
#[derive(Debug)]
pub(in crate::trace) struct RequestCache([(u64, Option<u64>); CACHED]);

const CACHED: usize = 64;

/// More ancestors than any span has.
const MOST_ANCESTORS: usize = 1 << 20;

impl Requests {
    pub(in crate::trace) fn new(contents: &TraceContents, index: &Index) -> Requests {
        let TraceContents { recorded, converter, info, .. } = contents;
        let has_track = |track: &Track| match info.config.async_spans {
            AsyncSpans::PerPoll => false,
            // A future that was polled once is entered a second time to be dropped.
            AsyncSpans::Auto => track.is_one_call && track.enters > if track.is_closed { 2 } else { 1 },
            _ => true,
        };
        let window_end = recorded.windows.last().map(|window| window.end);
        let (mut tracks, mut of_span) = (List::new(), Map::default());
        for (span, track) in index.tracks.iter() {
            if !has_track(track) {
                continue;
            }
            let until = if track.is_closed { None } else { window_end };
            let end = until.map_or(track.last, |until| until.max(track.last));
            let (start, end) = converter.slice_times(track.first, end);
            let row = AsyncTrack { span: *span, track: *span, request: *span, start, end, drawn: end, total: *track };
            tracks.push(row);
            of_span.insert(*span, *span);
        }
        sort_in_place_by_key(&mut tracks, |track| (track.start, Reverse(track.end), track.span));
        let mut requests = Requests { of_span, tracks };
        requests.share_tracks(recorded);
        requests
    }

    fn share_tracks(&mut self, recorded: &Recorded) {
        // The open spans of each track, and the drawn ends of the spans placed before.
        let mut open: Map<u64, List<AsyncTrack>> = Map::default();
        let mut placed: Map<u64, u64> = Map::default();
        let parent =
            |span: u64| recorded.find_record(span).and_then(|made| made.parent_id()).filter(|parent| *parent != 0);
        for track in &mut self.tracks {
            let (mut nearest, mut outermost, mut above) = (None, track.span, parent(track.span));
            for _ in 0..MOST_ANCESTORS {
                let Some(span) = above else { break };
                if self.of_span.contains_key(&span) {
                    nearest = nearest.or(Some(span));
                    outermost = span;
                }
                above = parent(span);
            }
            track.request = outermost;
            if let Some((around, on)) = nearest.and_then(|around| Some((around, *placed.get(&around)?))) {
                let open = open.get_or_insert_with(on, List::new);
                while open.pop_if(|ended| ended.drawn <= track.start).is_some() {}
                if let Some(around) = open.last().filter(|open| open.span == around && track.end <= open.end) {
                    // Readers take equal ends for an overlap.
                    let before = Timestamp::from_nanos(around.drawn.as_nanos().saturating_sub(1));
                    (track.track, track.drawn) = (on, track.end.min(before).max(track.start));
                }
            }
            placed.insert(track.span, track.track);
            open.get_or_insert_with(track.track, List::new).push(*track);
        }
        for track in &self.tracks {
            self.of_span.insert(track.span, track.request);
        }
    }

    /// Returns the spans with a track, in the order of their start.
    pub(in crate::trace) fn async_tracks(&self) -> &[AsyncTrack] {
        &self.tracks
    }

    /// Returns the request of a span with the parent `parent`; `None` if it belongs to none.
    pub(in crate::trace) fn request_of(
        &self,
        recorded: &Recorded,
        cache: &mut RequestCache,
        span: u64,
        parent: u64,
    ) -> Option<u64> {
        if self.tracks.is_empty() {
            return None;
        }
        let known =
            |cache: &RequestCache, span| self.of_span.get(&span).map(|request| Some(*request)).or(cache.get(span));
        let (mut at, mut next, mut request) = (span, parent, known(cache, span));
        for _ in 0..MOST_ANCESTORS {
            if request.is_some() || next == 0 {
                break;
            }
            at = next;
            request = known(cache, at);
            next = recorded.find_record(at).and_then(|made| made.parent_id()).unwrap_or(0);
        }
        let request = request.flatten();
        cache.put(span, request);
        cache.put(at, request);
        request
    }
}

impl RequestCache {
    fn get(&self, span: u64) -> Option<Option<u64>> {
        self.0.get(cache_slot(span)).filter(|(known, _)| *known == span).map(|(_, request)| *request)
    }

    fn put(&mut self, span: u64, request: Option<u64>) {
        if let Some(slot) = self.0.get_mut(cache_slot(span)) {
            *slot = (span, request);
        }
    }
}

impl Default for RequestCache {
    fn default() -> RequestCache {
        RequestCache([(0, None); CACHED])
    }
}

fn cache_slot(span: u64) -> usize {
    usize::try_from(span % CACHED as u64).unwrap_or(0)
}
