//! Reads PTI's records into a recording.

use super::ffi::OWN_IDS;
use super::names::{Ask, CallNames};
use super::owed::Owed;
use super::records::{Call, Kernel, Memcpy, Memset, PeerMemcpy, Record, Synchronization};
use super::shapes;
use super::streams::Streams;
use crate::buffer::Loss;
use crate::collector::walk::{Records, Walker};
use crate::collector::{ApiCall, Batch, DeviceWork, External, Name, Overhead, RecordSink, Thread, text};
use crate::collector::{RecordLayout, Synchronization as Wait};
use kineto_trace::activity::{ActivityType, ActivityTypes};
use std::collections::HashMap;
use std::sync::Arc;

/// What a recording has met so far.
#[derive(Debug)]
pub(super) struct Reader {
    sink: RecordSink,
    types: ActivityTypes,
    names: CallNames,
    streams: Arc<Streams>,
    owed: Owed,
    /// Records are known to be missing, so kernels cannot be waited for launch by launch.
    is_missing_records: bool,
    /// When the recording began, by the clock of the records; 0 if that is not known.
    since: u64,
    /// Where kernels ran, by their ids, if somebody wants to know.
    kernels: Option<HashMap<u64, Ran>>,
    text: Vec<u8>,
}

/// Where and when a kernel ran; `None` of one that is not kept.
pub(super) type Ran = Option<Place>;

/// Where and when a kernel ran.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) device: i32,
    pub(super) stream: u32,
    pub(super) start: u64,
    pub(super) end: u64,
}

/// What a wait has for a context: it is none of a device's.
const NO_CONTEXT: u32 = u32::MAX;
/// Kernels beyond these have no metrics of their own.
const KERNELS: usize = 1 << 20;

/// What a record says that all work of devices has, of a type and with a name, and the words of its shape.
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

/// Where a record says that work ran; none if it was put into its queue in a pause, so that it is not wanted, or had
/// ended before the recording began: PTI has the records of both when the program next waits.
macro_rules! place {
    ($self:ident, $record:ident, $batch:ident) => {{
        let appended = $record.appended();
        if $record.end() != 0 && $record.end() < $self.since {
            None
        } else if appended != 0 && $batch.is_paused(appended, appended) {
            $batch.lost(Loss::OutOfWindow, 1);
            None
        } else {
            let device = $self.streams.device($record.uuid());
            let stream = $self.streams.stream(device, $record.sycl_queue(), $record.queue());
            Some(Place { device, stream, start: $record.start(), end: $record.end() })
        }
    }};
}

impl Reader {
    /// For a recording that begins at `since`, by the clock of the records; 0 if that is not known.
    pub(super) fn new(
        sink: RecordSink,
        types: ActivityTypes,
        ask: Box<dyn Ask>,
        streams: Arc<Streams>,
        since: u64,
    ) -> Reader {
        let (names, owed) = (CallNames::new(ask), Owed::default());
        let kernels = types.contains(ActivityType::XpuScopeProfiler).then(HashMap::new);
        Reader { sink, types, names, streams, owed, is_missing_records: false, since, kernels, text: Vec::new() }
    }

    pub(super) fn sink(&self) -> &RecordSink {
        &self.sink
    }

    /// Returns how many launches of kernels have no kernel yet, as far as it is sure to come.
    pub(super) fn owed(&self) -> usize {
        if self.is_missing_records { 0 } else { self.owed.count() }
    }

    /// Kernels that were launched so far may have no records.
    pub(super) fn forget_owed(&mut self) {
        self.owed.forget();
    }

    /// Counts records that are not there.
    pub(super) fn missing(&mut self, cause: Loss, count: u64) {
        self.is_missing_records |= count > 0;
        self.sink.lost(cause, count);
    }

    /// Returns where the kernel of that id ran, once; `None` if it has not come.
    pub(super) fn ran(&mut self, kernel: u64) -> Option<Ran> {
        self.kernels.as_mut()?.remove(&kernel)
    }

    /// Reads all records of a buffer; returns whether it could be read to its end.
    pub(super) fn read(&mut self, bytes: &[u8], walker: &impl Walker) -> bool {
        let sink = self.sink.clone();
        let mut records = Records::new(bytes, walker);
        let unread = sink.record(|batch| {
            let mut unread = 0;
            for bytes in records.by_ref() {
                match Record::read(bytes) {
                    Some(record) => self.take(&record, batch),
                    None => unread += 1,
                }
            }
            unread
        });
        sink.lost(Loss::DeviceRecordsUnread, unread);
        // How many more there were cannot be known.
        self.missing(Loss::DeviceRecordsUnread, records.broken().into());
        !records.broken()
    }

    /// No more comes.
    pub(super) fn finish(&mut self) {
        let strangers = self.streams.strangers();
        if strangers > 0 {
            self.sink.note(format!(
                "{strangers} records name a device that is none of Level Zero's GPUs: they are shown on the first"
            ));
        }
    }

