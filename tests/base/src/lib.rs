//! What unit tests of several packages share. It depends on `kineto-base` alone.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

#[cfg(not(all(feature = "virtual-clock", target_os = "linux")))]
#[path = "machine_time.rs"]
mod virtual_time;
#[cfg(all(feature = "virtual-clock", target_os = "linux"))]
mod virtual_time;

mod own_process;

pub use kineto_base::wait;
pub use own_process::{PROCESS_VARIABLE, command_of, name_of, own_process, owns_process, run_command};
pub use virtual_time::{CLOCK_VARIABLE, Clock, virtual_time};

use kineto_base::live::{ENTRY_WORDS, FileHeader, HEADER_WORDS, SLOT_WORDS, SlotUse, journal_entries, slots_start};
use std::collections::HashMap;
use std::path::Path;
use std::time::Duration;

/// Polls until `is_done` returns true.
///
/// # Panics
/// If it does not return true within ten minutes: no load makes a machine so slow.
#[track_caller]
pub fn poll_until(mut is_done: impl FnMut() -> bool) {
    let begun = wait::steady();
    while !is_done() {
        assert!(wait::since(begun) < Duration::from_secs(600), "did not happen within ten minutes");
        wait::sleep(Duration::from_millis(1));
    }
}

/// Waits until all other threads of this process sleep, if a virtual clock is selected; else, gives them time to.
pub fn wait_for_rest() {
    #[cfg(all(feature = "virtual-clock", target_os = "linux"))]
    if let Some(clock) = wait::virtual_clock::selected() {
        return clock.settle();
    }
    std::thread::sleep(Duration::from_millis(100));
}

/// Returns the entries of a file by their kind and the first number of their key, as a reader finds them.
pub fn read_entries(file: &Path) -> HashMap<(u32, u64), Vec<u8>> {
    let bytes = std::fs::read(file).unwrap();
    let words: Vec<u64> = bytes.as_chunks().0.iter().map(|word| u64::from_le_bytes(*word)).collect();
    let header = FileHeader::read(&words).unwrap().unwrap();
    let (generation, length) = FileHeader::journal(&words).unwrap();
    let slot = |at: usize| &words[slots_start(header.slots) + at * SLOT_WORDS..][..SLOT_WORDS];
    let entry = |at: usize| &words[HEADER_WORDS + at * ENTRY_WORDS..][..ENTRY_WORDS];
    let is_part = |at: &usize| entry(*at)[0] == SlotUse::Journal as u64 && entry(*at)[1] == generation;
    let mut parts: Vec<usize> = (0..header.slots).filter(is_part).collect();
    parts.sort_by_key(|at| entry(*at)[2]);
    let journal: Vec<u8> = parts.into_iter().flat_map(slot).flat_map(|word| word.to_le_bytes()).collect();
    let mut entries = HashMap::new();
    for entry in journal_entries(&journal[..length * 8]) {
        match entry.body {
            Some(body) => drop(entries.insert((entry.kind, entry.key.0), body.to_vec())),
            None => drop(entries.remove(&(entry.kind, entry.key.0))),
        }
    }
    entries
}

/// Forks; returns the child's exit status. A child that hangs is killed.
pub fn fork(child: impl FnOnce() -> bool) -> i32 {
    // SAFETY: the child only does what this crate supports in a forked child, and ends without destructors.
    let process = unsafe { libc::fork() };
    if process == 0 {
        // SAFETY: a plain system call.
        unsafe { libc::alarm(60) };
        let is_fine = std::panic::catch_unwind(std::panic::AssertUnwindSafe(child)).unwrap_or(false);
        // SAFETY: takes a number and does not return.
        unsafe { libc::_exit(if is_fine { 0 } else { 1 }) };
    }
    let mut status = 0;
    // SAFETY: `status` is a valid place for the result.
    assert_eq!(unsafe { libc::waitpid(process, &raw mut status, 0) }, process);
    status
}
