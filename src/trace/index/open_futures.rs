//! Finds the futures among the spans that were still open when a recording ended.
//!
//! These futures were not dropped, so no last enter marks them. A span counts as a future's if it was entered again, never
//! inside a span that is not its ancestor (as a layer of a model is) and never twice at once, and if one of these holds:
//!
//! - Several threads entered it.
//! - A span that was made inside it was entered in two of its slices, so its work lasts from one slice to the other. The inner
//!   span then counts as a future's too.
//!
//! A future that one thread polls and that keeps no span from poll to poll looks like a span that is entered for each call.

use super::Index;
use crate::time::Ticks;
use crate::trace::recorded::Recorded;
use kineto_trace::fallible::{List, Map, Set};

/// A slice of a span.
#[derive(Clone, Copy, Debug)]
struct Poll {
    thread: i64,
    start: Ticks,
    end: Ticks,
}

/// Returns the callsites of those of the `undecided` spans that are futures'.
pub(super) fn open_futures(recorded: &Recorded, index: &Index, undecided: &Set<u64>) -> Set<u32> {
    if undecided.is_empty() {
        return Set::default();
    }
    let parent = |span: u64| recorded.find_record(span).and_then(|made| made.parent_id());
    let child = |span: u64| parent(span).filter(|parent| undecided.contains(parent)).map(|parent| (span, parent));
    let children: List<(u64, u64)> = index.tracks.keys().filter_map(|span| child(*span)).collect();
    let of_interest = undecided.iter().copied().chain(children.iter().map(|(span, _)| *span));
    let mut polls: Map<u64, List<Poll>> = of_interest.map(|span| (span, List::new())).collect();
    index.for_each_thread_slice(recorded, |thread, record, start, end| {
        if let Some(polls) = polls.get_mut(&record.span_id()) {
            polls.push(Poll { thread, start, end });
        }
    });
    polls.values_mut().for_each(|polls| polls.sort_unstable_by_key(|poll| (poll.start, poll.end)));
    let polls = |span: u64| polls.get(&span).map_or(&[] as &[Poll], |polls| polls);
    let site = |span: u64| index.tracks.get(&span).map(|track| track.site);
    let overlap = |span: &u64| polls(*span).windows(2).any(|pair| matches!(pair, [one, next] if next.start < one.end));
    let is_shared = |span: &u64| polls(*span).windows(2).any(|pair| matches!(pair, [a, b] if a.thread != b.thread));
    let kept = children.iter().filter(|(child, parent)| spreads_over_polls(polls(*child), polls(*parent)));
    let kept = kept.flat_map(|(child, parent)| [child, parent]).filter(|span| undecided.contains(span));
    let futures = undecided.iter().filter(|span| is_shared(span)).chain(kept);
    let sync_sites: Set<u32> = undecided.iter().filter(|span| overlap(span)).filter_map(|span| site(*span)).collect();
    futures.filter_map(|span| site(*span)).filter(|site| !sync_sites.contains(site)).collect()
}

/// Returns whether polls of a child lie in more than one poll of its parent.
fn spreads_over_polls(child: &[Poll], parent: &[Poll]) -> bool {
    let around = |poll: &Poll| {
        let before = parent.partition_point(|around| around.start <= poll.start).checked_sub(1)?;
        parent.get(before).filter(|around| around.thread == poll.thread && poll.end <= around.end).map(|_| before)
    };
    let mut places = child.iter().filter_map(around);
    places.next().is_some_and(|first| places.any(|other| other != first))
}
