//! Counts of irregularities found while linking.

/// Nothing is dropped: each count is a number of records that were linked in an unusual way.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct LinkCounts {
    /// Launches without device work, although they are known to put work on a device.
    pub(crate) launches_without_work: u64,
    /// Device work whose launch was not recorded.
    pub(crate) work_without_launch: u64,
    /// Launches that reuse the correlation id of an earlier launch.
    pub(crate) correlations_reused: u64,
    /// Launches without an external id, linked to the innermost slice of their thread at that time.
    pub(crate) linked_by_time: u64,
    /// External ids of unknown slices.
    pub(crate) ids_unknown: u64,
    /// Device work that starts before its launch.
    pub(crate) work_before_launch: u64,
    /// Launches for which no slice was found.
    pub(crate) unlinked: u64,
}
