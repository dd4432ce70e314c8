//! Converts calls and records into records of the recording.

use super::agents::{Agent, Agents};
use super::names::Operations;
use super::records::{Copy, Dispatch, Kind, Record};
use crate::records::demangle::demangle;
use crate::rocm::arguments::Arguments;
use crate::rocm::hip::{self, Direction};
use crate::rocm::rows::{DoneWork, HipCall, Return, RocmRows, RowKernel, UNKNOWN};
use crate::rocm::shapes::Sizes;
use crate::{Batch, RecordSink, Selection};
use kineto_model::Loss;
use std::collections::HashMap;
use std::sync::Arc;

/// Returns a kernel's mangled name, by its number.
pub(super) type KernelNames = Box<dyn Fn(u64) -> Option<Arc<str>> + Send>;

/// The library's names and agents.
#[derive(Debug, Default)]
pub(super) struct ProcessNames {
    pub(super) operations: Operations,
    pub(super) agents: Agents,
}

/// The state of a recording.
pub(super) struct Reader {
    rows: RocmRows,
    known: Arc<ProcessNames>,
    kernel_symbol: KernelNames,
    /// Arguments of calls in progress, by correlation id.
    pending: HashMap<u64, Arguments>,
    kernels: HashMap<u64, RowKernel>,
    /// Later launches are not waited for.
    until: u64,
}

/// The most calls in progress; more can only be calls whose return was not reported.
const MAX_CALLS: usize = 4096;

impl std::fmt::Debug for Reader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reader").field("types", &self.rows.types).finish_non_exhaustive()
    }
}

impl Reader {
    pub(super) fn new(
        sink: RecordSink,
        selection: &Selection,
        known: Arc<ProcessNames>,
        kernel_symbol: KernelNames,
    ) -> Reader {
        Reader {
            rows: RocmRows::new(sink, selection.types, super::super::max_rows(&selection.options)),
            known,
            kernel_symbol,
            pending: HashMap::new(),
            kernels: HashMap::new(),
            until: u64::MAX,
        }
    }

    pub(super) fn sink(&self) -> &RecordSink {
        &self.rows.sink
    }

    /// Stops to wait for later launches.
    pub(super) fn ignore_launches_after(&mut self, end: u64) {
        self.until = end;
    }

    /// Returns how many launches lack work that will certainly arrive, and that may arrive.
    pub(super) fn pending_counts(&self) -> [usize; 2] {
        self.rows.pending_counts()
    }

    /// Counts lost records.
    pub(super) fn count_lost(&mut self, cause: Loss, count: u64) {
        self.rows.note_missing(count);
        self.rows.sink.lost(cause, count);
    }

    /// Notes the begin of a call that launches work, before its work can arrive.
    pub(super) fn begin_call(&mut self, call: &HipCall<'_>, arguments: Arguments) {
        let launch = self.rows.launch_of(call.function, call.thread, Some(&arguments));
        self.rows.begin_call(call.correlation, call.thread, launch, call.start <= self.until);
        if self.pending.len() >= MAX_CALLS {
            self.pending.clear();
        }
        self.pending.insert(call.correlation, arguments);
    }

    /// Notes the return of a call. Some arguments are available only then.
    pub(super) fn end_call(&mut self, call: &HipCall<'_>, returned: Return, arguments: Option<Arguments>) {
        let arguments = self.pending.remove(&call.correlation).or(arguments).unwrap_or_default();
        self.rows.end_call(call, returned, Some(&arguments));
    }

    /// Reads a record of a buffer.
    pub(super) fn add_record(&mut self, header: Kind, bytes: &[u8]) {
        match Record::from_bytes(header, bytes) {
            Some(Record::Dispatch(kernel)) if is_timed(kernel.start(), kernel.end()) => self.add_kernel(&kernel),
            Some(Record::Copy(copy)) if is_timed(copy.start(), copy.end()) => self.add_copy(&copy),
            Some(Record::Other) => {}
            _ => self.count_lost(Loss::DeviceRecordsUnread, 1),
        }
    }

    fn add_kernel(&mut self, kernel: &Dispatch<'_>) {
        let done = DoneWork {
            device: self.known.agents.device_number(kernel.agent()).unwrap_or(-1),
            queue: kernel.queue(),
            start: kernel.start(),
            end: kernel.end(),
            correlation: kernel.correlation(),
            launch: self.rows.launches.take_work(kernel.correlation()),
        };
        let sink = self.rows.sink.clone();
        sink.record(|batch| {
            let known = self.kernel_name(kernel.kernel(), batch);
            let sizes = Sizes::new(kernel.grid_in_blocks(), kernel.block());
            self.rows.add_kernel(&done, known, "Dispatch Kernel", sizes, batch);
        });
    }

    fn add_copy(&mut self, copy: &Copy<'_>) {
        let agents = &self.known.agents;
        let ends = [agents.get(copy.source()), agents.get(copy.target())];
        let direction =
            self.known.operations.copy_direction(copy.operation()).unwrap_or_else(|| direction_between(ends));
        let done = DoneWork {
            // The device performs it, whichever end it is at.
            device: agents.device_number(copy.target()).or(agents.device_number(copy.source())).unwrap_or(-1),
            queue: 0,
            start: copy.start(),
            end: copy.end(),
            correlation: copy.correlation(),
            launch: self.rows.launches.take_work(copy.correlation()),
        };
        let sink = self.rows.sink.clone();
        sink.record(|batch| self.rows.add_copy(&done, direction, copy.bytes_copied(), batch));
    }

    fn kernel_name(&mut self, kernel: u64, batch: &mut Batch<'_>) -> RowKernel {
        if let Some(known) = self.kernels.get(&kernel) {
            return *known;
        }
        let Some(symbol) = (self.kernel_symbol)(kernel) else {
            // The name may still arrive.
            return RowKernel { name: batch.name(UNKNOWN), fills: false };
        };
        let new = RowKernel { name: batch.name(&demangle(&symbol)), fills: hip::is_fill_kernel(&symbol) };
        self.kernels.insert(kernel, new);
        new
    }
}

/// Returns whether these are valid times of work.
fn is_timed(start: u64, end: u64) -> bool {
    start != 0 && end >= start
}

/// Returns the direction of a copy between these agents: source, target.
fn direction_between(ends: [Option<Agent>; 2]) -> Direction {
    match ends {
        [Some(Agent::Host), Some(Agent::Host)] => Direction::HostToHost,
        [Some(Agent::Host), Some(Agent::Gpu(_))] => Direction::HostToDevice,
        [Some(Agent::Gpu(_)), Some(Agent::Host)] => Direction::DeviceToHost,
        [Some(Agent::Gpu(_)), Some(Agent::Gpu(_))] => Direction::DeviceToDevice,
        _ => Direction::Unknown,
    }
}

#[cfg(test)]
mod tests;
