//! Converts PTI's records into records of the recording.

use super::ffi::OWN_IDS;
use super::names::{CallNames, PtiNames};
use super::records::{Call, Communication, Kernel, Memcpy, Memset, PeerMemcpy, Record, Synchronization};
use super::shapes;
use super::streams::Streams;
use crate::Synchronization as Wait;
use crate::buffered::launches::UnfinishedLaunches;
use crate::buffered::walk::{Records, Walker};
use crate::{ApiCall, Batch, DeviceWork, External, Name, Overhead, RecordSink, Thread, text};
use kineto_base::text::count_with_noun;
use kineto_model::Loss;
use kineto_model::activity::{ActivityType, ActivityTypes};
use std::collections::HashMap;
use std::sync::Arc;

/// The state of a recording.
#[derive(Debug)]
pub(super) struct Reader {
    sink: RecordSink,
    types: ActivityTypes,
    names: CallNames,
    streams: Arc<Streams>,
    /// Launches of kernels.
    pub(super) launches: UnfinishedLaunches,
    /// When the recording began, on the clock of the records; 0 if unknown.
    since: u64,
    /// Where kernels ran, by id, if metrics are sampled.
    kernels: Option<HashMap<u64, KernelPlace>>,
    text: Vec<u8>,
}

/// Where and when a kernel ran; `None` if its record is not kept.
pub(super) type KernelPlace = Option<Place>;

/// Where and when a kernel ran.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) device: i32,
    pub(super) stream: u32,
    pub(super) start: u64,
    pub(super) end: u64,
}

/// The context of a wait, which belongs to no device.
const NO_CONTEXT: u32 = u32::MAX;
/// The most kernels whose place is kept for metrics.
const KERNELS: usize = 1 << 20;

/// Fills in the fields common to all device work, with a type, a name, and the words of a layout.
macro_rules! work {
    ($record:ident, $at:expr, $kind:ident, $name:expr, $shape:ident, $words:expr) => {
        DeviceWork {
            kind: ActivityType::$kind,
            name: $name,
            device: $at.device,
            stream: $at.stream,
            start: $record.start(),
            end: $record.end(),
            correlation: $record.correlation().into(),
            shape: &shapes::$shape,
            words: &$words,
        }
    };
}

/// Returns where work ran. Returns early if it was queued in a pause, or had ended before the recording began: PTI
/// delivers both when the program next waits.
macro_rules! place {
    ($self:ident, $record:ident, $batch:ident) => {{
        let appended = $record.appended();
        if $record.end() != 0 && $record.end() < $self.since {
            None
        } else if appended != 0 && $batch.is_paused(appended, appended) {
            $batch.count_lost(Loss::OutOfWindow, 1);
            None
        } else {
            let device = $self.streams.device_number($record.uuid());
            let stream = $self.streams.stream_number(device, $record.sycl_queue(), $record.queue());
            Some(Place { device, stream, start: $record.start(), end: $record.end() })
        }
    }};
}

impl Reader {
    /// Makes the reader of a recording that begins at `since`, on the clock of the records; 0 if unknown.
    pub(super) fn new(
        sink: RecordSink,
        types: ActivityTypes,
        names: Box<dyn PtiNames>,
        streams: Arc<Streams>,
        since: u64,
    ) -> Reader {
        let (names, launches) = (CallNames::new(names), UnfinishedLaunches::new());
        let kernels = types.contains(ActivityType::XpuScopeProfiler).then(HashMap::new);
        Reader { sink, types, names, streams, launches, since, kernels, text: Vec::new() }
    }

    pub(super) fn sink(&self) -> &RecordSink {
        &self.sink
    }

    /// Returns where the kernel of that id ran, and drops the entry; `None` if its record has not arrived.
    pub(super) fn take_kernel_place(&mut self, kernel: u64) -> Option<KernelPlace> {
        self.kernels.as_mut()?.remove(&kernel)
    }

    /// Reads all records of a buffer; returns whether the whole buffer could be read.
    pub(super) fn read_buffer(&mut self, bytes: &[u8], walker: &impl Walker) -> bool {
        let sink = self.sink.clone();
        let mut records = Records::new(bytes, walker);
        let unread = sink.record(|batch| {
            let mut unread = 0;
            for bytes in records.by_ref() {
                match Record::from_bytes(bytes) {
                    Some(record) => self.add_record(&record, batch),
                    None => unread += 1,
                }
            }
            unread
        });
        // The number of records in the rest of a broken buffer is unknown.
        self.launches.note_missing(records.is_broken().into());
        sink.lost(Loss::DeviceRecordsUnread, unread + u64::from(records.is_broken()));
        !records.is_broken()
    }

    /// Ends the recording.
    pub(super) fn finish_recording(&mut self) {
        let unknown = self.streams.unknown_devices();
        if unknown > 0 {
            self.sink.note(format!(
                "{} of a device that Level Zero does not list, shown on the first GPU",
                count_with_noun(unknown, "record")
            ));
        }
    }

    fn add_record(&mut self, record: &Record<'_>, batch: &mut Batch<'_>) {
        match record {
            Record::Kernel(kernel) => self.add_kernel(kernel, batch),
            Record::Runtime(call) => self.add_call(call, ActivityType::XpuRuntime, batch),
            Record::Driver(call) => self.add_call(call, ActivityType::XpuDriver, batch),
            Record::ExternalCorrelation(external) if external.id_kind() == OWN_IDS => {
                batch.external(External { correlation: external.correlation().into(), id: external.id() });
            }
            // Ids of another profiler.
            Record::ExternalCorrelation(_) => {}
            Record::Memcpy(copy) => self.add_copy(copy, batch),
            Record::PeerMemcpy(copy) => self.add_peer_copy(copy, batch),
            Record::Memset(fill) => self.add_fill(fill, batch),
            Record::Synchronization(sync) => self.add_synchronization(sync, batch),
            Record::Overhead(overhead) => {
                let name = batch.name(overhead_name(overhead.what()));
                let (words, overhead) =
                    (shapes::overhead_words(overhead), Overhead::new(name, (overhead.start(), overhead.end())));
                batch.overhead_with(&overhead, &shapes::OVERHEAD, &words);
            }
            Record::Communication(communication) => self.add_communication(communication, batch),
        }
    }

