//! The field numbers of Perfetto's messages.
//!
//! They are those of the `.proto` files in `protos/perfetto/trace` of Perfetto's repository, and never change.

/// The number of a field of a message.
pub(crate) type Field = u32;

/// `Trace` and `TracePacket` (`trace_packet.proto`), with nested messages.
pub(crate) mod packet {
    use super::Field;

    pub(crate) const PACKET: Field = 1;
    pub(crate) const CLOCK_SNAPSHOT: Field = 6;
    pub(crate) const TIMESTAMP: Field = 8;
    pub(crate) const SEQUENCE_ID: Field = 10;
    pub(crate) const TRACK_EVENT: Field = 11;
    pub(crate) const INTERNED_DATA: Field = 12;
    pub(crate) const SEQUENCE_FLAGS: Field = 13;
    pub(crate) const PREVIOUS_DROPPED: Field = 42;
    pub(crate) const COMPRESSED_PACKETS: Field = 50;
    pub(crate) const GPU_COUNTER_EVENT: Field = 52;
    pub(crate) const GPU_RENDER_STAGE_EVENT: Field = 53;
    pub(crate) const CLOCK_ID: Field = 58;
    pub(crate) const DEFAULTS: Field = 59;
    pub(crate) const TRACK_DESCRIPTOR: Field = 60;
    pub(crate) const FIRST_ON_SEQUENCE: Field = 87;
    pub(crate) const TRACE_ATTRIBUTES: Field = 126;
    /// Flags: the sequence begins without interned data.
    pub(crate) const STATE_CLEARED: u64 = 1;
    /// Flags: the packet refers to interned data.
    pub(crate) const NEEDS_STATE: u64 = 2;
    /// Of `TracePacketDefaults`.
    pub(crate) const DEFAULT_CLOCK: Field = 58;
    pub(crate) const DEFAULT_TRACK_EVENT: Field = 11;
}

/// `ClockSnapshot` (`clock_snapshot.proto`).
pub(crate) mod clock {
    use super::Field;

    pub(crate) const CLOCKS: Field = 1;
    pub(crate) const PRIMARY: Field = 2;
    pub(crate) const ID: Field = 1;
    pub(crate) const TIMESTAMP: Field = 2;
    pub(crate) const IS_INCREMENTAL: Field = 3;
    pub(crate) const MULTIPLIER: Field = 4;
    pub(crate) const REALTIME: u64 = 1;
    pub(crate) const BOOTTIME: u64 = 6;
    /// The first clock id that is local to a sequence.
    pub(crate) const OF_SEQUENCE: u64 = 64;
}

/// `TrackDescriptor` (`track_descriptor.proto`), with nested messages.
pub(crate) mod track {
    use super::Field;

    pub(crate) const UUID: Field = 1;
    pub(crate) const NAME: Field = 2;
    pub(crate) const PROCESS: Field = 3;
    pub(crate) const THREAD: Field = 4;
    pub(crate) const PARENT: Field = 5;
    pub(crate) const COUNTER: Field = 8;
    pub(crate) const CHILD_ORDERING: Field = 11;
    pub(crate) const RANK: Field = 12;
    /// A text for readers, in which this crate writes Kineto's ids as JSON.
    pub(crate) const DESCRIPTION: Field = 14;
    /// `child_ordering`: by the children's names.
    pub(crate) const BY_NAME: u64 = 1;
    /// `child_ordering`: by the children's ranks.
    pub(crate) const BY_RANK: u64 = 3;
    /// Of `ProcessDescriptor`.
    pub(crate) const PROCESS_ID: Field = 1;
    pub(crate) const PROCESS_NAME: Field = 6;
    pub(crate) const PROCESS_LABELS: Field = 8;
    /// Of `ThreadDescriptor`.
    pub(crate) const THREAD_PROCESS_ID: Field = 1;
    pub(crate) const THREAD_ID: Field = 2;
    pub(crate) const THREAD_NAME: Field = 5;
    /// Of `CounterDescriptor`.
    pub(crate) const UNIT: Field = 3;
    pub(crate) const UNIT_BYTES: u64 = 3;
}

/// `TrackEvent` (`track_event.proto`).
pub(crate) mod event {
    use super::Field;

    pub(crate) const CATEGORY_IDS: Field = 3;
    pub(crate) const DEBUG_ANNOTATIONS: Field = 4;
    pub(crate) const TYPE: Field = 9;
    pub(crate) const NAME_ID: Field = 10;
    pub(crate) const TRACK_UUID: Field = 11;
    /// The fields of flows before they had 64 bits.
    pub(crate) const OLD_FLOW_IDS: Field = 36;
    pub(crate) const OLD_TERMINATING_FLOW_IDS: Field = 42;
    pub(crate) const CATEGORIES: Field = 22;
    pub(crate) const NAME: Field = 23;
    pub(crate) const COUNTER_VALUE: Field = 30;
    pub(crate) const DOUBLE_COUNTER_VALUE: Field = 44;
    pub(crate) const FLOW_IDS: Field = 47;
    pub(crate) const TERMINATING_FLOW_IDS: Field = 48;
    /// `GpuCorrelation`, whose first field lists the `event_id`s of render stages.
    pub(crate) const GPU_CORRELATION: Field = 3000;
    pub(crate) const SUBMISSION_EVENT_IDS: Field = 1;
    pub(crate) const SLICE_BEGIN: u64 = 1;
    pub(crate) const SLICE_END: u64 = 2;
    pub(crate) const INSTANT: u64 = 3;
    pub(crate) const COUNTER: u64 = 4;
}

