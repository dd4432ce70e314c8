//! Converts CUPTI's records into records of the recording.

use super::ffi::{DRIVER, OWN_IDS, RUNTIME};
use super::hub::HUB;
use super::kernels::KernelNames;
use super::markers::Markers;
use super::names::Functions;
use super::records::{Api, CudaEvent, GraphTrace, Kernel, Memcpy, Memcpy2, Memory2, Memset, Record, Synchronization};
use super::selected_fields::RecordRestorer;
use super::shapes;
use super::steps::RecordSteps;
use crate::buffered::launches::UnfinishedLaunches;
use crate::buffered::walk::{Records, Walker};
use crate::{
    ApiCall, Batch, DeviceMemory, DeviceWork, EventRecord, External, Name, Overhead, RecordSink,
    Synchronization as Wait, Thread,
};
use kineto_model::Loss;
use kineto_model::activity::{ActivityType, ActivityTypes, DeviceType};

/// Returns the name of a function, by its domain and number.
pub(super) type FunctionNames = Box<dyn Fn(u32, u32) -> Option<String> + Send>;

/// The state of a recording.
pub(super) struct Reader {
    sink: RecordSink,
    types: ActivityTypes,
    /// The types of work that launches should have records of.
    expected: ActivityTypes,
    function_name: FunctionNames,
    kernels: KernelNames,
    functions: Functions,
    /// Names composed from numbers.
    composed: Vec<(u32, Name)>,
    pub(super) launches: UnfinishedLaunches,
    markers: Markers,
    /// The ids that arrived last, the newest at `newest`.
    pushed: [PushedId; PUSHED_IDS_MAX],
    newest: usize,
    /// The context seen last, which is usually the next context too.
    context: (u32, u32),
    /// A thread of this crate, and the time until which its calls are excluded.
    excluded_calls: (u32, u64),
    restorer: Option<RecordRestorer>,
    /// Work that came back without times.
    without_times: u64,
}

impl std::fmt::Debug for Reader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reader").field("types", &self.types).finish_non_exhaustive()
    }
}

/// An external id that waits for its call. The call's record comes next, or a little later where threads share a
/// buffer.
#[derive(Clone, Copy, Debug)]
struct PushedId {
    correlation: u32,
    id: u64,
    taken: bool,
}

impl PushedId {
    /// Delivers an id whose call did not follow.
    fn deliver_unclaimed(&mut self, batch: &mut Batch<'_>) {
        if !self.taken {
            self.taken = true;
            batch.external(External { correlation: self.correlation.into(), id: self.id });
        }
    }
}

/// The most threads that may be between the record of an id and that of its call.
const PUSHED_IDS_MAX: usize = 8;
/// The error of a call that ends a capture which another call has made invalid.
const CAPTURE_INVALIDATED: u32 = 901;

/// Prefixes of numbers in `composed`.
const COPY: u32 = 1 << 24;
const FILL: u32 = 2 << 24;
const GRAPH: u32 = 3 << 24;

