//! Launches and work that wait for each other when the records are moved out: they stay, so that they are found together.

use super::arena::Arena;
use super::collected::{ARENAS, Entry, Role, block_entries};
use kineto_base::fallible::{Map, Set, attempt};
use std::time::Duration;

/// How long a record waits for others, which collectors may deliver late.
pub const DELIVERY_WAIT: Duration = Duration::from_secs(60);
/// The same in nanoseconds, before the one of its role that was delivered last.
const WAIT_NS: u64 = DELIVERY_WAIT.as_secs() * 1_000_000_000;
/// How many calls later an external id still waits for its call, which other threads' calls may precede.
const WAIT_CALLS: u64 = 1 << 16;

/// Moves pending launches, their external ids, and pending work to the arenas `to`, which are empty. Returns how many blocks
/// were begun.
pub(super) fn move_pending(from: &mut [Arena; ARENAS], to: &mut [Arena; ARENAS], last_call_before: u64) -> u64 {
    // Without memory to find them, none waits.
    let pending = attempt(|| find_pending(from, last_call_before)).unwrap_or_default();
    if pending.is_empty() {
        return 0;
    }
    let is_pending = |entry: &Entry<'_>| match entry.role() {
        Role::Call | Role::Work => pending.contains(&entry.correlation_id()),
        Role::External => pending.contains(&entry.start()),
        _ => false,
    };
    for arena in [Role::Call, Role::Work, Role::External].map(Role::arena_index) {
        let (Some(from), Some(to)) = (from.get_mut(arena), to.get_mut(arena)) else { continue };
        from.for_each_block(|words| {
            if !block_entries(arena, words).any(|entry| is_pending(&entry)) {
                return None;
            }
            let mut left = Vec::with_capacity(words.len());
            for entry in block_entries(arena, words) {
                let moves = is_pending(&entry) && (to.has_room(entry.word_count(arena)) || to.begin_block());
                entry.write_with(entry.words, arena, if moves { &mut to.open } else { &mut left });
            }
            left.shrink_to_fit();
            Some(left)
        });
    }
    to.iter().map(|arena| arena.full.len() as u64 + u64::from(arena.open.capacity() > 0)).sum()
}

/// Returns the correlation ids of recent launches without work, of recent work without its launch, of recent external ids
/// without their call, and of each stream's newest work: if a graph launched it, more may follow.
fn find_pending(arenas: &[Arena; ARENAS], last_call_before: u64) -> Set<u64> {
    let entries = |role: Role| {
        let blocks = arenas.get(role.arena_index()).into_iter().flat_map(Arena::blocks);
        blocks.flat_map(move |block| block_entries(role.arena_index(), block))
    };
    let recent = |role: Role, is_wanted: fn(&Entry<'_>, u64) -> bool| {
        // Not the latest time: CLOCK_REALTIME may have been set back since.
        let last = entries(role).map(|entry| entry.end()).filter(|end| *end != 0).last().unwrap_or(0);
        let is_recent = move |entry: &Entry<'_>| {
            entry.correlation_id() != 0
                && entry.end().saturating_add(WAIT_NS) >= last
                && is_wanted(entry, last_call_before)
        };
        entries(role).filter(is_recent).map(|entry| entry.correlation_id()).collect::<Set<_>>()
    };
    let mut launches = recent(Role::Call, |call, _| call.launches_work());
    let mut work = recent(Role::Work, |work, last_call_before| work.correlation_id() > last_call_before);
    let newest_call = entries(Role::Call).map(|call| call.correlation_id()).max().unwrap_or(0);
    let is_recent = |external: &Entry<'_>| external.start().saturating_add(WAIT_CALLS) >= newest_call;
    let mut externals: Set<u64> = entries(Role::External).filter(is_recent).map(|external| external.start()).collect();
    for call in entries(Role::Call) {
        work.remove(&call.correlation_id());
        externals.remove(&call.correlation_id());
    }
    let mut newest_of = Map::default();
    for work in entries(Role::Work) {
        launches.remove(&work.correlation_id());
        newest_of.insert((work.device_or_context(), work.stream()), work.correlation_id());
    }
    let newest = newest_of.into_iter().map(|(_, id)| id).filter(|id| *id != 0);
    launches.extend(work.iter().copied().chain(externals.iter().copied()).chain(newest));
    launches
}
