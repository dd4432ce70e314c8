//! The field numbers of Perfetto's messages.
//!
//! They are those of the `.proto` files in `protos/perfetto/trace` of Perfetto's repository, and never change.
#![expect(missing_docs, reason = "each is named as the field of the message")]

/// The number of a field of a message.
pub type Field = u32;

/// `Trace` and `TracePacket` (`trace_packet.proto`), with nested messages.
pub mod packet {
    use super::Field;

    pub const PACKET: Field = 1;
    pub const CLOCK_SNAPSHOT: Field = 6;
    pub const TIMESTAMP: Field = 8;
    pub const SEQUENCE_ID: Field = 10;
    pub const TRACK_EVENT: Field = 11;
    pub const INTERNED_DATA: Field = 12;
    pub const SEQUENCE_FLAGS: Field = 13;
    pub const PREVIOUS_DROPPED: Field = 42;
    pub const COMPRESSED_PACKETS: Field = 50;
    pub const GPU_COUNTER_EVENT: Field = 52;
    pub const GPU_RENDER_STAGE_EVENT: Field = 53;
    pub const CLOCK_ID: Field = 58;
    pub const DEFAULTS: Field = 59;
    pub const TRACK_DESCRIPTOR: Field = 60;
    pub const FIRST_ON_SEQUENCE: Field = 87;
    pub const TRACE_ATTRIBUTES: Field = 126;
    /// Flags: the sequence begins without interned data.
    pub const STATE_CLEARED: u64 = 1;
    /// Flags: the packet refers to interned data.
    pub const NEEDS_STATE: u64 = 2;
    /// Of `TracePacketDefaults`.
    pub const DEFAULT_CLOCK: Field = 58;
    pub const DEFAULT_TRACK_EVENT: Field = 11;
}

/// `ClockSnapshot` (`clock_snapshot.proto`).
pub mod clock {
    use super::Field;

    pub const CLOCKS: Field = 1;
    pub const PRIMARY: Field = 2;
    pub const ID: Field = 1;
    pub const TIMESTAMP: Field = 2;
    pub const IS_INCREMENTAL: Field = 3;
    pub const MULTIPLIER: Field = 4;
    pub const REALTIME: u64 = 1;
    pub const BOOTTIME: u64 = 6;
    /// The first clock id that is local to a sequence.
    pub const OF_SEQUENCE: u64 = 64;
}

/// `TrackDescriptor` (`track_descriptor.proto`), with nested messages.
pub mod track {
    use super::Field;

    pub const UUID: Field = 1;
    pub const NAME: Field = 2;
    pub const PROCESS: Field = 3;
    pub const THREAD: Field = 4;
    pub const PARENT: Field = 5;
    pub const COUNTER: Field = 8;
    pub const CHILD_ORDERING: Field = 11;
    pub const RANK: Field = 12;
    /// A text for readers, in which this crate writes Kineto's ids as JSON.
    pub const DESCRIPTION: Field = 14;
    /// `child_ordering`: by the children's names.
    pub const BY_NAME: u64 = 1;
    /// `child_ordering`: by the children's ranks.
    pub const BY_RANK: u64 = 3;
    /// Of `ProcessDescriptor`.
    pub const PROCESS_ID: Field = 1;
    pub const PROCESS_NAME: Field = 6;
    pub const PROCESS_LABELS: Field = 8;
    /// Of `ThreadDescriptor`.
    pub const THREAD_PROCESS_ID: Field = 1;
    pub const THREAD_ID: Field = 2;
    pub const THREAD_NAME: Field = 5;
    /// Of `CounterDescriptor`.
    pub const UNIT: Field = 3;
    pub const UNIT_BYTES: u64 = 3;
}

/// `TrackEvent` (`track_event.proto`).
pub mod event {
    use super::Field;

    pub const CATEGORY_IDS: Field = 3;
    pub const DEBUG_ANNOTATIONS: Field = 4;
    pub const TYPE: Field = 9;
    pub const NAME_ID: Field = 10;
    pub const TRACK_UUID: Field = 11;
    /// The fields of flows before they had 64 bits.
    pub const OLD_FLOW_IDS: Field = 36;
    pub const OLD_TERMINATING_FLOW_IDS: Field = 42;
    pub const CATEGORIES: Field = 22;
    pub const NAME: Field = 23;
    pub const COUNTER_VALUE: Field = 30;
    pub const DOUBLE_COUNTER_VALUE: Field = 44;
    pub const FLOW_IDS: Field = 47;
    pub const TERMINATING_FLOW_IDS: Field = 48;
    /// `GpuCorrelation`, whose first field lists the `event_id`s of render stages.
    pub const GPU_CORRELATION: Field = 3000;
    pub const SUBMISSION_EVENT_IDS: Field = 1;
    pub const SLICE_BEGIN: u64 = 1;
    pub const SLICE_END: u64 = 2;
    pub const INSTANT: u64 = 3;
    pub const COUNTER: u64 = 4;
}

