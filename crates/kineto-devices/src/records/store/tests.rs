//! Tests of `store.rs`.

use super::*;
use crate::records::collected::BLOCK;
use crate::{Entry, RecordView};
use kineto_base::clock;
use kineto_model::activity::ArgValue;
use proptest::prelude::*;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};

#[derive(Debug)]
struct NoLayout;

impl RecordLayout for NoLayout {
    fn visit(&self, _: &RecordView<'_>, _: &mut dyn FnMut(&str, ArgValue<'_>)) {}
}

#[derive(Debug)]
struct ByteBudget {
    left: AtomicU64,
}

impl Budget for ByteBudget {
    fn reserve_bytes(&self, bytes: u64) -> bool {
        self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(bytes)).is_ok()
    }
    fn reserve_non_work(&self, bytes: u64) -> bool {
        self.left.load(Ordering::Relaxed) >= bytes + BLOCK_BYTES && self.reserve_bytes(bytes)
    }
    fn release_bytes(&self, bytes: u64) {
        self.left.fetch_add(bytes, Ordering::Relaxed);
    }
}

fn sink(bytes: u64) -> (RecordSink, Arc<ByteBudget>) {
    let budget = Arc::new(ByteBudget { left: AtomicU64::new(bytes) });
    (RecordSink::new(budget.clone()), budget)
}

fn work(batch: &mut Batch<'_>, start: u64, words: &[u64]) {
    let (kind, name) = (ActivityType::ConcurrentKernel, batch.name("kernel"));
    let work = DeviceWork::new(kind, name, (-1, 7), (start, start + 1), &NoLayout);
    batch.work(&DeviceWork { correlation: start << 3, words, ..work });
}

#[test]
fn each_role_of_record_is_read_back() {
    let (sink, _) = sink(1 << 20);
    sink.record(|batch| {
        let (kind, shape) = (ActivityType::CudaRuntime, &NoLayout);
        let name = batch.name("cudaLaunchKernel");
        let call = ApiCall::new(kind, name, Thread::Handle(u32::MAX), (1, 2), shape);
        let call = ApiCall { correlation: 3, external: 4, launches: true, words: &[5, 0, 6, 0], ..call };
        batch.call(&call);
        batch.call(&ApiCall { thread: Thread::Id(-9), launches: false, words: &[0], ..call });
        work(batch, 10, &[1]);
        let (name, correlation) = (batch.name("s"), 21);
        let wait = Synchronization::new(ActivityType::CudaSync, name, (2, u32::MAX), (20, 0), shape);
        batch.synchronization(&Synchronization { event: 8, correlation, words: &[9], ..wait });
        let event = EventRecord::new(ActivityType::CudaEvent, name, (2, 1, 8), 30, shape);
        batch.event(&EventRecord { correlation, ..event });
        batch.external(External { correlation: 40, id: 41 });
        batch.overhead(&Overhead::new(name, (50, 51)));
        batch.context(2, 1);
    });
    let collected = sink.collect_records(true);
    let entries: Vec<_> = collected.calls().chain(collected.work()).chain(collected.other_records()).collect();
    let roles: Vec<_> = entries.iter().map(Entry::role).collect();
    use Role as R;
    assert_eq!(roles, [R::Call, R::Call, R::Work, R::Sync, R::Event, R::External, R::Overhead]);
    assert!(entries.iter().all(|entry| collected.entry_at(entry.at).is_some_and(|same| same.role() == entry.role())));
    let call = &entries[0];
    assert_eq!((call.start(), call.end(), call.correlation_id(), call.call_slice()), (1, 2, 3, 4));
    assert_eq!((call.thread(), call.launches_work(), call.words), (Thread::Handle(u32::MAX), true, &[5, 0, 6][..]));
    assert_eq!(collected.names.text(call.name), "cudaLaunchKernel");
    assert_eq!((entries[1].thread(), entries[1].launches_work(), entries[1].words.len()), (Thread::Id(-9), false, 0));
    assert_eq!((entries[2].device_or_context().cast_signed(), entries[2].stream()), (-1, 7));
    let sync = &entries[3];
    assert_eq!((sync.device_or_context(), sync.stream(), sync.event_id(), sync.end()), (2, u32::MAX, 8, 0));
    assert_eq!((entries[4].start(), entries[4].stream()), (30, 1));
    assert_eq!((entries[5].start(), entries[5].end()), (40, 41));
    assert_eq!((collected.device_of(2), collected.device_of(3)), (1, -1));
    assert!(collected.entry_layout(call).is_some());
}

