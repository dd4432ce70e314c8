//! Tests of `journal.rs`.

use super::super::{JournalKind, LiveFile, LiveGaps};
use super::GENERATION;
use crate::wait::sleep;
use std::sync::atomic::Ordering;
use std::time::Duration;
use test_base::{poll_until, read_entries, virtual_time};

fn create(bytes_max: u64) -> (tempfile::TempDir, std::sync::Arc<LiveFile>) {
    let folder = tempfile::tempdir_in("/dev/shm").unwrap();
    let file = LiveFile::create(folder.path(), bytes_max).unwrap();
    (folder, file)
}

fn byte(round: u64) -> u8 {
    round.to_le_bytes()[0]
}

#[test]
fn journal_stays_small_when_entries_are_replaced() {
    let (_folder, file) = create(1 << 20);
    file.put(JournalKind::Site, (7, 0), |out| out.extend([1, 2, 3]));
    // Ten times what the file has for the journal.
    for round in 0..4000_u64 {
        file.put(JournalKind::Retained, (round % 5, 0), |out| out.extend(vec![byte(round); 10_000]));
        file.put(JournalKind::LargePayload, (round, 0), |out| out.extend([9]));
        file.remove(JournalKind::LargePayload, (round, 0));
        assert_eq!(file.maintain(), LiveGaps::default(), "{round}");
    }
    let entries = read_entries(file.path());
    assert_eq!((entries.len(), &entries[&(JournalKind::Site as u32, 7)]), (6, &vec![1, 2, 3]));
    assert!(
        (3995..4000_u64).all(|round| entries[&(JournalKind::Retained as u32, round % 5)] == vec![byte(round); 10_000])
    );
}

#[test]
fn entries_without_room_wait_for_it() {
    virtual_time(|clock| clock.run(note_more_than_fits));
}

fn note_more_than_fits() {
    let (_folder, file) = create(1 << 20);
    let put = |key| file.put(JournalKind::LargePayload, (key, 0), |out| out.extend(vec![1; 200 << 10]));
    assert_eq!((0..10).filter(|key| put(*key)).count(), 10, "some wait");
    let waiting = file.maintain().entries;
    let kept = read_entries(file.path()).len() as u64;
    assert!(kept >= 4 && waiting == 10 - kept, "{kept} {waiting}");
    // What other records need still fits.
    file.put(JournalKind::Site, (1, 0), |out| out.extend([1]));
    assert_eq!((file.maintain().entries, read_entries(file.path()).len() as u64), (waiting, kept + 1));
    // Removed entries free space for those that wait, one of which was removed too.
    (0..kept).for_each(|key| file.remove(JournalKind::LargePayload, (key, 0)));
    file.remove(JournalKind::LargePayload, (9, 0));
    poll_until(|| file.maintain().entries == 0);
    let mut found: Vec<_> =
        read_entries(file.path()).into_keys().filter(|key| key.0 == JournalKind::LargePayload as u32).collect();
    found.sort_unstable();
    assert_eq!(found, (kept..9).map(|key| (JournalKind::LargePayload as u32, key)).collect::<Vec<_>>());
}

#[test]
fn full_journal_is_not_compacted_again_and_again() {
    virtual_time(|clock| clock.run(fill_a_journal));
}

fn fill_a_journal() {
    let (_folder, file) = create(1 << 20);
    let generation = || file.slot_file().header()[GENERATION].load(Ordering::Relaxed);
    let all: u64 = 60_000;
    let noted = (0..all).filter(|key| file.put(JournalKind::Lane, (*key, 0), |out| out.extend([7; 60]))).count() as u64;
    assert!(noted < all);
    for _ in 0..100 {
        let gaps = file.maintain();
        assert!(gaps.entries > 0 && !gaps.has_room_again, "{gaps:?}");
        sleep(Duration::from_millis(2));
    }
    assert!(generation() <= 8, "{}", generation());
    // When there is room, all entries are to be noted again: once.
    let mut has_room = false;
    for key in 0..noted {
        file.remove(JournalKind::Lane, (key, 0));
        has_room |= key % 500 == 0 && file.maintain().has_room_again;
    }
    poll_until(|| has_room || file.maintain().has_room_again);
    assert!(!file.maintain().has_room_again);
}

#[test]
fn journal_takes_entries_while_it_is_copied() {
    let (_folder, file) = create(4 << 20);
    let put = |key, value| file.put(JournalKind::Site, (key, 0), |out| out.extend([value; 100]));
    assert!((0..500).all(|key| put(key % 100, byte(key))));
    let before = file.journal.lock().text.length;
    let mut copy = file.journal.copy_needed();
    // The lock is free: what the copy has is replaced, removed and added.
    assert!(put(1, 1) && put(100, 2));
    file.remove(JournalKind::Site, (2, 0));
    assert!(file.journal.copy_appended(&mut copy) > 0 && file.journal.copy_appended(&mut copy) == 0);
    assert!(put(1, 3) && put(101, 4));
    file.remove(JournalKind::Site, (100, 0));
    let kept = read_entries(file.path());
    file.journal.replace_by(copy);
    assert_eq!(file.slot_file().header()[GENERATION].load(Ordering::Relaxed), 1);
    assert!(file.journal.lock().text.length < before / 4);
    let entries = read_entries(file.path());
    assert_eq!(entries, kept);
    let value = |key| entries.get(&(JournalKind::Site as u32, key)).map(|value| value[0]);
    assert_eq!([0, 1, 2, 100, 101].map(value), [Some(byte(400)), Some(3), None, None, Some(4)]);
}

#[test]
fn threads_append_while_others_copy_the_journal() {
    const ROUNDS: u64 = 2000;
    let (_folder, file) = create(16 << 20);
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..2)
            .map(|writer| {
                let file = &file;
                let write = move || {
                    for round in 0..ROUNDS {
                        let key = writer * 10 + round % 10;
                        assert!(file.put(JournalKind::Retained, (key, 0), |out| out.extend(round.to_le_bytes())));
                        let small = (writer << 32 | round, 0);
                        assert!(file.put(JournalKind::LargePayload, small, |out| out.extend([1; 8])));
                        if !round.is_multiple_of(100) {
                            file.remove(JournalKind::LargePayload, small);
                        }
                    }
                };
                std::thread::Builder::new().spawn_scoped(scope, write).unwrap()
            })
            .collect();
        while !writers.iter().all(std::thread::ScopedJoinHandle::is_finished) {
            let mut copy = file.journal.copy_needed();
            file.journal.copy_appended(&mut copy);
            file.journal.replace_by(copy);
        }
    });
    assert_eq!(file.maintain(), LiveGaps::default());
    let entries = read_entries(file.path());
    assert_eq!(entries.len() as u64, 2 * (10 + ROUNDS / 100));
    let last = |key: u64| entries[&(JournalKind::Retained as u32, key)].clone();
    assert!((0..20).all(|key| last(key) == (ROUNDS - 10 + key % 10).to_le_bytes()));
}

#[test]
fn reused_slot_holds_an_empty_chunk() {
    let (_folder, file) = create(1 << 20);
    let (slot, words) = file.slot_file().take_slot().unwrap();
    words.iter().for_each(|word| word.store(7, Ordering::Relaxed));
    file.slot_file().free_slot(slot);
    // All others first: slots are used in turn.
    let mut slots = std::iter::from_fn(|| file.slot_file().take_slot());
    let reused = slots.find(|(number, _)| *number == slot).unwrap().1;
    assert!(reused.iter().all(|word| word.load(Ordering::Relaxed) == 0));
}