    fn take(&mut self, record: &Record<'_>, batch: &mut Batch<'_>) {
        match record {
            Record::Kernel(kernel) => self.kernel(kernel, batch),
            Record::Runtime(call) => self.call(call, ActivityType::XpuRuntime, batch),
            Record::Driver(call) => self.call(call, ActivityType::XpuDriver, batch),
            Record::ExternalCorrelation(external) if external.id_kind() == OWN_IDS => {
                batch.external(External { correlation: external.correlation().into(), id: external.id() });
            }
            // Another profiler's.
            Record::ExternalCorrelation(_) => {}
            Record::Memcpy(copy) => self.copy(copy, batch),
            Record::PeerMemcpy(copy) => self.peer_copy(copy, batch),
            Record::Memset(fill) => self.fill(fill, batch),
            Record::Synchronization(sync) => self.synchronization(sync, batch),
            Record::Overhead(overhead) => {
                let name = batch.name(overhead_name(overhead.what()));
                let (start, end) = (overhead.start(), overhead.end());
                let words = shapes::overhead_words(overhead);
                batch.overhead_with(&Overhead { name, start, end }, &shapes::OVERHEAD, &words);
            }
            Record::OldCommunication(it) => {
                let thread = Thread::Id(it.thread().into());
                self.communication(it.name(), thread, [it.start(), it.end()], it.communicator(), batch);
            }
            Record::Communication(it) => {
                let thread = Thread::Id(it.thread().into());
                self.communication(it.name(), thread, [it.start(), it.end()], it.communicator(), batch);
            }
        }
    }

    fn call(&mut self, call: &Call<'_>, kind: ActivityType, batch: &mut Batch<'_>) {
        let function = self.names.function(call.group(), call.function(), batch);
        // Calls of the driver share their ids with those of the runtime around them, and give work to lists that may
        // never run.
        let launches = kind == ActivityType::XpuRuntime && function.launches;
        let is_owed = launches && function.runs_kernel && self.types.contains(ActivityType::ConcurrentKernel);
        if is_owed && !batch.overlaps_pause(call.start(), call.end()) {
            self.owed.launched(call.correlation());
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

    fn kernel(&mut self, kernel: &Kernel<'_>, batch: &mut Batch<'_>) {
        self.owed.worked(kernel.correlation());
        let at = place!(self, kernel, batch);
        if let Some(kernels) = &mut self.kernels
            && kernels.len() < KERNELS
        {
            kernels.insert(kernel.id(), at);
        }
        let Some(at) = at else { return };
        let name = self.name(kernel.name(), "unknown kernel", batch);
        let source = self.text(kernel.source_file(), batch);
        batch.work(&work!(kernel, at, ConcurrentKernel, name, KERNEL, shapes::kernel_words(kernel, source)));
    }

    fn copy(&mut self, copy: &Memcpy<'_>, batch: &mut Batch<'_>) {
        let Some(at) = place!(self, copy, batch) else { return };
        let name = self.names.copy([copy.what(), copy.source_kind(), copy.target_kind()], batch);
        let call = self.text(copy.name(), batch);
        batch.work(&work!(copy, at, GpuMemcpy, name, COPY, shapes::copy_words(copy, call)));
    }

    fn peer_copy(&mut self, copy: &PeerMemcpy<'_>, batch: &mut Batch<'_>) {
        let Some(at) = place!(self, copy, batch) else { return };
        let name = self.names.copy([copy.what(), copy.source_kind(), copy.target_kind()], batch);
        let call = self.text(copy.name(), batch);
        let to = self.streams.device(copy.target_uuid());
        batch.work(&work!(copy, at, GpuMemcpy, name, PEER_COPY, shapes::peer_copy_words(copy, call, at.device, to)));
    }

    fn fill(&mut self, fill: &Memset<'_>, batch: &mut Batch<'_>) {
        let Some(at) = place!(self, fill, batch) else { return };
        let name = self.names.fill(fill.value(), fill.memory_kind(), batch);
        let call = self.text(fill.name(), batch);
        batch.work(&work!(fill, at, GpuMemset, name, COPY, shapes::fill_words(fill, call)));
    }

    /// A wait lies on the row of its thread, in a group of its own.
    fn synchronization(&mut self, sync: &Synchronization<'_>, batch: &mut Batch<'_>) {
        let name = self.names.function(sync.group(), sync.function(), batch).name;
        batch.synchronization(&Wait {
            kind: ActivityType::XpuSync,
            name,
            context: NO_CONTEXT,
            stream: sync.thread(),
            event: 0,
            start: sync.start(),
            end: sync.end(),
            correlation: sync.correlation().into(),
            shape: &shapes::SYNC,
            words: &shapes::sync_words(sync),
        });
    }

    fn communication(
        &mut self,
        name: u64,
        thread: Thread,
        [start, end]: [u64; 2],
        communicator: u64,
        batch: &mut Batch<'_>,
    ) {
        let there = text::copy(name, &mut self.text);
        let name = if there { String::from_utf8_lossy(&self.text) } else { "unknown".into() };
        let name = batch.name(&format!("xccl::{name}"));
        let shape: &'static dyn RecordLayout = &shapes::COMMUNICATION;
        let (kind, words) = (ActivityType::CollectiveComm, &[communicator]);
        batch.call(&ApiCall {
            kind,
            name,
            thread,
            start,
            end,
            correlation: 0,
            external: 0,
            launches: false,
            shape,
            words,
        });
    }

    /// Returns the name at that address, or what it is called if none is there.
    fn name(&mut self, address: u64, otherwise: &str, batch: &mut Batch<'_>) -> Name {
        self.text(address, batch).unwrap_or_else(|| batch.name(otherwise))
    }

    /// Returns the text at that address, if there is one and it is not empty.
    fn text(&mut self, address: u64, batch: &mut Batch<'_>) -> Option<Name> {
        let there = text::copy(address, &mut self.text) && !self.text.is_empty();
        there.then(|| batch.name(&String::from_utf8_lossy(&self.text)))
    }
}

/// What libkineto calls kinds of overhead.
fn overhead_name(kind: u32) -> &'static str {
    const NAMES: [&str; 6] = ["Unknown", "Unknown", "Resource", "Buffer Flush", "Driver", "Instrumentation"];
    NAMES.get(kind as usize).unwrap_or(&NAMES[0])
}

#[cfg(test)]
mod tests;
