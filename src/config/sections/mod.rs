//! Groups of settings that belong together; each is a field of [`Config`](super::Config).

pub(super) mod async_spans;
pub(super) mod dumps;
pub(super) mod flags;
pub(super) mod gpu;
pub(super) mod mode;
pub(super) mod ondemand;
pub(super) mod output;
pub(super) mod overflow;
pub(super) mod retention;
pub(super) mod slice_extras;
pub(super) mod split;
pub(super) mod timetable;