#[test]
fn records_over_the_limit_are_counted() {
    let (sink, budget) = sink(2 * BLOCK_BYTES + 1000);
    for start in 0..3000 {
        sink.record(|batch| work(batch, start, &[1, 2, 3]));
    }
    let collected = sink.collect_records(true);
    let there = collected.work().count() as u64;
    assert_eq!(collected.losses, [(Loss::DeviceRecordsOverLimit, 3000 - there)]);
    assert_eq!(there, 2 * (BLOCK as u64 / 8));
    drop(collected);
    drop(sink);
    assert_eq!(budget.left.load(Ordering::Relaxed), 2 * BLOCK_BYTES + 1000);
}

#[test]
fn calls_leave_room_for_work() {
    let (sink, _) = sink(3 * BLOCK_BYTES + 1000);
    let call = |batch: &mut Batch<'_>| {
        let (kind, name, shape) = (ActivityType::CudaRuntime, batch.name("c"), &NoLayout);
        let (thread, words) = (Thread::Id(1), &[][..]);
        let (start, end, correlation, external, launches) = (1, 2, 3, 4, false);
        batch.call(&ApiCall { kind, name, thread, start, end, correlation, external, launches, shape, words });
    };
    (0..10_000).for_each(|_| sink.record(call));
    sink.record(|batch| work(batch, 1, &[]));
    let collected = sink.collect_records(true);
    let calls = collected.calls().count() as u64;
    assert_eq!((calls, collected.work().count()), (2 * (BLOCK as u64 / 6), 1));
    assert_eq!(collected.losses, [(Loss::DeviceRecordsOverLimit, 10_000 - calls)]);
}

#[test]
fn snapshot_keeps_records_and_discard_drops_them() {
    let (sink, budget) = sink(1 << 20);
    sink.record(|batch| work(batch, 1, &[]));
    sink.discard_early_records();
    sink.record(|batch| work(batch, 2, &[]));
    let before = budget.left.load(Ordering::Relaxed);
    let snapshot = sink.collect_records(false);
    assert_eq!(
        (snapshot.work().count(), before - budget.left.load(Ordering::Relaxed)),
        (1, 40),
        "the copy is charged to the budget"
    );
    drop(snapshot);
    assert_eq!(budget.left.load(Ordering::Relaxed), before);
    sink.record(|batch| work(batch, 3, &[]));
    let collected = sink.collect_records(true);
    assert_eq!(collected.work().map(|entry| entry.start()).collect::<Vec<_>>(), [2, 3]);
    // Too late.
    sink.record(|batch| work(batch, 4, &[]));
    assert_eq!(sink.collect_records(true).losses, [(Loss::Late, 1)]);
    drop((collected, sink));
    assert_eq!(budget.left.load(Ordering::Relaxed), 1 << 20);
}

#[test]
fn only_notes_are_kept_before_the_recording_begins() {
    let (sink, budget) = sink(1 << 20);
    sink.set_waiting();
    sink.note("said");
    (0..10_000).for_each(|start| sink.record(|batch| work(batch, start, &[])));
    assert!(budget.left.load(Ordering::Relaxed) > (1 << 20) - 1000, "no memory");
    sink.discard_early_records();
    sink.record(|batch| work(batch, 7, &[]));
    let collected = sink.collect_records(true);
    assert_eq!(collected.work().map(|entry| entry.start()).collect::<Vec<_>>(), [7]);
    assert_eq!(collected.notes, ["said"]);
}

