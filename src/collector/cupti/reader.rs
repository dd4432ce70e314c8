//! Reads CUPTI's records into a recording.

use super::ffi::{DRIVER, RUNTIME};
use super::kernels::KernelNames;
use super::ledger::Ledger;
use super::names::Functions;
use super::records::{Api, CudaEvent, GraphTrace, Kernel, Memcpy, Memcpy2, Memset, Record, Synchronization};
use super::shapes;
use super::walk::{Records, Steps, Walker};
use crate::activity::{ActivityType, ActivityTypes};
use crate::buffer::Loss;
use crate::collector::{
    Batch, DeviceWork, EventRecord, External, HostCall, Name, Overhead, RecordSink, Synchronization as Wait, Thread,
};

/// Gives the name of a function, by its domain and number.
pub(super) type Ask = Box<dyn Fn(u32, u32) -> Option<String> + Send>;

/// What a recording has met so far.
pub(super) struct Reader {
    sink: RecordSink,
    types: ActivityTypes,
    ask: Ask,
    kernels: KernelNames,
    functions: Functions,
    /// Names that are put together from numbers.
    composed: Vec<(u32, Name)>,
    pub(super) ledger: Ledger,
    /// The ids that came last, the newest at `newest`.
    pushed: [Pushed; THREADS],
    newest: usize,
    /// The context that was seen last, which is the next one too, mostly.
    context: (u32, u32),
}

impl std::fmt::Debug for Reader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reader").field("types", &self.types).finish_non_exhaustive()
    }
}

/// An external id on its way to its call, whose record comes next, or a little later where threads share a buffer.
#[derive(Clone, Copy, Debug)]
struct Pushed {
    correlation: u32,
    id: u64,
    taken: bool,
}

impl Pushed {
    /// Hands over an id whose call has not come behind it.
    fn settle(&mut self, batch: &mut Batch<'_>) {
        if !self.taken {
            self.taken = true;
            batch.external(External { correlation: self.correlation.into(), id: self.id });
        }
    }
}

/// So many threads may be between the record of an id and that of its call.
const THREADS: usize = 8;

/// The kind of external ids that is ours.
const OWN_IDS: u32 = 3;

/// Prefixes for numbers in `composed`.
const COPY: u32 = 1 << 24;
const FILL: u32 = 2 << 24;
const GRAPH: u32 = 3 << 24;

/// What a record says that all work of devices has, of a type and with a name, and the words of its shape.
macro_rules! work {
    ($record:ident, $kind:ident, $name:expr, $shape:ident, $words:ident) => {
        DeviceWork {
            kind: ActivityType::$kind,
            name: $name,
            device: $record.device().cast_signed(),
            stream: $record.stream(),
            start: $record.start(),
            end: $record.end(),
            correlation: $record.correlation().into(),
            shape: &shapes::$shape,
            words: &shapes::$words($record),
        }
    };
}

impl Reader {
    pub(super) fn new(sink: RecordSink, types: ActivityTypes, ask: Ask) -> Reader {
        Reader {
            sink,
            types,
            ask,
            kernels: KernelNames::default(),
            functions: Functions::default(),
            composed: Vec::new(),
            ledger: Ledger::new(),
            pushed: [Pushed { correlation: 0, id: 0, taken: true }; THREADS],
            newest: 0,
            context: (0, u32::MAX),
        }
    }

    pub(super) fn sink(&self) -> &RecordSink {
        &self.sink
    }

    /// Reads all records of a buffer; returns whether it could be read to its end.
    pub(super) fn read(&mut self, bytes: &[u8], walker: &impl Walker) -> bool {
        let sink = self.sink.clone();
        self.kernels.next_buffer();
        let steps = Steps::new(walker);
        let mut records = Records::new(bytes, &steps);
        let unread = sink.record(|batch| {
            let mut unread = 0;
            for bytes in records.by_ref() {
                match Record::read(bytes) {
                    Some(record) => self.take(&record, batch),
                    None => unread += 1,
                }
            }
            self.pushed.iter_mut().for_each(|pushed| pushed.settle(batch));
            unread
        });
        // How many more there were cannot be known.
        sink.lost(Loss::DeviceRecordsUnread, unread + u64::from(records.broken()));
        !records.broken()
    }