    fn add_call(&mut self, call: &Call<'_>, kind: ActivityType, batch: &mut Batch<'_>) {
        let function = self.names.function(call.group(), call.function(), batch);
        // Driver calls share their ids with the runtime calls around them, and append work to lists that may never
        // run.
        let launches = kind == ActivityType::XpuRuntime && function.launches;
        let is_owed = launches && function.runs_kernel && self.types.contains(ActivityType::ConcurrentKernel);
        if is_owed && !batch.overlaps_pause(call.start(), call.end()) {
            self.launches.note_launch(call.correlation(), call.start());
        }
        batch.call(&ApiCall {
            kind,
            name: function.name,
            thread: Thread::Id(call.thread().into()),
            start: call.start(),
            end: call.end(),
            correlation: call.correlation().into(),
            external: 0,
            launches,
            shape: &shapes::CALL,
            words: &[],
        });
    }

    fn add_kernel(&mut self, kernel: &Kernel<'_>, batch: &mut Batch<'_>) {
        self.launches.note_device_record(kernel.correlation());
        let at = place!(self, kernel, batch);
        if let Some(kernels) = &mut self.kernels
            && kernels.len() < KERNELS
        {
            kernels.insert(kernel.id(), at);
        }
        let Some(at) = at else { return };
        let name = self.name_at_or(kernel.name(), "unknown kernel", batch);
        let source = self.name_at(kernel.source_file(), batch);
        batch.work(&work!(kernel, at, ConcurrentKernel, name, KERNEL, shapes::kernel_words(kernel, source)));
    }

    fn add_copy(&mut self, copy: &Memcpy<'_>, batch: &mut Batch<'_>) {
        let Some(at) = place!(self, copy, batch) else { return };
        let name = self.names.copy_name([copy.what(), copy.source_kind(), copy.target_kind()], batch);
        let call = self.name_at(copy.name(), batch);
        batch.work(&work!(copy, at, GpuMemcpy, name, COPY, shapes::copy_words(copy, call)));
    }

    fn add_peer_copy(&mut self, copy: &PeerMemcpy<'_>, batch: &mut Batch<'_>) {
        let Some(at) = place!(self, copy, batch) else { return };
        let name = self.names.copy_name([copy.what(), copy.source_kind(), copy.target_kind()], batch);
        let call = self.name_at(copy.name(), batch);
        let to = self.streams.device_number(copy.target_uuid());
        batch.work(&work!(copy, at, GpuMemcpy, name, PEER_COPY, shapes::peer_copy_words(copy, call, at.device, to)));
    }

    fn add_fill(&mut self, fill: &Memset<'_>, batch: &mut Batch<'_>) {
        let Some(at) = place!(self, fill, batch) else { return };
        let name = self.names.fill_name(fill.value(), fill.memory_kind(), batch);
        let call = self.name_at(fill.name(), batch);
        batch.work(&work!(fill, at, GpuMemset, name, COPY, shapes::fill_words(fill, call)));
    }

    /// A wait is shown in the row of its thread, in a separate group.
    fn add_synchronization(&mut self, sync: &Synchronization<'_>, batch: &mut Batch<'_>) {
        let name = self.names.function(sync.group(), sync.function(), batch).name;
        let (row, times) = ((NO_CONTEXT, sync.thread()), (sync.start(), sync.end()));
        batch.synchronization(&Wait {
            correlation: sync.correlation().into(),
            words: &shapes::sync_words(sync),
            ..Wait::new(ActivityType::XpuSync, name, row, times, &shapes::SYNC)
        });
    }

    fn add_communication(&mut self, communication: &Communication<'_>, batch: &mut Batch<'_>) {
        let (communicator, name) = communication.communicator_and_name();
        let there = text::copy_c_string(name, &mut self.text);
        let name = if there { String::from_utf8_lossy(&self.text) } else { "unknown".into() };
        let name = batch.name(&format!("xccl::{name}"));
        let (kind, thread) = (ActivityType::CollectiveComm, Thread::Id(communication.thread().into()));
        let times = (communication.start(), communication.end());
        let call = ApiCall::new(kind, name, thread, times, &shapes::COMMUNICATION);
        batch.call(&ApiCall { words: &[communicator], ..call });
    }

    /// Returns the name at that address, or `otherwise` if there is none.
    fn name_at_or(&mut self, address: u64, otherwise: &str, batch: &mut Batch<'_>) -> Name {
        self.name_at(address, batch).unwrap_or_else(|| batch.name(otherwise))
    }

    /// Returns the text at that address, if there is any.
    fn name_at(&mut self, address: u64, batch: &mut Batch<'_>) -> Option<Name> {
        let there = text::copy_c_string(address, &mut self.text) && !self.text.is_empty();
        there.then(|| batch.name(&String::from_utf8_lossy(&self.text)))
    }
}

/// Returns libkineto's name of a kind of overhead.
fn overhead_name(kind: u32) -> &'static str {
    const NAMES: [&str; 6] = ["Unknown", "Unknown", "Resource", "Buffer Flush", "Driver", "Instrumentation"];
    NAMES.get(kind as usize).unwrap_or(&NAMES[0])
}

#[cfg(test)]
mod tests;
