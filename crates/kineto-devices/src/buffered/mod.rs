//! What is common to libraries that write records into buffers of this crate: CUPTI and PTI.
//!
//! A library requests buffers and returns them full ([`pool`]). A thread reads them ([`engine`]): it cuts them into records
//! ([`walk`]), and waits at the end for the records of launches ([`launches`]). In a pause it disables what the library
//! records ([`kinds`]). The program's threads reach it by [`commands`], through the [`recording`].

pub(super) mod commands;
pub(super) mod engine;
pub(super) mod kinds;
pub(super) mod launches;
pub(super) mod pool;
pub(super) mod recording;
pub(super) mod walk;