    #[inline]
    fn take(&mut self, record: &Record<'_>, batch: &mut Batch<'_>) {
        match record {
            Record::Kernel(kernel) => self.kernel(kernel, batch),
            Record::Runtime(call) => self.call(call, RUNTIME, batch),
            Record::Driver(call) => self.call(call, DRIVER, batch),
            Record::ExternalCorrelation(external) if external.id_kind() == OWN_IDS => {
                self.newest = (self.newest + 1) % THREADS;
                if let Some(oldest) = self.pushed.get_mut(self.newest) {
                    oldest.settle(batch);
                    *oldest = Pushed { correlation: external.correlation(), id: external.id(), taken: false };
                }
            }
            // Another profiler's.
            Record::ExternalCorrelation(_) => {}
            Record::Memcpy(copy) => self.copy(copy, batch),
            Record::Memcpy2(copy) => self.peer_copy(copy, batch),
            Record::Memset(fill) => self.fill(fill, batch),
            Record::Synchronization(sync) => synchronization(sync, batch),
            Record::CudaEvent(event) => self.event(event, batch),
            Record::Overhead(overhead) => {
                let name = batch.name(overhead_name(overhead.what()));
                batch.overhead(&Overhead { name, start: overhead.start(), end: overhead.end() });
            }
            Record::GraphTrace(graph) => self.graph(graph, batch),
        }
    }

    /// Returns the id that was pushed around a call, 0 if it has not come.
    #[inline]
    fn id_around(&mut self, correlation: u32) -> u64 {
        let newest = self.pushed.get(self.newest).filter(|pushed| pushed.correlation == correlation);
        let place = if newest.is_some() {
            Some(self.newest)
        } else {
            self.pushed.iter().position(|pushed| pushed.correlation == correlation)
        };
        place.and_then(|place| self.pushed.get_mut(place)).map_or(0, |pushed| {
            pushed.taken = true;
            pushed.id
        })
    }

    fn call(&mut self, call: &Api<'_>, domain: u32, batch: &mut Batch<'_>) {
        let number = call.function();
        let function = self.functions.get((domain, number), || (self.ask)(domain, number), batch);
        let (does, correlation, thread) = (function.does, call.correlation(), call.thread());
        self.ledger.call(call.start());
        let external = self.id_around(correlation);
        if does.is_noise {
            return;
        }
        let worked = call.result() == 0;
        if worked && (does.begins_capture || does.ends_capture) {
            self.ledger.capture(thread, does.begins_capture);
        }
        let launches = does.launches && worked && self.ledger.reaches_device(thread);
        // Kernels that nobody records do not come, and those of a pause may not.
        let is_owed = launches && !batch.meets_pause(call.start(), call.end());
        if is_owed && does.runs_kernels && self.types.contains(ActivityType::ConcurrentKernel) {
            self.ledger.launched(correlation, call.start());
        }
        batch.call(&HostCall {
            kind: if domain == RUNTIME { ActivityType::CudaRuntime } else { ActivityType::CudaDriver },
            name: function.name,
            thread: Thread::Handle(thread),
            start: call.start(),
            end: call.end(),
            correlation: correlation.into(),
            external,
            launches,
            shape: &shapes::CALL,
            words: &shapes::call_words(call),
        });
    }

    fn kernel(&mut self, kernel: &Kernel<'_>, batch: &mut Batch<'_>) {
        self.on_device(kernel.context(), kernel.device(), kernel.correlation(), batch);
        let name = self.kernels.name(kernel.name(), batch);
        batch.work(&work!(kernel, ConcurrentKernel, name, KERNEL, kernel_words));
    }

    fn copy(&mut self, copy: &Memcpy<'_>, batch: &mut Batch<'_>) {
        self.on_device(copy.context(), copy.device(), copy.correlation(), batch);
        let name = self.copy_name([copy.copy_kind(), copy.source_kind(), copy.target_kind()], batch);
        batch.work(&work!(copy, GpuMemcpy, name, COPY, copy_words));
    }

    fn peer_copy(&mut self, copy: &Memcpy2<'_>, batch: &mut Batch<'_>) {
        self.on_device(copy.context(), copy.device(), copy.correlation(), batch);
        self.in_context(copy.source_context(), copy.source_device(), batch);
        self.in_context(copy.target_context(), copy.target_device(), batch);
        let name = self.copy_name([copy.copy_kind(), copy.source_kind(), copy.target_kind()], batch);
        batch.work(&work!(copy, GpuMemcpy, name, PEER_COPY, peer_copy_words));
    }

