//! Recordings: starts, stops, schedules, collectors, observers, and a program's own records.

mod background;
mod chrome;
mod collectives;
mod collectors;
mod debug;
mod deferred_events;
mod dumps;
mod event_timers;
mod invariants;
mod keys;
mod observers;
mod own_records;
mod post_process;
mod private_use1;
mod profile;
mod recording_guard;
mod schedule;
mod segments;
mod session_observers;
mod spill;
mod split;
mod triggers;
mod windows;