/// `DebugAnnotation` (`debug_annotation.proto`).
pub(crate) mod annotation {
    use super::Field;

    pub(crate) const NAME_ID: Field = 1;
    pub(crate) const BOOL: Field = 2;
    pub(crate) const UINT: Field = 3;
    pub(crate) const INT: Field = 4;
    pub(crate) const DOUBLE: Field = 5;
    pub(crate) const STRING: Field = 6;
    pub(crate) const POINTER: Field = 7;
    /// `NestedValue`, with which Chrome writes nested values.
    pub(crate) const NESTED: Field = 8;
    pub(crate) const JSON: Field = 9;
    pub(crate) const NAME: Field = 10;
    pub(crate) const DICT_ENTRIES: Field = 11;
    pub(crate) const ARRAY_VALUES: Field = 12;
    pub(crate) const STRING_ID: Field = 17;
    /// Of `NestedValue`.
    pub(crate) const NESTED_TYPE: Field = 1;
    pub(crate) const NESTED_KEYS: Field = 2;
    pub(crate) const NESTED_VALUES: Field = 3;
    pub(crate) const NESTED_ITEMS: Field = 4;
    pub(crate) const NESTED_INT: Field = 5;
    pub(crate) const NESTED_DOUBLE: Field = 6;
    pub(crate) const NESTED_BOOL: Field = 7;
    pub(crate) const NESTED_STRING: Field = 8;
    /// `nested_type`.
    pub(crate) const DICT: u64 = 1;
    pub(crate) const ARRAY: u64 = 2;
}

/// `InternedData` (`interned_data.proto`).
pub(crate) mod interned {
    use super::Field;

    pub(crate) const CATEGORIES: Field = 1;
    pub(crate) const NAMES: Field = 2;
    pub(crate) const ANNOTATION_NAMES: Field = 3;
    pub(crate) const GPU_SPECIFICATIONS: Field = 24;
    pub(crate) const ANNOTATION_STRINGS: Field = 29;
    pub(crate) const GPU_COUNTER_DESCRIPTORS: Field = 47;
    pub(crate) const COMPUTE_ARG_NAMES: Field = 1001;
    /// Of each entry.
    pub(crate) const ID: Field = 1;
    pub(crate) const TEXT: Field = 2;
}

/// `TraceAttributes` (`trace_attributes.proto`).
pub(crate) mod attributes {
    use super::Field;

    pub(crate) const ATTRIBUTE: Field = 1;
    pub(crate) const KEY: Field = 1;
    pub(crate) const INT: Field = 2;
    pub(crate) const STRING: Field = 3;
}

/// `GpuRenderStageEvent` (`gpu_render_stage_event.proto`), as PyTorch writes it, with nested messages.
pub(crate) mod stage {
    use super::Field;

    pub(crate) const EVENT_ID: Field = 1;
    pub(crate) const DURATION: Field = 2;
    pub(crate) const EXTRA_DATA: Field = 6;
    pub(crate) const GPU_ID: Field = 11;
    pub(crate) const QUEUE_ID: Field = 13;
    pub(crate) const STAGE_ID: Field = 14;
    pub(crate) const NAME: Field = 17;
    pub(crate) const WAIT_IDS: Field = 18;
    pub(crate) const NAME_ID: Field = 20;
    pub(crate) const LAUNCH: Field = 21;
    /// Of `ExtraData`.
    pub(crate) const EXTRA_NAME: Field = 1;
    pub(crate) const EXTRA_VALUE: Field = 2;
    /// Of `ComputeKernelLaunch`.
    pub(crate) const GRID: Field = 1;
    pub(crate) const WORKGROUP: Field = 2;
    pub(crate) const ARGS: Field = 3;
    /// Of its arguments.
    pub(crate) const ARG_NAME_ID: Field = 1;
    pub(crate) const ARG_NAME: Field = 2;
    pub(crate) const ARG_INT: Field = 3;
    pub(crate) const ARG_UINT: Field = 4;
}

/// `GpuCounterEvent` (`gpu_counter_event.proto`), with nested messages.
pub(crate) mod gpu_counter {
    use super::Field;

    pub(crate) const DESCRIPTOR: Field = 1;
    pub(crate) const COUNTERS: Field = 2;
    pub(crate) const GPU_ID: Field = 3;
    pub(crate) const DESCRIPTOR_ID: Field = 4;
    /// Of a counter, and of the description of one.
    pub(crate) const ID: Field = 1;
    pub(crate) const INT: Field = 2;
    pub(crate) const DOUBLE: Field = 3;
    /// Of `GpuCounterDescriptor`.
    pub(crate) const SPECS: Field = 1;
    /// Of an interned one.
    pub(crate) const INTERNED_DESCRIPTOR: Field = 2;
}
