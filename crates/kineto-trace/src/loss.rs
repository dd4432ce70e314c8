//! Why something is not in a trace.

macro_rules! losses {
    ($($(#[$doc:meta])* $name:ident = $key:literal;)*) => {
        /// A cause for which something is not in the trace.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[non_exhaustive]
        pub enum Loss { $($(#[$doc])* $name,)* }

        impl Loss {
            /// All causes.
            pub const ALL: &[Loss] = &[$(Loss::$name,)*];

            /// Returns the cause's key in the trace's header and in the statistics.
            pub const fn as_str(self) -> &'static str {
                match self { $(Loss::$name => $key,)* }
            }
        }
    };
}

impl Loss {
    /// Returns whether something is missing, not merely marked.
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
                | Loss::UnfinishedWork
                | Loss::TimesBeyondEnd
                | Loss::CorrelationsReused
                | Loss::LinkedByTime
                | Loss::WorkBeforeLaunch
                | Loss::OverlappingWork
        )
    }
}

losses! {
    /// Slices for which the buffers had no room.
    SlicesOverLimit = "slices_over_limit";
    /// Sets of fields for which the buffers had no room, whether or not their slices are there.
    FieldsOverLimit = "fields_over_limit";
    /// Events (instants, counters, errors), links and closings for which the buffers had no room.
    EventsOverLimit = "events_over_limit";
    /// Ends of slices for which the buffers had no room: those slices look unfinished.
    EndsOverLimit = "ends_over_limit";
    /// Allocations and frees for which the buffers had no room.
    MemoryOverLimit = "memory_records_over_limit";
    /// Allocations and frees on threads that were ending.
    MemoryMissed = "memory_records_missed";
    /// Allocations and frees of this crate's own, which it passes over.
    MemoryOwn = "own_allocations_passed_over";
    /// Allocations and frees that a program reported on devices whose memory a collector records: those are shown.
    MemoryReplaced = "memory_records_replaced";
    /// Field values that were cut at the field limit.
    FieldsCut = "fields_cut";
    /// Spans made while nothing was recorded, so that their fields are not known.
    FieldsNotSeen = "fields_not_seen";
    /// Hooks that were called while the same thread was inside another hook, or whose thread was ending.
    Reentered = "reentered_hooks";
    /// Records written by threads after the session had taken what was there.
    Late = "late_records";
    /// Spans whose `kineto.kind` names something that a host span cannot be.
    KindsRefused = "kinds_refused";
    /// `follows_from` pairs of which one span has no slice, or the wrong one comes first.
    FollowsUnlinked = "follows_unlinked";
    /// Counter values that are no finite numbers.
    CounterValues = "counter_values_skipped";
    /// Slices that began before the recording did; they are there, marked `"clipped": true`.
    Clipped = "clipped_slices";
    /// Slices that had not ended when the recording did; they are there, marked `"finished": false`.
    Unfinished = "unfinished_slices";
    /// Threads whose performance counters could not be opened; their slices are there without.
    ThreadsUncounted = "threads_without_counters";
    /// Slices whose counts are scaled, since the processor's counters were shared with others meanwhile; they say so.
    CountsScaled = "scaled_counts";
    /// Slices that overlap another of their thread without nesting; they are there, on a second row.
    Overlapping = "overlapping_slices";
    /// Records of collectors for which there was no room, in the vendor's buffers or in the trace.
    DeviceRecordsOverLimit = "device_records_over_limit";
    /// Buffers with records that the vendor's library had not handed over by the time limit of the stop; how many records
    /// they hold is not known.
    DeviceBuffersKept = "device_buffers_kept";
    /// Records that the vendor's library says it has dropped.
    VendorDropped = "vendor_dropped_records";
    /// Records of collectors that cannot be read: cut off, of impossible size, or of a kind that is not known.
    DeviceRecordsUnread = "device_records_unread";
    /// Records of collectors that lie outside the recording and belong to nothing in it.
    OutOfWindow = "device_records_out_of_window";
    /// Device work that had not ended when the recording did; it is there, marked `"finished": false`.
    UnfinishedWork = "unfinished_device_work";
    /// Records of collectors that begin or end later than they were handed over, by an error of the vendor's: when, is not
    /// known.
    TimesBeyondEnd = "device_times_beyond_end";
    /// Calls that put work on a device which was not seen.
    LaunchesWithoutWork = "launches_without_work";
    /// Device work without the call that launched it.
    WorkWithoutLaunch = "work_without_launch";
    /// Correlation ids that were used again.
    CorrelationsReused = "correlations_reused";
    /// Launches that no slice was pushed around; they are linked to the innermost slice of their thread at that time.
    LinkedByTime = "linked_by_time";
    /// Launches of which it is not known which slice they belong to.
    LaunchesUnlinked = "launches_unlinked";
    /// Ids around calls that are of no slice of this recording, or of one that was over.
    IdsUnknown = "external_ids_unknown";
    /// Device work that starts before its launch, by an error of a clock; it is there.
    WorkBeforeLaunch = "work_before_launch";
    /// Slices of devices that overlap another of their stream; they are there, on a second row.
    OverlappingWork = "overlapping_device_work";
}