#[test]
fn records_in_a_pause_are_not_kept() {
    let (sink, _) = sink(1 << 20);
    let launch = |start: u64, correlation: u64| {
        sink.record(|batch| {
            let (kind, name, shape) = (ActivityType::CudaDriver, batch.name("launch"), &NoLayout);
            let (end, thread, external, launches) = (start + 1, Thread::Id(1), 0, true);
            let words = &[];
            batch.call(&ApiCall { kind, name, thread, start, end, correlation, external, launches, shape, words });
        });
    };
    let work = |start: u64| sink.record(|batch| work(batch, start, &[]));
    // Correlation ids of work are eight times its start.
    launch(10, 8 * 25);
    sink.pauses().begin_pause(20);
    launch(21, 8 * 27);
    work(25);
    work(27);
    work(28);
    sink.pauses().end_pause(30);
    launch(22, 8 * 35);
    work(35);
    work(36);
    launch(23, 8 * 36);
    launch(31, 8 * 32);
    work(32);
    let collected = sink.collect_records(false);
    assert_eq!(collected.calls().map(|entry| entry.start()).collect::<Vec<_>>(), [10, 31]);
    // The work at 28 may precede the pause.
    assert_eq!(collected.work().map(|entry| entry.start()).collect::<Vec<_>>(), [25, 28, 36, 32]);
    assert_eq!(collected.losses, [(Loss::OutOfWindow, 5)]);
    let in_pause = [27, 35, 36, 32].map(|start| collected.was_launched_in_a_pause(8 * start));
    assert_eq!(in_pause, [true, true, true, false]);
}

#[test]
fn names_over_the_limit_are_not_released() {
    let (sink, budget) = sink(10);
    sink.record(|batch| work(batch, 1, &[]));
    sink.discard_early_records();
    drop(sink);
    assert_eq!(budget.left.load(Ordering::Relaxed), 10);
}

#[test]
fn discard_gives_back_all_memory_but_that_of_names() {
    let ((sink, budget), (named, name_budget)) = (sink(1 << 20), sink(1 << 20));
    named.record(|batch| {
        let _ = batch.name("kernel");
    });
    sink.record(|batch| work(batch, 1, &[1; 100]));
    let [with_names, with_records] = [&name_budget, &budget].map(|budget| budget.left.load(Ordering::Relaxed));
    assert!(with_records < with_names && with_names < 1 << 20, "{with_records} {with_names}");
    sink.discard_early_records();
    assert_eq!(budget.left.load(Ordering::Relaxed), with_names);
    sink.discard_early_records();
    assert_eq!(budget.left.load(Ordering::Relaxed), with_names);
}

#[test]
fn greatest_clock_error_counts() {
    let (sink, _) = sink(1 << 20);
    assert_eq!(sink.collect_records(false).clock_error_ns, 0);
    [5, 9, 3].into_iter().for_each(|ns| sink.clock_error(ns));
    assert_eq!(sink.collect_records(true).clock_error_ns, 9);
}

proptest! {
    #[test]
    fn records_of_any_length_are_found_by_their_place(lengths in prop::collection::vec(0usize..300, 1..400)) {
        let (sink, _) = sink(1 << 30);
        for (at, length) in lengths.iter().enumerate() {
            let words: Vec<u64> = (1..=*length as u64).collect();
            sink.record(|batch| work(batch, at as u64, &words));
        }
        let collected = sink.collect_records(true);
        let entries: Vec<_> = collected.work().collect();
        prop_assert_eq!(entries.len(), lengths.len());
        for (at, (entry, length)) in entries.iter().zip(&lengths).enumerate() {
            let same = collected.entry_at(entry.at).unwrap();
            prop_assert_eq!(same.start(), at as u64);
            prop_assert_eq!(same.words.len(), (*length).min(255));
        }
    }
}

fn call(batch: &mut Batch<'_>, correlation: u64) {
    let (kind, name, thread) = (ActivityType::CudaRuntime, batch.name("cudaLaunchKernel"), Thread::Id(1));
    let (start, end, external, launches, shape) = (correlation, correlation + 1, 0, true, &NoLayout);
    batch.call(&ApiCall { kind, name, thread, start, end, correlation, external, launches, shape, words: &[] });
}

#[test]
fn last_call_before_the_records_is_known() {
    let (sink, _) = sink(1 << 20);
    sink.set_waiting();
    sink.record(|batch| [7, 9, 8].map(|correlation| call(batch, correlation)));
    sink.discard_early_records();
    sink.record(|batch| call(batch, 20));
    assert_eq!(sink.collect_records(false).last_call_before, 9);
    // Some blocks of calls.
    sink.record(|batch| (21..10_000).for_each(|correlation| call(batch, correlation)));
    sink.drop_blocks(clock::now());
    let collected = sink.collect_records(true);
    let first = collected.calls().next().map(|call| call.correlation_id());
    assert_eq!(first, Some(collected.last_call_before + 1));
    assert!(collected.last_call_before > 1_000);
}