    fn fill(&mut self, fill: &Memset<'_>, batch: &mut Batch<'_>) {
        self.on_device(fill.context(), fill.device(), fill.correlation(), batch);
        let memory = u32::from(fill.memory_kind());
        let name = self.composed(FILL | memory, || format!("Memset ({})", memory_name(memory)), batch);
        batch.work(&work!(fill, GpuMemset, name, COPY, fill_words));
    }

    fn graph(&mut self, graph: &GraphTrace<'_>, batch: &mut Batch<'_>) {
        self.on_device(graph.context(), graph.device(), graph.correlation(), batch);
        let name = self.composed(GRAPH, || "CUDA graph".to_owned(), batch);
        batch.work(&work!(graph, ConcurrentKernel, name, GRAPH, graph_words));
    }

    fn event(&mut self, event: &CudaEvent<'_>, batch: &mut Batch<'_>) {
        if let Some(device) = event.device() {
            self.in_context(event.context(), device, batch);
        }
        // Of those that nobody asked for, only waits need to know where they were recorded.
        let is_row = self.types.contains(ActivityType::CudaEvent);
        let name = batch.name("cudaEvent");
        batch.event(&EventRecord {
            kind: ActivityType::CudaEvent,
            name,
            context: event.context(),
            stream: event.stream(),
            event: event.event(),
            at: if is_row { event.device_time().unwrap_or(0) } else { 0 },
            correlation: event.correlation().into(),
            shape: &shapes::EVENT,
            words: &shapes::event_words(event.context(), event.event()),
        });
    }

    #[inline]
    fn on_device(&mut self, context: u32, device: u32, correlation: u32, batch: &mut Batch<'_>) {
        self.in_context(context, device, batch);
        self.ledger.worked(correlation);
    }

    #[inline]
    fn in_context(&mut self, context: u32, device: u32, batch: &mut Batch<'_>) {
        if self.context != (context, device) {
            self.context = (context, device);
            batch.context(context, device.cast_signed());
        }
    }

    fn copy_name(&mut self, [copy, source, target]: [u8; 3], batch: &mut Batch<'_>) -> Name {
        let number = COPY | u32::from(copy) << 16 | u32::from(source) << 8 | u32::from(target);
        let text = || {
            const DIRECTIONS: [&str; 11] =
                ["<unknown>", "HtoD", "DtoH", "HtoA", "AtoH", "AtoA", "AtoD", "DtoA", "DtoD", "HtoH", "PtoP"];
            let direction = DIRECTIONS.get(usize::from(copy)).unwrap_or(&DIRECTIONS[0]);
            format!("Memcpy {direction} ({} -> {})", memory_name(source.into()), memory_name(target.into()))
        };
        self.composed(number, text, batch)
    }

    fn composed(&mut self, number: u32, text: impl FnOnce() -> String, batch: &mut Batch<'_>) -> Name {
        if let Some((_, name)) = self.composed.iter().find(|(known, _)| *known == number) {
            return *name;
        }
        let name = batch.name(&text());
        // There are a few of them; more can only be garbage.
        if self.composed.len() < 256 {
            self.composed.push((number, name));
        }
        name
    }
}

fn synchronization(sync: &Synchronization<'_>, batch: &mut Batch<'_>) {
    let names = &shapes::SYNC_NAMES;
    let name = batch.name(names.get(sync.what() as usize).unwrap_or(&names[0]));
    batch.synchronization(&Wait {
        kind: ActivityType::CudaSync,
        name,
        context: sync.context(),
        stream: sync.stream(),
        event: sync.event(),
        start: sync.start(),
        end: sync.end(),
        correlation: sync.correlation().into(),
        shape: &shapes::SYNC,
        words: &shapes::sync_words(sync.context(), sync.what(), sync.event()),
    });
}

/// What libkineto calls kinds of memory.
fn memory_name(kind: u32) -> &'static str {
    const NAMES: [&str; 8] =
        ["Unknown", "Pageable", "Pinned", "Device", "Array", "Managed", "Device Static", "Managed Static"];
    NAMES.get(kind as usize).unwrap_or(&"Unrecognized")
}