/// `DebugAnnotation` (`debug_annotation.proto`).
pub mod annotation {
    use super::Field;

    pub const NAME_ID: Field = 1;
    pub const BOOL: Field = 2;
    pub const UINT: Field = 3;
    pub const INT: Field = 4;
    pub const DOUBLE: Field = 5;
    pub const STRING: Field = 6;
    pub const POINTER: Field = 7;
    /// `NestedValue`, with which Chrome writes nested values.
    pub const NESTED: Field = 8;
    pub const JSON: Field = 9;
    pub const NAME: Field = 10;
    pub const DICT_ENTRIES: Field = 11;
    pub const ARRAY_VALUES: Field = 12;
    pub const STRING_ID: Field = 17;
    /// Of `NestedValue`.
    pub const NESTED_TYPE: Field = 1;
    pub const NESTED_KEYS: Field = 2;
    pub const NESTED_VALUES: Field = 3;
    pub const NESTED_ITEMS: Field = 4;
    pub const NESTED_INT: Field = 5;
    pub const NESTED_DOUBLE: Field = 6;
    pub const NESTED_BOOL: Field = 7;
    pub const NESTED_STRING: Field = 8;
    /// `nested_type`.
    pub const DICT: u64 = 1;
    pub const ARRAY: u64 = 2;
}

/// `InternedData` (`interned_data.proto`).
pub mod interned {
    use super::Field;

    pub const CATEGORIES: Field = 1;
    pub const NAMES: Field = 2;
    pub const ANNOTATION_NAMES: Field = 3;
    pub const GPU_SPECIFICATIONS: Field = 24;
    pub const ANNOTATION_STRINGS: Field = 29;
    pub const GPU_COUNTER_DESCRIPTORS: Field = 47;
    pub const COMPUTE_ARG_NAMES: Field = 1001;
    /// Of each entry.
    pub const ID: Field = 1;
    pub const TEXT: Field = 2;
}

/// `TraceAttributes` (`trace_attributes.proto`).
pub mod attributes {
    use super::Field;

    pub const ATTRIBUTE: Field = 1;
    pub const KEY: Field = 1;
    pub const INT: Field = 2;
    pub const STRING: Field = 3;
}

/// `GpuRenderStageEvent` (`gpu_render_stage_event.proto`), as PyTorch writes it, with nested messages.
pub mod stage {
    use super::Field;

    pub const EVENT_ID: Field = 1;
    pub const DURATION: Field = 2;
    pub const EXTRA_DATA: Field = 6;
    pub const GPU_ID: Field = 11;
    pub const QUEUE_ID: Field = 13;
    pub const STAGE_ID: Field = 14;
    pub const NAME: Field = 17;
    pub const WAIT_IDS: Field = 18;
    pub const NAME_ID: Field = 20;
    pub const LAUNCH: Field = 21;
    /// Of `ExtraData`.
    pub const EXTRA_NAME: Field = 1;
    pub const EXTRA_VALUE: Field = 2;
    /// Of `ComputeKernelLaunch`.
    pub const GRID: Field = 1;
    pub const WORKGROUP: Field = 2;
    pub const ARGS: Field = 3;
    /// Of its arguments.
    pub const ARG_NAME_ID: Field = 1;
    pub const ARG_NAME: Field = 2;
    pub const ARG_INT: Field = 3;
    pub const ARG_UINT: Field = 4;
}

/// `GpuCounterEvent` (`gpu_counter_event.proto`), with nested messages.
pub mod gpu_counter {
    use super::Field;

    pub const DESCRIPTOR: Field = 1;
    pub const COUNTERS: Field = 2;
    pub const GPU_ID: Field = 3;
    pub const DESCRIPTOR_ID: Field = 4;
    /// Of a counter, and of the description of one.
    pub const ID: Field = 1;
    pub const INT: Field = 2;
    pub const DOUBLE: Field = 3;
    /// Of `GpuCounterDescriptor`.
    pub const SPECS: Field = 1;
    /// Of an interned one.
    pub const INTERNED_DESCRIPTOR: Field = 2;
}