#[test]
fn launches_and_work_that_wait_stay_when_records_are_taken() {
    const CALLS: u64 = 5_000;
    let (sink, budget) = sink(1 << 22);
    sink.record(|batch| {
        for correlation in 1..=CALLS {
            call(batch, correlation * 8);
            batch.external(External { correlation: correlation * 8, id: correlation });
        }
        // The work of all but the odd ones of the newest hundred.
        (1..=CALLS).filter(|n| *n <= CALLS - 100 || n % 2 == 0).for_each(|n| work(batch, n, &[]));
    });
    let ids = |taken: &Collected| taken.calls().map(|call| call.correlation_id() / 8).collect::<Vec<_>>();
    let works = |taken: &Collected| taken.work().map(|work| work.correlation_id() / 8).collect::<Vec<_>>();
    let externals = |taken: &Collected| taken.other_records().map(|external| external.end()).collect::<Vec<_>>();
    let first = sink.take_records();
    // The newest work of the stream stays, too: if its launch was a graph's, more follows.
    let (pending, done): (Vec<u64>, Vec<u64>) =
        (1..=CALLS).partition(|n| *n > CALLS - 100 && n % 2 == 1 || *n == CALLS);
    assert!(ids(&first) == done && externals(&first) == done);
    assert_eq!(works(&first).last(), Some(&(CALLS - 2)));
    sink.record(|batch| {
        // Its launch is delivered later.
        work(batch, CALLS + 2, &[]);
        pending[1..50].iter().for_each(|n| work(batch, *n, &[]));
        call(batch, CALLS * 8 + 8);
    });
    let second = sink.take_records();
    let found = [&pending[1..49], &[CALLS]].concat();
    assert_eq!((ids(&second), externals(&second)), (found.clone(), found));
    sink.record(|batch| call(batch, CALLS * 8 + 16));
    let last = sink.collect_records(true);
    assert_eq!(
        (ids(&last), works(&last)),
        (vec![pending[0], pending[49], CALLS + 1, CALLS + 2], vec![CALLS + 2, pending[49]])
    );
    drop((first, second, last, sink));
    assert_eq!(budget.left.load(Ordering::Relaxed), 1 << 22);
}

#[test]
fn launches_wait_for_work_when_the_clock_is_set_back() {
    const SECOND: u64 = 1_000_000_000;
    let (sink, _) = sink(1 << 20);
    let launch = |correlation: u64, start| {
        let (kind, shape, thread) = (ActivityType::CudaRuntime, &NoLayout, Thread::Id(1));
        let (end, external, launches, words) = (start + 1, 0, true, &[][..]);
        sink.record(|batch| {
            let name = batch.name("cudaLaunchKernel");
            batch.call(&ApiCall { kind, name, thread, start, end, correlation, external, launches, shape, words });
        });
    };
    let pending = || {
        drop(sink.take_records());
        let left = sink.store.state.lock().unwrap();
        let calls = Arena::blocks(&left.arenas[0]).flat_map(|words| block_entries(0, words));
        calls.map(|call| call.correlation_id()).collect::<Vec<_>>()
    };
    launch(1, 10_000 * SECOND);
    launch(2, 10_061 * SECOND);
    assert_eq!(pending(), [2], "the first has waited long enough");
    launch(3, 9_000 * SECOND);
    launch(4, 9_001 * SECOND);
    assert_eq!(pending(), [2, 3, 4]);
    launch(5, 9_062 * SECOND);
    assert_eq!(pending(), [2, 5]);
}

#[test]
fn external_ids_wait_for_their_calls() {
    const LATER: u64 = 1 << 17;
    let (sink, _) = sink(1 << 20);
    sink.record(|batch| {
        for correlation in [1, 2, LATER] {
            batch.external(External { correlation, id: 70 + correlation });
        }
        // That of 1 does not come any more.
        call(batch, 2);
        call(batch, LATER + 1);
    });
    let externals = |taken: &Collected| taken.other_records().map(|external| external.start()).collect::<Vec<_>>();
    let first = sink.take_records();
    assert!(!externals(&first).contains(&LATER) && externals(&first).contains(&1), "{:?}", externals(&first));
    sink.record(|batch| call(batch, LATER));
    let last = sink.collect_records(true);
    assert!(externals(&last).contains(&LATER), "{:?}", externals(&last));
    assert!(last.calls().any(|call| call.correlation_id() == LATER));
}