/// What libkineto calls kinds of overhead.
fn overhead_name(kind: u32) -> &'static str {
    const NAMES: [&str; 8] = [
        "Unknown",
        "Buffer Flush",
        "Instrumentation",
        "Resource",
        "Runtime Triggered Module Loading",
        "Lazy Function Loading",
        "Command Buffer Full",
        "Activity Buffer Request",
    ];
    match kind {
        1 => "Driver Compiler",
        kind if kind & 0xFFFF == 0 => NAMES.get((kind >> 16) as usize).unwrap_or(&"Unrecognized"),
        _ => "Unrecognized",
    }
}

#[cfg(test)]
mod tests {
    use super::super::walk::Strides;
    use super::*;
    use crate::collector::trial::{self, Findings, Record as Found};
    use proptest::prelude::*;
    use std::time::Instant;

    const NEWEST: Strides = Strides { api_version: 130_401, is_11_8: false };

    fn record(number: u32, fields: &[(usize, usize, u64)]) -> Vec<u8> {
        let mut bytes = vec![0u8; NEWEST.size(number).unwrap_or(64)];
        bytes[..4].copy_from_slice(&number.to_ne_bytes());
        for (at, width, value) in fields {
            bytes[*at..at + width].copy_from_slice(&value.to_le_bytes()[..*width]);
        }
        bytes
    }

    fn kernel(correlation: u64, name: u64) -> Vec<u8> {
        let place = [
            (40, 4, 0),
            (44, 4, 1),
            (48, 4, 7),
            (52, 4, 8),
            (56, 4, 1),
            (60, 4, 1),
            (64, 4, 256),
            (68, 4, 1),
            (72, 4, 1),
        ];
        let own = [
            (6, 2, 32),
            (16, 8, 1000 + correlation),
            (24, 8, 1010 + correlation),
            (92, 4, correlation),
            (104, 8, name),
        ];
        record(10, &[&place[..], &own].concat())
    }

    fn call(number: u32, function: u64, correlation: u64, result: u64) -> Vec<u8> {
        record(
            number,
            &[
                (4, 4, function),
                (8, 8, 900 + correlation),
                (16, 8, 950 + correlation),
                (28, 4, 5),
                (32, 4, correlation),
                (36, 4, result),
            ],
        )
    }

    fn external(correlation: u64, id: u64) -> Vec<u8> {
        record(39, &[(4, 4, 3), (8, 8, id), (16, 4, correlation)])
    }

    fn reader(sink: &RecordSink) -> Reader {
        Reader::new(sink.clone(), ActivityTypes::ALL, Box::new(|_, _| None))
    }

    fn read(records: &[Vec<u8>]) -> (Findings, Reader) {
        let sink = trial::sink();
        let mut reader = reader(&sink);
        reader.read(&records.concat(), &NEWEST);
        (Findings::of_sink(&sink), reader)
    }

    #[test]
    fn an_id_goes_to_its_call_and_else_stands_alone() {
        let (found, _) = read(&[
            external(1, 71),
            call(4, 307, 1, 0),
            external(2, 72),
            external(3, 73),
            external(4, 74),
            call(5, 211, 3, 0),
            call(4, 307, 3, 0),
            call(4, 307, 4, 0),
        ]);
        let ids = |found: &Findings| -> Vec<_> {
            let id = |record: &Found| (record.name.clone(), record.correlation, record.external);
            found.records.iter().map(id).collect()
        };
        let (driver, runtime) = ("cuLaunchKernel".to_owned(), "cudaLaunchKernel".to_owned());
        let expected = [
            (driver.clone(), 1, 71),
            (runtime, 3, 73),
            (driver.clone(), 3, 73),
            (driver.clone(), 4, 74),
            (String::new(), 2, 72),
        ];
        assert_eq!(ids(&found), expected);
        let many: Vec<_> =
            (1..=9).map(|id| external(id, 70 + id)).chain([call(4, 307, 1, 0), call(4, 307, 2, 0)]).collect();
        let (found, _) = read(&many);
        assert_eq!(ids(&found)[..3], [(driver.clone(), 1, 0), (driver, 2, 72), (String::new(), 1, 71)]);
        let (found, _) = read(&[record(39, &[(4, 4, 4), (8, 8, 9), (16, 4, 1)]), call(4, 307, 1, 0)]);
        assert_eq!(found.records[0].external, 0, "another profiler's id");
    }

