//! Causes of incomplete traces.

use crate::named_values;

impl Loss {
    /// Returns whether records are missing, not merely marked.
    pub const fn is_loss(self) -> bool {
        !matches!(
            self,
            Loss::Clipped
                | Loss::Unfinished
                | Loss::Overlapping
                | Loss::CountsScaled
                | Loss::FieldsCut
                | Loss::MemoryOwn
                | Loss::MemoryReplaced
                | Loss::OutOfWindow
                | Loss::UnfinishedWork
                | Loss::TimesBeyondEnd
                | Loss::CorrelationsReused
                | Loss::LinkedByTime
                | Loss::WorkBeforeLaunch
                | Loss::OverlappingWork
        )
    }
}

named_values! {
    /// A cause of missing or changed records.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    #[non_exhaustive]
    pub enum Loss {
        /// Slices that did not fit into the buffers.
        SlicesOverLimit => "slices_over_limit",
        /// Sets of fields that did not fit into the buffers; their slices may be present.
        FieldsOverLimit => "fields_over_limit",
        /// Events (instants, counters, errors), links and span closes that did not fit into the buffers.
        EventsOverLimit => "events_over_limit",
        /// Ends of slices that did not fit into the buffers: these slices appear unfinished.
        EndsOverLimit => "ends_over_limit",
        /// Slices, events, allocations and records of devices that were replaced before they could be moved to disk.
        NotSpilled => "records_not_spilled",
        /// Allocations and frees that did not fit into the buffers.
        MemoryOverLimit => "memory_records_over_limit",
        /// Allocations and frees on exiting threads.
        MemoryMissed => "memory_records_missed",
        /// Allocations and frees of this crate itself, which it ignores.
        MemoryOwn => "own_allocations_passed_over",
        /// Allocations and frees that a program reported for devices whose memory a collector records; the collector's are
        /// used.
        MemoryReplaced => "memory_records_replaced",
        /// Field values truncated at the field limit.
        FieldsCut => "fields_cut",
        /// Spans created before the recording, so their fields are unknown.
        FieldsNotSeen => "fields_not_seen",
        /// Hooks called while the same thread was inside another hook or exiting.
        Reentered => "reentered_hooks",
        /// Records written after the session had read the buffers.
        Late => "late_records",
        /// Spans whose `kineto.kind` is not a valid type of host span.
        KindsRefused => "kinds_refused",
        /// `follows_from` pairs in which one span has no slice, or which are in the wrong order.
        FollowsUnlinked => "follows_unlinked",
        /// Counter values that are not finite numbers.
        CounterValues => "counter_values_skipped",
        /// Slices that began before the recording; they are present, marked `"clipped": true`.
        Clipped => "clipped_slices",
        /// Slices that had not ended when the recording stopped; they are present, marked `"finished": false`.
        Unfinished => "unfinished_slices",
        /// Threads whose performance counters could not be opened; their slices have no counts.
        ThreadsUncounted => "threads_without_counters",
        /// Slices with scaled counts, because other processes shared the processor's counters; they are marked.
        CountsScaled => "scaled_counts",
        /// Slices that overlap another of their thread without nesting; they are present on another row.
        Overlapping => "overlapping_slices",
        /// Records of collectors that did not fit into the vendor's buffers or into the trace.
        DeviceRecordsOverLimit => "device_records_over_limit",
        /// Buffers that the vendor's library had not returned when the stop timed out. The number of records in them is
        /// unknown.
        DeviceBuffersKept => "device_buffers_kept",
        /// Records that the vendor's library reported as dropped.
        VendorDropped => "vendor_dropped_records",
        /// Records of collectors that cannot be decoded: truncated, of invalid size, or of an unknown kind.
        DeviceRecordsUnread => "device_records_unread",
        /// Records of collectors that lie outside the recording and belong to nothing inside it: they are no part of it.
        OutOfWindow => "device_records_out_of_window",
        /// Records of collectors with times at which the collector did not run: the clock of the vendor's library is wrong.
        ImpossibleTimes => "device_times_impossible",
        /// Device work that had not ended when the recording stopped; it is present, marked `"finished": false`.
        UnfinishedWork => "unfinished_device_work",
        /// Records of collectors with times after their delivery, due to an error of the vendor's library. Their true times
        /// are unknown.
        TimesBeyondEnd => "device_times_beyond_end",
        /// Launches without recorded device work.
        LaunchesWithoutWork => "launches_without_work",
        /// Device work without the call that launched it, unless that came before the trace's window, or during a pause.
        WorkWithoutLaunch => "work_without_launch",
        /// Correlation ids that occurred more than once.
        CorrelationsReused => "correlations_reused",
        /// Launches without an enclosing pushed slice; they are linked to the innermost slice of their thread at that time.
        LinkedByTime => "linked_by_time",
        /// Launches that could not be linked to a slice.
        LaunchesUnlinked => "launches_unlinked",
        /// External ids of calls that do not belong to a slice of this recording, or belong to one that had ended.
        IdsUnknown => "external_ids_unknown",
        /// Device work that starts before its launch, due to an imprecise clock; it is present.
        WorkBeforeLaunch => "work_before_launch",
        /// Device slices that overlap another of their stream; they are present on another row.
        OverlappingWork => "overlapping_device_work",
    }

    /// All causes.
    pub const ALL;

    /// Returns the cause's key in the trace's header and in the statistics.
    pub const fn as_str;
}
