//! Reads the fields of CUPTI's records from their bytes.
//!
//! From 11.7 to 13.5 records only grew at their ends, so a field exists if the record is long enough, whatever the
//! version. No other value in a buffer is trusted. NVIDIA's numbers of the fields that a subscriber may select are in brackets
//! ([`selected_fields`](super::selected_fields)).

use crate::records::fields::{SelectableField, kinds, records};

kinds! {
    kind Record
    Kernel(Kernel) = CONCURRENT_KERNEL: 10, KERNEL: 3;
    Memcpy(Memcpy) = MEMCPY: 1;
    Memcpy2(Memcpy2) = MEMCPY2: 22;
    Memset(Memset) = MEMSET: 2;
    Runtime(Api) = RUNTIME: 5;
    Driver(Api) = DRIVER: 4;
    Synchronization(Synchronization) = SYNCHRONIZATION: 38;
    CudaEvent(CudaEvent) = CUDA_EVENT: 36;
    ExternalCorrelation(ExternalCorrelation) = EXTERNAL_CORRELATION: 39;
    Overhead(Overhead) = OVERHEAD: 17;
    Marker(Marker) = MARKER: 12;
    MarkerData(MarkerData) = MARKER_DATA: 13;
    Memory2(Memory2) = MEMORY2: 49;
    GraphTrace(GraphTrace) = GRAPH_TRACE: 51;
}

records! {
    /// A kernel.
    Kernel, 176 bytes {
        registers: u16 = 6 [4], start: u64 = 16 [7], end: u64 = 24 [8], device: u32 = 40 [10], context: u32 = 44 [11],
        stream: u32 = 48 [12], grid_x: u32 = 52 [13], grid_y: u32 = 56 [14], grid_z: u32 = 60 [15],
        block_x: u32 = 64 [16], block_y: u32 = 68 [17], block_z: u32 = 72 [18], static_shared: u32 = 76 [19],
        dynamic_shared: u32 = 80 [20], correlation: u32 = 92 [22], name: u64 = 104 [24], queued: u64 = 120,
        graph_node: u64 = 144 [31], graph: u32 = 156 [33], channel: u32 = 168 [35], channel_type: u32 = 172 [36],
    }
    + { priority: u32 = 216 [45], }
    /// A copy on a device, or between it and the host.
    Memcpy, 88 bytes {
        copy_kind: u8 = 4 [1], source_kind: u8 = 5 [2], target_kind: u8 = 6 [3], bytes: u64 = 8 [5],
        start: u64 = 16 [6], end: u64 = 24 [7], device: u32 = 32 [8], context: u32 = 36 [9], stream: u32 = 40 [10],
        correlation: u32 = 44 [11], graph_node: u64 = 64 [12], graph: u32 = 72 [13], channel: u32 = 76 [14],
        channel_type: u32 = 80 [15],
    }
    /// A copy between devices.
    Memcpy2, 96 bytes {
        copy_kind: u8 = 4 [1], source_kind: u8 = 5 [2], target_kind: u8 = 6 [3], bytes: u64 = 8 [5],
        start: u64 = 16 [6], end: u64 = 24 [7], device: u32 = 32 [8], context: u32 = 36 [9], stream: u32 = 40 [10],
        source_device: u32 = 44 [11], source_context: u32 = 48 [12], target_device: u32 = 52 [13],
        target_context: u32 = 56 [14], correlation: u32 = 60 [15], graph_node: u64 = 72 [16], graph: u32 = 80 [17],
        channel: u32 = 84 [18], channel_type: u32 = 88 [19],
    }
    /// A fill.
    Memset, 88 bytes {
        bytes: u64 = 8 [2], start: u64 = 16 [3], end: u64 = 24 [4], device: u32 = 32 [5], context: u32 = 36 [6],
        stream: u32 = 40 [7], correlation: u32 = 44 [8], memory_kind: u16 = 50 [10], graph_node: u64 = 64 [11],
        graph: u32 = 72 [12], channel: u32 = 76 [13], channel_type: u32 = 80 [14],
    }
    /// A call of the runtime or the driver.
    Api, 40 bytes {
        function: u32 = 4 [1], start: u64 = 8 [2], end: u64 = 16 [3], thread: u32 = 28 [5], correlation: u32 = 32 [6],
        result: u32 = 36 [7],
    }
    /// A wait.
    Synchronization, 40 bytes {
        what: u32 = 4 [1], start: u64 = 8 [2], end: u64 = 16 [3], correlation: u32 = 24 [4], context: u32 = 28 [5],
        stream: u32 = 32 [6], event: u32 = 36 [7],
    }
    /// An event that was recorded.
    CudaEvent, 24 bytes {
        correlation: u32 = 4 [1], context: u32 = 8 [2], stream: u32 = 12 [3], event: u32 = 16 [4],
    }
    + { device: u32 = 24 [5], device_time: u64 = 40 [6], }
    /// An id that was pushed around a call.
    ExternalCorrelation, 24 bytes {
        id_kind: u32 = 4 [1], id: u64 = 8 [2], correlation: u32 = 16 [3],
    }
    /// Overhead of CUPTI.
    Overhead, 40 bytes {
        what: u32 = 4 [1], start: u64 = 24 [4], end: u64 = 32 [5],
    }
    /// The begin or end of an NVTX range, or an instant. The selectable fields lack the kind of object that it is about, so it is
    /// recorded as a whole.
    Marker, 56 bytes {
        flags: u32 = 4, timestamp: u64 = 8, id: u32 = 16, object_kind: u32 = 20, process: u32 = 24, thread: u32 = 28,
        name: u64 = 40, domain: u64 = 48,
    }
    /// Further data of a marker.
    MarkerData, 32 bytes {
        flags: u32 = 4, id: u32 = 8, payload_kind: u32 = 12, payload: u64 = 16, color: u32 = 24, category: u32 = 28,
    }
    /// A device allocation or free.
    Memory2, 120 bytes {
        operation: u32 = 4 [1], memory_kind: u32 = 8 [2], correlation: u32 = 12 [3], address: u64 = 16 [4],
        bytes: u64 = 24 [5], timestamp: u64 = 32 [6], device: u32 = 52 [8],
    }
    /// The launch of a graph as a whole.
    GraphTrace, 48 bytes {
        correlation: u32 = 4 [1], start: u64 = 8 [2], end: u64 = 16 [3], device: u32 = 24 [4], graph: u32 = 28 [5],
        context: u32 = 32 [6], stream: u32 = 36 [7],
    }
}

