//! What did not fit while records were linked, by cause.

/// Nothing of this is dropped: each count says how many records are in a trace in another way than the usual one.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct LinkCounts {
    /// Launches that no device work came of, of those that are known to put work on a device.
    pub(crate) launches_without_work: u64,
    /// Device work whose launch was not seen.
    pub(crate) work_without_launch: u64,
    /// Launches whose correlation id an earlier launch had.
    pub(crate) correlations_reused: u64,
    /// Launches that no id names, linked to the innermost slice of their thread at that time.
    pub(crate) linked_by_time: u64,
    /// External ids of no slice here, on calls or apart from them.
    pub(crate) ids_unknown: u64,
    /// Device work that starts before its launch does.
    pub(crate) work_before_launch: u64,
    /// Launches that no slice could be found for.
    pub(crate) unlinked: u64,
}