    #[test]
    fn launches_are_those_that_reach_a_device() {
        let (found, reader) = read(&[
            call(4, 307, 1, 0),
            call(4, 307, 2, 700),
            call(4, 539, 3, 0),
            call(4, 307, 4, 0),
            call(4, 497, 5, 0),
            call(4, 277, 6, 0),
            call(4, 304, 7, 0),
        ]);
        let launches: Vec<_> = found.records.iter().map(|call| (call.correlation, call.launches)).collect();
        assert_eq!(launches, [(1, true), (2, false), (3, false), (4, false), (5, false), (6, true)]);
        assert_eq!(reader.ledger.owed(), 1, "a copy may be empty, and is not waited for");
    }

    #[test]
    fn kinds_of_copies_fills_and_overheads_have_libkinetos_names() {
        let (found, _) = read(&[
            record(1, &[(4, 1, 1), (5, 1, 2), (6, 1, 3)]),
            record(1, &[(4, 1, 99), (5, 1, 0), (6, 1, 8)]),
            record(22, &[(4, 1, 10), (5, 1, 3), (6, 1, 3)]),
            record(2, &[(50, 2, 5)]),
            record(17, &[(4, 4, 1)]),
            record(17, &[(4, 4, 7 << 16)]),
            record(17, &[(4, 4, 3)]),
            record(38, &[(4, 4, 3)]),
            record(38, &[(4, 4, 77)]),
            record(36, &[(40, 8, 5)]),
            record(51, &[]),
        ]);
        let names: Vec<_> = found.records.iter().map(|record| record.name.as_str()).collect();
        let expected = [
            "Memcpy HtoD (Pinned -> Device)",
            "Memcpy <unknown> (Unknown -> Unrecognized)",
            "Memcpy PtoP (Device -> Device)",
            "Memset (Managed)",
            // All work of devices comes first.
            "CUDA graph",
            "Driver Compiler",
            "Activity Buffer Request",
            "Unrecognized",
            "Stream Sync",
            "Unknown Sync",
            "cudaEvent",
        ];
        assert_eq!(names, expected);
    }

    #[test]
    fn what_cannot_be_read_is_counted() {
        let unknown = record(77, &[]);
        let (found, _) = read(&[call(4, 307, 1, 0), unknown, call(4, 307, 2, 0)]);
        assert_eq!(
            (found.records.len(), found.lost(Loss::DeviceRecordsUnread)),
            (1, 2),
            "the record and what is behind it"
        );
        let (found, _) = read(&[call(4, 307, 1, 0), vec![5, 0]]);
        assert_eq!((found.records.len(), found.lost(Loss::DeviceRecordsUnread)), (1, 2));
    }

    /// Arguments of one record, as text.
    fn args(record: &Found) -> Vec<(&str, &str)> {
        record.args.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect()
    }

    #[test]
    fn arguments_are_those_of_libkineto_in_its_order() {
        let more = [
            (76, 4, 1024),
            (80, 4, 512),
            (120, 8, 9),
            (144, 8, 3 << 32 | 1),
            (156, 4, 4),
            (168, 4, 6),
            (172, 4, 2),
            (216, 4, 0xFFFF_FFFE),
            (56, 4, 65_535),
            (60, 4, 3),
            (68, 4, 2),
            (72, 4, 2),
            (52, 4, 0x7FFF_FFFF),
            (64, 4, 256),
            (6, 2, 255),
            (48, 4, 7),
            (44, 4, 1),
            (92, 4, 11),
        ];
        let (found, _) = read(&[record(10, &more)]);
        let expected = [
            ("queued", "9"),
            ("device", "0"),
            ("context", "1"),
            ("stream", "7"),
            ("correlation", "11"),
            ("registers per thread", "255"),
            ("shared memory", "1536"),
            ("grid", "[2147483647, 65535, 3]"),
            ("block", "[256, 2, 2]"),
            ("graph id", "4"),
            ("graph node id", "12884901889"),
            ("priority", "-2"),
            ("channel", "6"),
            ("channel_type", "2"),
        ];
        assert_eq!(args(&found.records[0]), expected);
        let copy = [(8, 8, 1000), (16, 8, 100), (24, 8, 600), (32, 4, 1), (36, 4, 2), (40, 4, 3), (44, 4, 4)];
        let (found, _) = read(&[
            record(1, &copy),
            call(5, 41, 4, 0),
            record(38, &[(4, 4, 2), (28, 4, 2), (32, 4, u64::MAX), (36, 4, 8)]),
        ]);
        let expected = [
            ("device", "1"),
            ("context", "2"),
            ("stream", "3"),
            ("correlation", "4"),
            ("bytes", "1000"),
            ("memory bandwidth (GB/s)", "2.0"),
            ("graph id", "0"),
            ("graph node id", "0"),
            ("channel", "0"),
            ("channel_type", "0"),
        ];
        let of = |kind| found.of(kind).next().unwrap();
        assert_eq!(args(of(ActivityType::GpuMemcpy)), expected);
        assert_eq!(args(of(ActivityType::CudaRuntime)), [("cbid", "41"), ("correlation", "4")]);
        let expected = [
            ("cuda_sync_kind", "\"Stream Wait Event\""),
            ("wait_on_stream", "-1"),
            ("wait_on_cuda_event_record_corr_id", "-1"),
            ("wait_on_cuda_event_id", "8"),
            ("stream", "-1"),
            ("correlation", "0"),
            ("device", "1"),
            ("context", "2"),
        ];
        assert_eq!(args(of(ActivityType::CudaSync)), expected);
    }