/// Fills in the fields common to all device work, with a type, a name, and the words of a layout.
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
    pub(super) fn new(sink: RecordSink, types: ActivityTypes, function_name: FunctionNames) -> Reader {
        Reader {
            sink,
            types,
            expected: types,
            function_name,
            kernels: KernelNames::default(),
            functions: Functions::default(),
            composed: Vec::new(),
            launches: UnfinishedLaunches::new(),
            markers: Markers::new(types),
            pushed: [PushedId { correlation: 0, id: 0, taken: true }; PUSHED_IDS_MAX],
            newest: 0,
            context: (0, u32::MAX),
            excluded_calls: (0, 0),
            restorer: None,
            without_times: 0,
        }
    }

    /// Excludes the calls of a thread that begin before that time: they are the collector's own.
    pub(super) fn exclude_calls(&mut self, thread: u32, until: u64) {
        self.excluded_calls = (thread, until);
    }

    pub(super) fn sink(&self) -> &RecordSink {
        &self.sink
    }

    /// Sets the types of work that launches must have records of, also if their kinds could not be enabled.
    pub(super) fn expect_types(&mut self, types: ActivityTypes) {
        self.expected = types;
    }

    /// Reads records that have only the selected fields.
    pub(super) fn restore_records(&mut self, restorer: RecordRestorer) {
        self.restorer = Some(restorer);
    }

    /// Reads all records of a buffer; returns whether the whole buffer could be read.
    pub(super) fn read_buffer(&mut self, bytes: &[u8], walker: &impl Walker) -> bool {
        let sink = self.sink.clone();
        self.kernels.next_buffer();
        let steps = RecordSteps::new(walker);
        let mut records = Records::new(bytes, &steps);
        let unread = sink.record(|batch| {
            let mut unread = 0;
            // Taken out, since a record borrows from it.
            let mut restorer = self.restorer.take();
            restorer.iter_mut().for_each(RecordRestorer::update);
            for bytes in records.by_ref() {
                let record = match &mut restorer {
                    Some(restorer) => restorer.read(bytes),
                    None => Record::from_bytes(bytes),
                };
                match record {
                    Some(record) => self.add_record(&record, batch),
                    None => unread += 1,
                }
            }
            self.restorer = restorer;
            self.pushed.iter_mut().for_each(|pushed| pushed.deliver_unclaimed(batch));
            self.markers.deliver_complete(batch);
            unread
        });
        // The number of records in the rest of a broken buffer is unknown.
        self.launches.note_missing(records.is_broken().into());
        sink.lost(Loss::DeviceRecordsUnread, unread + u64::from(records.is_broken()));
        !records.is_broken()
    }

    /// Takes the number of records that came back without times, and begins to count anew.
    pub(super) fn take_without_times(&mut self) -> u64 {
        std::mem::take(&mut self.without_times)
    }

    /// Ends the recording.
    pub(super) fn finish_recording(&mut self) {
        self.sink.record(|batch| self.markers.deliver_remaining(batch));
    }

    #[inline]
    fn add_record(&mut self, record: &Record<'_>, batch: &mut Batch<'_>) {
        match record {
            Record::Kernel(kernel) => self.add_kernel(kernel, batch),
            Record::Runtime(call) => self.add_call(call, RUNTIME, batch),
            Record::Driver(call) => self.add_call(call, DRIVER, batch),
            Record::ExternalCorrelation(external) if external.id_kind() == OWN_IDS => {
                self.newest = (self.newest + 1) % PUSHED_IDS_MAX;
                if let Some(oldest) = self.pushed.get_mut(self.newest) {
                    oldest.deliver_unclaimed(batch);
                    *oldest = PushedId { correlation: external.correlation(), id: external.id(), taken: false };
                }
            }
            // Ids of another profiler.
            Record::ExternalCorrelation(_) => {}
            Record::Memcpy(copy) => self.add_copy(copy, batch),
            Record::Memcpy2(copy) => self.add_peer_copy(copy, batch),
            Record::Memset(fill) => self.add_fill(fill, batch),
            Record::Synchronization(sync) => add_synchronization(sync, batch),
            Record::CudaEvent(event) => self.add_event(event, batch),
            Record::Overhead(overhead) => {
                let name = batch.name(overhead_name(overhead.what()));
                batch.overhead(&Overhead::new(name, (overhead.start(), overhead.end())));
            }
            Record::Marker(marker) => self.markers.add_marker(marker, batch),
            Record::Memory2(memory) => add_allocation(memory, batch),
            Record::MarkerData(data) => self.markers.add_marker_data(data, batch),
            Record::GraphTrace(graph) => self.add_graph(graph, batch),
        }
    }

    /// Returns the id that was pushed around a call, 0 if none arrived.
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

    /// Returns whether the work of a call should have records.
    fn expects_work(&self, runs_kernels: bool) -> bool {
        // Not those that metrics are measured of: that counts the launches without a row.
        const TRANSFERS: ActivityTypes = ActivityTypes::of(&[ActivityType::GpuMemcpy, ActivityType::GpuMemset]);
        let of_launch = if runs_kernels { ActivityType::ConcurrentKernel.into() } else { TRANSFERS };
        !self.expected.intersection(of_launch).is_empty()
    }

    fn add_call(&mut self, call: &Api<'_>, domain: u32, batch: &mut Batch<'_>) {
        let number = call.function();
        let function = self.functions.get((domain, number), || (self.function_name)(domain, number), batch);
        let (does, correlation, thread) = (function.does, call.correlation(), call.thread());
        self.launches.note_call(call.start());
        let external = self.id_around(correlation);
        // The call around such a wait, which begins later, has the id.
        let correlation = if domain == DRIVER && HUB.own_waits.take(number, correlation) { 0 } else { correlation };
        let (own, until) = self.excluded_calls;
        if does.is_noise || thread == own && call.start() < until {
            return;
        }
        let succeeded = call.result() == 0;
        if succeeded && does.begins_capture {
            self.launches.begin_capture(thread);
        } else if does.ends_capture {
            self.launches.end_capture(correlation, thread, succeeded || call.result() == CAPTURE_INVALIDATED);
        }
        let reaches_device = does.launches && succeeded && self.launches.can_reach_device();
        let launches = reaches_device && self.expects_work(does.runs_kernels);
        // Only wait for kernels that are recorded, and not for those of a pause.
        let expects_record = launches && !batch.overlaps_pause(call.start(), call.end());
        if expects_record && does.runs_kernels && self.types.contains(ActivityType::ConcurrentKernel) {
            self.launches.note_launch(correlation, call.start());
        }
        batch.call(&ApiCall {
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

    fn add_kernel(&mut self, kernel: &Kernel<'_>, batch: &mut Batch<'_>) {
        self.on_device((kernel.context(), kernel.device()), kernel.correlation(), kernel.start(), batch);
        let name = self.kernels.name_at(kernel.name(), batch);
        batch.work(&work!(kernel, ConcurrentKernel, name, KERNEL, kernel_words));
    }

    fn add_copy(&mut self, copy: &Memcpy<'_>, batch: &mut Batch<'_>) {
        self.on_device((copy.context(), copy.device()), copy.correlation(), copy.start(), batch);
        let name = self.copy_name([copy.copy_kind(), copy.source_kind(), copy.target_kind()], batch);
        batch.work(&work!(copy, GpuMemcpy, name, COPY, copy_words));
    }

    fn add_peer_copy(&mut self, copy: &Memcpy2<'_>, batch: &mut Batch<'_>) {
        self.on_device((copy.context(), copy.device()), copy.correlation(), copy.start(), batch);
        self.in_context(copy.source_context(), copy.source_device(), batch);
        self.in_context(copy.target_context(), copy.target_device(), batch);
        let name = self.copy_name([copy.copy_kind(), copy.source_kind(), copy.target_kind()], batch);
        batch.work(&work!(copy, GpuMemcpy, name, PEER_COPY, peer_copy_words));
    }

    fn add_fill(&mut self, fill: &Memset<'_>, batch: &mut Batch<'_>) {
        self.on_device((fill.context(), fill.device()), fill.correlation(), fill.start(), batch);
        let memory = u32::from(fill.memory_kind());
        let name = self.composed_name(FILL | memory, || format!("Memset ({})", memory_name(memory)), batch);
        batch.work(&work!(fill, GpuMemset, name, COPY, fill_words));
    }

    fn add_graph(&mut self, graph: &GraphTrace<'_>, batch: &mut Batch<'_>) {
        self.on_device((graph.context(), graph.device()), graph.correlation(), graph.start(), batch);
        let name = self.composed_name(GRAPH, || "CUDA graph".to_owned(), batch);
        batch.work(&work!(graph, ConcurrentKernel, name, GRAPH, graph_words));
    }

    fn add_event(&mut self, event: &CudaEvent<'_>, batch: &mut Batch<'_>) {
        if let Some(device) = event.device() {
            self.in_context(event.context(), device, batch);
        }
        // Events that are not selected are still needed to resolve waits.
        let is_row = self.types.contains(ActivityType::CudaEvent);
        let at = if is_row { event.device_time().unwrap_or(0) } else { 0 };
        let (name, place) = (batch.name("cudaEvent"), (event.context(), event.stream(), event.event()));
        batch.event(&EventRecord {
            correlation: event.correlation().into(),
            words: &shapes::event_words(event.context(), event.event()),
            ..EventRecord::new(ActivityType::CudaEvent, name, place, at, &shapes::EVENT)
        });
    }

    #[inline]
    fn on_device(&mut self, (context, device): (u32, u32), correlation: u32, start: u64, batch: &mut Batch<'_>) {
        self.in_context(context, device, batch);
        self.launches.note_device_record(correlation);
        self.without_times += u64::from(start == 0);
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
        self.composed_name(number, text, batch)
    }

    fn composed_name(&mut self, number: u32, text: impl FnOnce() -> String, batch: &mut Batch<'_>) -> Name {
        if let Some((_, name)) = self.composed.iter().find(|(known, _)| *known == number) {
            return *name;
        }
        let name = batch.name(&text());
        // There are only a few; more can only come from corrupt records.
        if self.composed.len() < 256 {
            self.composed.push((number, name));
        }
        name
    }
}

fn add_synchronization(sync: &Synchronization<'_>, batch: &mut Batch<'_>) {
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

/// Adds device memory; host memory is ignored.
fn add_allocation(memory: &Memory2<'_>, batch: &mut Batch<'_>) {
    /// Operations and kinds of memory.
    const ALLOCATE: u32 = 1;
    const RELEASE: u32 = 2;
    const PINNED: u32 = 2;
    let bytes = i64::try_from(memory.bytes()).unwrap_or(i64::MAX);
    let bytes = match memory.operation() {
        ALLOCATE => bytes,
        RELEASE => -bytes,
        _ => return,
    };
    if memory.memory_kind() > PINNED {
        let device = i16::try_from(memory.device()).unwrap_or(-1);
        let allocation = DeviceMemory::new(DeviceType::Cuda, device, memory.address(), bytes, memory.timestamp());
        batch.memory(&DeviceMemory { correlation: memory.correlation().into(), ..allocation });
    }
}

/// Returns libkineto's name of a kind of memory.
fn memory_name(kind: u32) -> &'static str {
    const NAMES: [&str; 8] =
        ["Unknown", "Pageable", "Pinned", "Device", "Array", "Managed", "Device Static", "Managed Static"];
    NAMES.get(kind as usize).unwrap_or(&"Unrecognized")
}

/// Returns libkineto's name of a kind of overhead.
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

#[cfg(fuzzing)]
pub(super) mod fuzzing;
#[cfg(test)]
mod tests;