/// Returns the length of the shortest record of a kind, over all versions.
pub(super) fn shortest_length(number: u32) -> Option<usize> {
    kind::ALL.iter().find(|(kind, ..)| *kind == number).map(|(_, length, _)| *length)
}

/// Returns the fields to record of a kind; empty for kinds that cannot be recorded this way.
pub(super) fn selectable_fields(number: u32) -> &'static [SelectableField] {
    kind::ALL.iter().find(|(kind, ..)| *kind == number).map_or(&[], |(_, _, fields)| *fields)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::records::fields::make_record as record;

    const KERNEL: [(usize, usize, u64); 21] = [
        (6, 2, 40),
        (16, 8, 1000),
        (24, 8, 2000),
        (40, 4, 1),
        (44, 4, 2),
        (48, 4, 7),
        (52, 4, 10),
        (56, 4, 11),
        (60, 4, 12),
        (64, 4, 13),
        (68, 4, 14),
        (72, 4, 15),
        (76, 4, 16),
        (80, 4, 17),
        (92, 4, 18),
        (104, 8, 0xABCD),
        (120, 8, 19),
        (144, 8, 21),
        (156, 4, 22),
        (168, 4, 23),
        (172, 4, 24),
    ];

    #[test]
    fn kernels_of_every_version_are_read() {
        for (version, size) in
            [("11.7", 176), ("11.8", 200), ("12.0", 208), ("13.0", 216), ("13.1", 224), ("13.3", 232), ("13.4", 248)]
        {
            let mut fields = KERNEL.to_vec();
            if size >= 220 {
                fields.push((216, 4, 0xFFFF_FFFF));
            }
            let bytes = record(10, size, &fields);
            let Some(Record::Kernel(kernel)) = Record::from_bytes(&bytes) else { panic!("{version}") };
            assert_eq!(
                [
                    kernel.device(),
                    kernel.context(),
                    kernel.stream(),
                    kernel.correlation(),
                    kernel.graph(),
                    kernel.channel()
                ],
                [1, 2, 7, 18, 22, 23]
            );
            assert_eq!(
                [
                    kernel.grid_x(),
                    kernel.grid_y(),
                    kernel.grid_z(),
                    kernel.block_x(),
                    kernel.block_y(),
                    kernel.block_z()
                ],
                [10, 11, 12, 13, 14, 15]
            );
            assert_eq!([kernel.static_shared(), kernel.dynamic_shared(), kernel.channel_type()], [16, 17, 24]);
            assert_eq!(
                [kernel.start(), kernel.end(), kernel.name(), kernel.queued(), kernel.graph_node()],
                [1000, 2000, 0xABCD, 19, 21]
            );
            assert_eq!((kernel.registers(), kernel.priority()), (40, (size >= 220).then_some(u32::MAX)), "{version}");
        }
    }

    #[test]
    fn copies_and_fills_of_every_version_are_read() {
        for size in [88, 96, 112] {
            let fields = [
                (4, 1, 1),
                (5, 1, 2),
                (6, 1, 3),
                (8, 8, 4096),
                (16, 8, 5),
                (24, 8, 6),
                (32, 4, 7),
                (36, 4, 8),
                (40, 4, 9),
                (44, 4, 10),
                (64, 8, 11),
                (72, 4, 12),
                (76, 4, 13),
                (80, 4, 14),
            ];
            let bytes = record(1, size, &fields);
            let Some(Record::Memcpy(copy)) = Record::from_bytes(&bytes) else { panic!("{size}") };
            assert_eq!([copy.copy_kind(), copy.source_kind(), copy.target_kind()], [1, 2, 3]);
            assert_eq!([copy.bytes(), copy.start(), copy.end(), copy.graph_node()], [4096, 5, 6, 11]);
            assert_eq!([copy.device(), copy.context(), copy.stream(), copy.correlation()], [7, 8, 9, 10]);
            assert_eq!([copy.graph(), copy.channel(), copy.channel_type()], [12, 13, 14]);
        }
    }

    #[test]
    fn copies_between_devices_and_fills_are_read() {
        let fields = [
            (4, 1, 10),
            (8, 8, 64),
            (16, 8, 5),
            (24, 8, 6),
            (32, 4, 7),
            (36, 4, 8),
            (40, 4, 9),
            (44, 4, 1),
            (48, 4, 2),
            (52, 4, 3),
            (56, 4, 4),
            (60, 4, 10),
            (72, 8, 11),
            (80, 4, 12),
            (84, 4, 13),
            (88, 4, 14),
        ];
        let bytes = record(22, 96, &fields);
        let Some(Record::Memcpy2(copy)) = Record::from_bytes(&bytes) else { panic!() };
        assert_eq!(
            [copy.source_device(), copy.source_context(), copy.target_device(), copy.target_context()],
            [1, 2, 3, 4]
        );
        assert_eq!(
            [copy.correlation(), copy.graph(), copy.channel(), copy.channel_type(), copy.stream()],
            [10, 12, 13, 14, 9]
        );
        assert_eq!([copy.bytes(), copy.graph_node()], [64, 11]);
        for size in [88, 104] {
            let fields = [
                (8, 8, 64),
                (16, 8, 5),
                (24, 8, 6),
                (32, 4, 7),
                (36, 4, 8),
                (40, 4, 9),
                (44, 4, 10),
                (50, 2, 3),
                (64, 8, 11),
                (72, 4, 12),
                (76, 4, 13),
                (80, 4, 14),
            ];
            let bytes = record(2, size, &fields);
            let Some(Record::Memset(fill)) = Record::from_bytes(&bytes) else { panic!("{size}") };
            assert_eq!([fill.device(), fill.context(), fill.stream(), fill.correlation()], [7, 8, 9, 10]);
            assert_eq!([fill.graph(), fill.channel(), fill.channel_type(), fill.memory_kind().into()], [12, 13, 14, 3]);
            assert_eq!([fill.bytes(), fill.start(), fill.end(), fill.graph_node()], [64, 5, 6, 11]);
        }
    }

    #[test]
    fn other_records_are_read() {
        let bytes =
            record(5, 40, &[(4, 4, 211), (8, 8, 1), (16, 8, 2), (24, 4, 99), (28, 4, 3), (32, 4, 4), (36, 4, 5)]);
        let Some(Record::Runtime(call)) = Record::from_bytes(&bytes) else { panic!() };
        assert_eq!([call.function(), call.thread(), call.correlation(), call.result()], [211, 3, 4, 5]);
        assert_eq!([call.start(), call.end()], [1, 2]);
        assert!(matches!(Record::from_bytes(&record(4, 40, &[])), Some(Record::Driver(_))));
        for size in [40, 56] {
            let bytes =
                record(38, size, &[(4, 4, 2), (8, 8, 1), (16, 8, 2), (24, 4, 3), (28, 4, 4), (32, 4, 5), (36, 4, 6)]);
            let Some(Record::Synchronization(sync)) = Record::from_bytes(&bytes) else { panic!() };
            assert_eq!([sync.what(), sync.correlation(), sync.context(), sync.stream(), sync.event()], [2, 3, 4, 5, 6]);
            assert_eq!([sync.start(), sync.end()], [1, 2]);
        }
        for (size, device_time) in [(24, None), (56, Some(99))] {
            let mut fields = vec![(4, 4, 1), (8, 4, 2), (12, 4, 3), (16, 4, 4)];
            if size == 56 {
                fields.extend([(24, 4, 5), (40, 8, 99)]);
            }
            let bytes = record(36, size, &fields);
            let Some(Record::CudaEvent(event)) = Record::from_bytes(&bytes) else { panic!() };
            assert_eq!([event.correlation(), event.context(), event.stream(), event.event()], [1, 2, 3, 4]);
            assert_eq!((event.device_time(), event.device()), (device_time, device_time.map(|_| 5)));
        }
        let bytes = record(39, 24, &[(4, 4, 3), (8, 8, u64::MAX - 1), (16, 4, 7)]);
        let Some(Record::ExternalCorrelation(external)) = Record::from_bytes(&bytes) else { panic!() };
        assert_eq!((external.id_kind(), external.id(), external.correlation()), (3, u64::MAX - 1, 7));
        for size in [40, 48, 56] {
            let bytes = record(17, size, &[(4, 4, 1 << 16), (24, 8, 1), (32, 8, 2)]);
            let Some(Record::Overhead(overhead)) = Record::from_bytes(&bytes) else { panic!() };
            assert_eq!((overhead.what(), overhead.start(), overhead.end()), (1 << 16, 1, 2));
        }
        for size in [48, 56] {
            let bytes =
                record(51, size, &[(4, 4, 1), (8, 8, 2), (16, 8, 3), (24, 4, 4), (28, 4, 5), (32, 4, 6), (36, 4, 7)]);
            let Some(Record::GraphTrace(graph)) = Record::from_bytes(&bytes) else { panic!() };
            assert_eq!(
                [graph.correlation(), graph.device(), graph.graph(), graph.context(), graph.stream()],
                [1, 4, 5, 6, 7]
            );
            assert_eq!([graph.start(), graph.end()], [2, 3]);
        }
    }

    #[test]
    fn markers_and_their_data_are_read() {
        let fields = [(4, 4, 2), (8, 8, 1), (16, 4, 3), (20, 4, 4), (24, 4, 5), (28, 4, 6), (40, 8, 7), (48, 8, 8)];
        let bytes = record(12, 56, &fields);
        let Some(Record::Marker(marker)) = Record::from_bytes(&bytes) else { panic!() };
        assert_eq!(
            [marker.flags(), marker.id(), marker.object_kind(), marker.process(), marker.thread()],
            [2, 3, 4, 5, 6]
        );
        assert_eq!([marker.timestamp(), marker.name(), marker.domain()], [1, 7, 8]);
        for size in [32, 40] {
            let bytes = record(13, size, &[(4, 4, 1), (8, 4, 2), (12, 4, 3), (16, 8, 4), (24, 4, 5), (28, 4, 6)]);
            let Some(Record::MarkerData(data)) = Record::from_bytes(&bytes) else { panic!() };
            assert_eq!([data.flags(), data.id(), data.payload_kind(), data.color(), data.category()], [1, 2, 3, 5, 6]);
            assert_eq!(data.payload(), 4);
        }
    }

    #[test]
    fn allocations_of_every_version_are_read() {
        for size in [120, 128] {
            let fields =
                [(4, 4, 1), (8, 4, 3), (12, 4, 4), (16, 8, 5), (24, 8, 6), (32, 8, 7), (48, 4, 99), (52, 4, 8)];
            let bytes = record(49, size, &fields);
            let Some(Record::Memory2(memory)) = Record::from_bytes(&bytes) else { panic!("{size}") };
            assert_eq!([memory.operation(), memory.memory_kind(), memory.correlation(), memory.device()], [1, 3, 4, 8]);
            assert_eq!([memory.address(), memory.bytes(), memory.timestamp()], [5, 6, 7]);
        }
    }

    #[test]
    fn short_and_unknown_records_are_rejected() {
        for (number, size, _) in kind::ALL.iter().copied() {
            assert!(Record::from_bytes(&record(number, size, &[])).is_some(), "{number}");
            assert!(Record::from_bytes(&record(number, size, &[])[..size - 1]).is_none(), "{number}");
        }
        for number in [0, 8, 9, 11, 900, u32::MAX] {
            assert!(Record::from_bytes(&record(number, 256, &[])).is_none());
        }
        assert!(Record::from_bytes(&[1, 0, 0]).is_none());
    }
}