#[test]
fn what_stays_needs_no_further_memory() {
    let (sink, budget) = sink(3 * BLOCK_BYTES);
    sink.record(|batch| (1..=100).for_each(|correlation| call(batch, correlation)));
    assert!(budget.left.swap(0, Ordering::Relaxed) > 0);
    let taken = sink.take_records();
    assert_eq!((taken.calls().count(), sink.collect_records(false).calls().count()), (0, 100));
    drop(taken);
    assert_eq!(budget.left.load(Ordering::Relaxed), 0);
    drop(sink);
    assert!(budget.left.load(Ordering::Relaxed) > BLOCK_BYTES);
}

/// A budget whose answers are known; it counts what is reserved.
#[derive(Debug)]
struct AnsweringBudget {
    left: AtomicU64,
    reserved: AtomicU64,
    answers: Mutex<VecDeque<Eviction>>,
}

impl Budget for AnsweringBudget {
    fn reserve_bytes(&self, bytes: u64) -> bool {
        let fits = self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(bytes)).is_ok();
        self.reserved.fetch_add(if fits { bytes } else { 0 }, Ordering::Relaxed);
        fits
    }
    fn reserve_non_work(&self, bytes: u64) -> bool {
        self.reserve_bytes(bytes)
    }
    fn release_bytes(&self, bytes: u64) {
        self.reserved.fetch_sub(bytes, Ordering::Relaxed);
    }
    fn evict_for_collector(&self, oldest: Option<Ticks>) -> Eviction {
        match self.answers.lock().unwrap().pop_front() {
            Some(Eviction::Elsewhere(bytes)) => {
                self.reserved.fetch_add(bytes, Ordering::Relaxed);
                Eviction::Elsewhere(bytes)
            }
            Some(answer) => answer,
            None if oldest.is_some() => Eviction::OldestBlock,
            None => Eviction::None,
        }
    }
}

#[test]
fn memory_of_evicted_records_is_handed_over() {
    let answers = [Eviction::Elsewhere(10), Eviction::Elsewhere(2 * BLOCK_BYTES), Eviction::Elsewhere(BLOCK_BYTES)];
    let budget = Arc::new(AnsweringBudget {
        left: AtomicU64::new(NameTable::name_bytes("kernel")),
        reserved: AtomicU64::new(0),
        answers: Mutex::new(answers.into()),
    });
    let sink = RecordSink::new(budget.clone());
    // The two blocks from elsewhere, and no other; then the older one makes room for each new one.
    let in_block = (BLOCK / 5) as u64;
    let fill = |from: u64, blocks: u64| {
        sink.record(|batch| (from..from + blocks * in_block).for_each(|at| work(batch, at, &[])))
    };
    fill(0, 2);
    assert_eq!(budget.reserved.load(Ordering::Relaxed), 2 * BLOCK_BYTES + NameTable::name_bytes("kernel"));
    fill(10_000, 5);
    assert_eq!(budget.reserved.load(Ordering::Relaxed), 2 * BLOCK_BYTES + NameTable::name_bytes("kernel"));
    // A snapshot holds all blocks: nothing is dropped in vain.
    let snapshot = sink.collect_records(false);
    let kept = |records: &Collected| records.work().count();
    let before = kept(&snapshot);
    fill(20_000, 2);
    let during = sink.collect_records(false);
    assert_eq!(during.evicted_work, snapshot.evicted_work);
    assert!(during.losses.iter().any(|(loss, count)| *loss == Loss::DeviceRecordsOverLimit && *count > 0));
    assert!(kept(&during) >= before);
    drop((snapshot, during));
    fill(30_000, 4);
    let all = sink.collect_records(true);
    assert!(all.evicted_work > 5 * in_block);
    drop((all, sink));
    assert_eq!(budget.reserved.load(Ordering::Relaxed), 0);
}