    proptest! {
        #[test]
        #[cfg_attr(miri, ignore)]
        fn garbage_harms_nobody_and_is_counted(
            pieces in proptest::collection::vec((0usize..12, proptest::collection::vec(any::<u8>(), 0..260)), 0..30),
        ) {
            let kinds = [10, 1, 22, 2, 4, 5, 38, 36, 39, 17, 51, 4000];
            let mut bytes = Vec::new();
            for (kind, noise) in &pieces {
                let mut record = record(kinds[*kind], &[]);
                for (byte, noise) in record.iter_mut().skip(4).zip(noise) {
                    *byte = *noise;
                }
                bytes.extend(record);
            }
            let sink = trial::sink();
            let whole = reader(&sink).read(&bytes, &NEWEST);
            let found = Findings::of_sink(&sink);
            let unknown = pieces.iter().position(|(kind, _)| kinds[*kind] == 4000);
            prop_assert_eq!(whole, unknown.is_none());
            prop_assert!(found.records.len() <= pieces.len());
            prop_assert_eq!(found.lost(Loss::DeviceRecordsUnread), unknown.map_or(0, |_| 2));
        }

        #[test]
        #[cfg_attr(miri, ignore)]
        fn random_bytes_harm_nobody(bytes in proptest::collection::vec(any::<u8>(), 0..2000)) {
            let sink = trial::sink();
            reader(&sink).read(&bytes, &NEWEST);
            let found = Findings::of_sink(&sink);
            prop_assert!(bytes.is_empty() || found.lost(Loss::DeviceRecordsUnread) + found.records.len() as u64 > 0);
        }
    }

    /// Time for a record of a kernel, its call and its id, from the buffer into the recording.
    #[test]
    #[ignore = "measures: cargo test --release --lib collector::cupti::reader -- --ignored --nocapture"]
    #[allow(clippy::print_stderr, reason = "that is what it is for")]
    fn time_of_a_record() {
        let names: Vec<_> = (0..50).map(|n| format!("_ZN2at6native6kernel{n:02}ILi4EEEvPKfS3_Pfi\0")).collect();
        let address = |n: u64| names[usize::try_from(n).unwrap() % names.len()].as_ptr().expose_provenance() as u64;
        let one = |n: u64| [external(n, n + 7), call(4, 307, n, 0), kernel(n, address(n))].concat();
        let all: Vec<_> = (1..1_000_000u64).map(one).collect();
        let buffers: Vec<_> = all.chunks(4 << 20 >> 9).map(<[Vec<u8>]>::concat).collect();
        for round in 0..3 {
            let sink = trial::sink();
            let mut reader = reader(&sink);
            let begun = Instant::now();
            assert!(buffers.iter().all(|buffer| reader.read(buffer, &NEWEST)));
            let each = begun.elapsed().as_nanos() as f64 / 3e6;
            eprintln!(
                "{round}: {each:.1} ns a record, {:.1} bytes each in memory",
                sink.collect(false).bytes() as f64 / 3e6
            );
        }
    }
}
