//! Makes records of the driver's reports.

use crate::client::{self, Client};
use crate::layout::kind;
use crate::pm::ranges;
use crate::pool::{self, HOST};
use crate::record::new_record;
use crate::shared::clock::now;
use crate::shared::counters::count;
use crate::shared::tracer::{self, ApiCall, Event, EventRecord, Memory, Report, Synchronization, Work};
use crate::subscriber::{self, Site};
use crate::{attributes, external, link};
use sim_core::buffer::PendingRecord;
use sim_core::machine::Times;
use sim_core::record::Record;

/// Hears the driver.
pub(crate) fn hear(event: &mut Event<'_>) {
    match event {
        Event::Configured => {}
        Event::Entered(call) => {
            subscriber::notify(Site::Enter, call);
            call.start = timestamp();
        }
        Event::Left(call) => leave(call),
        Event::Work(work) => {
            client::for_each(|client| record_work(client, work));
            ranges::queued(work);
        }
        Event::Retimed(Times { id, start, end, done_at }) => {
            pool::retime(*id, *start, *end, *done_at);
        }
        Event::Report(Report::Synchronized(wait)) => record_wait(wait),
        Event::Report(Report::EventRecorded(record)) => client::for_each(|client| record_event(client, record)),
        Event::Report(Report::MemoryChanged(memory)) => record_memory(memory),
        Event::Report(Report::Overhead { kind, correlation, start, end }) => {
            client::for_each(|client| record_overhead(client, *kind, *correlation, stamp(*start), stamp(*end)));
        }
        Event::Count("push_depth", count) => **count = Some(sim_core::external::depth()),
        Event::Count(..) => {}
    }
}

/// Returns CUPTI's timestamp of a moment of the true clock.
fn stamp(at: u64) -> u64 {
    link::options().reported(at)
}

/// Returns CUPTI's timestamp of now.
pub(crate) fn timestamp() -> u64 {
    stamp(now())
}

fn leave(call: &mut ApiCall) {
    let end = timestamp();
    client::for_each(|client| {
        if let Some(kind) = client.activity.call(call.domain, call.cbid) {
            record_call(client, kind, call, end);
        }
    });
    subscriber::notify(Site::Exit, call);
}

/// Records a call, after the external ids that it is inside of.
fn record_call(client: &'static Client, kind: u32, call: &ApiCall, end: u64) {
    if client.activity.is_enabled(kind::EXTERNAL_CORRELATION) {
        for (external_kind, id) in external::innermost(client) {
            let Some(record) = new_record(kind::EXTERNAL_CORRELATION) else { return };
            pool::add(client, HOST, &record.u32(4, external_kind).u64(8, id).u32(16, call.correlation), None);
        }
    }
    let Some(record) = new_record(kind) else { return };
    let record = record.u32(4, call.cbid).u64(8, call.start).u64(16, end);
    let record = record.u32(24, std::process::id()).u32(28, attributes::thread_id());
    count(&link::counters().api_records);
    pool::add(client, HOST, &record.u32(32, call.correlation).u32(36, call.result as u32), None);
}

fn record_work(client: &'static Client, work: &[Work]) {
    let (Some(first), Some(last)) = (work.first(), work.last()) else { return };
    if first.graph != 0 && client.activity.is_enabled(kind::GRAPH_TRACE) {
        return record_graph(client, first, last);
    }
    for work in work {
        let record = match work.kind {
            tracer::KERNEL => client.activity.kernels().and_then(|kind| kernel(kind, work)),
            tracer::MEMCPY => enabled(client, kind::MEMCPY).and_then(|record| memcpy(record, work)),
            tracer::MEMCPY_PEER => enabled(client, kind::MEMCPY2).map(|record| memcpy_peer(record, work)),
            _ => enabled(client, kind::MEMSET).map(|record| memset(record, work)),
        };
        if let Some(record) = record {
            let Work { id, begun_at, done_at, .. } = *work;
            let pending = PendingRecord { id, begun_at, done_at, start: Some(16), end: 24, record: 0 };
            count(&link::counters().device_records);
            pool::add(client, work.context, &record, Some(pending));
        }
    }
}

/// A new record of a kind, if the client has enabled that.
fn enabled(client: &Client, kind: u32) -> Option<Record> {
    if client.activity.is_enabled(kind) { new_record(kind) } else { None }
}

fn kernel(kind: u32, work: &Work) -> Option<Record> {
    let record = new_record(kind)?.u16(6, work.registers);
    let record = times(record, work).u32(40, work.device).u32(44, work.context).u32(48, work.stream);
    let record = record.triple(52, work.grid).triple(64, work.block);
    let record = record.u32(76, work.static_shared).u32(80, work.dynamic_shared).u32(92, work.correlation);
    let record = record.u64(96, work.id).u64(104, work.name.0 as u64).u8(136, work.launch_type);
    let record = record.u32(140, work.shared_executed).u64(144, work.graph_node).u32(156, work.graph);
    let record = record.u32(168, work.channel).u32(172, work.channel_type).triple(176, work.cluster);
    Some(record.u32(216, work.priority as u32))
}

fn times(record: Record, work: &Work) -> Record {
    record.u64(16, work.start).u64(24, work.end)
}

/// What the records of both kinds of copies begin with.
fn any_copy(record: Record, work: &Work) -> Record {
    let record = record.u8(4, work.copy_kind).u8(5, work.source_kind).u8(6, work.target_kind).u8(7, work.is_async);
    let record = times(record.u64(8, work.bytes), work);
    record.u32(32, work.device).u32(36, work.context).u32(40, work.stream)
}

fn memcpy(record: Record, work: &Work) -> Option<Record> {
    let record = any_copy(record, work).u32(44, work.correlation).u64(64, work.graph_node).u32(72, work.graph);
    Some(record.u32(76, work.channel).u32(80, work.channel_type).u64(88, 1))
}

fn memcpy_peer(record: Record, work: &Work) -> Record {
    let record = any_copy(record, work).u32(44, work.source_device).u32(48, work.source_context);
    let record = record.u32(52, work.target_device).u32(56, work.target_context).u32(60, work.correlation);
    record.u64(72, work.graph_node).u32(80, work.graph).u32(84, work.channel).u32(88, work.channel_type)
}

fn memset(record: Record, work: &Work) -> Record {
    let record = times(record.u32(4, work.value).u64(8, work.bytes), work);
    let record = record.u32(32, work.device).u32(36, work.context).u32(40, work.stream).u32(44, work.correlation);
    let record = record.u16(48, work.is_async).u16(50, work.target_kind).u64(64, work.graph_node);
    record.u32(72, work.graph).u32(76, work.channel).u32(80, work.channel_type)
}

/// One record for all nodes of a graph's launch.
fn record_graph(client: &'static Client, first: &Work, last: &Work) {
    let Some(record) = new_record(kind::GRAPH_TRACE) else { return };
    let record = record.u32(4, first.correlation).u64(8, first.start);
    let record = record.u64(16, last.end).u32(24, first.device).u32(28, first.graph);
    let record = record.u32(32, first.context).u32(36, first.stream).u32(48, last.device).u32(52, last.context);
    let (begun_at, done_at) = (first.begun_at, last.done_at);
    let pending = PendingRecord { id: last.id, begun_at, done_at, start: Some(8), end: 16, record: 0 };
    count(&link::counters().device_records);
    pool::add(client, first.context, &record, Some(pending));
}

fn record_wait(its: &Synchronization) {
    let Some(record) = new_record(kind::SYNCHRONIZATION) else { return };
    let record = record.u32(4, its.kind).u64(8, stamp(its.start)).u64(16, stamp(its.end)).u32(24, its.correlation);
    let record = record.u32(28, its.context).u32(32, its.stream).u32(36, its.event);
    add_for_all(&record.u64(40, its.event_record).u32(48, its.result as u32));
}

fn record_event(client: &'static Client, its: &EventRecord) {
    let Some(record) = enabled(client, kind::CUDA_EVENT) else { return };
    let record = record.u32(4, its.correlation).u32(8, its.context).u32(12, its.stream).u32(16, its.event);
    let record = record.u32(24, its.device).u64(48, its.record);
    if !client.activity.event_times() {
        return pool::add(client, its.context, &record, None);
    }
    let pending =
        PendingRecord { id: its.record, begun_at: its.done_at, done_at: its.done_at, start: None, end: 40, record: 0 };
    pool::add(client, its.context, &record.u64(40, its.stamp), Some(pending));
}

/// Adds a record of the host for the clients that have enabled its kind.
pub(crate) fn add_for_all(record: &Record) {
    client::for_each(|client| {
        if client.activity.is_enabled(record.kind()) {
            pool::add(client, HOST, record, None);
        }
    });
}

/// What is done with memory.
const ALLOCATION: u32 = 1;
const RELEASE: u32 = 2;

fn record_memory(its: &Memory) {
    let Some(record) = new_record(kind::MEMORY2) else { return };
    let record = record.u32(4, if its.is_release { RELEASE } else { ALLOCATION }).u32(8, its.place);
    let record = record.u32(12, its.correlation).u64(16, its.address).u64(24, its.bytes).u64(32, timestamp());
    let record = record.u32(48, std::process::id()).u32(52, its.device).u32(56, its.context);
    add_for_all(&record.u32(72, its.is_async.into()));
}

/// The kinds of overhead of flushing buffers, and of asking for one.
const BUFFER_FLUSH: u32 = 1 << 16;
const BUFFER_REQUEST: u32 = 7 << 16;

/// Records the time of a buffer request, from `start` by CUPTI's timestamps.
pub(crate) fn buffer_requested(client: &'static Client, start: u64) {
    record_overhead(client, BUFFER_REQUEST, 0, start, timestamp());
}

/// Records the time of a flush, from `start` by CUPTI's timestamps; the next flush delivers that record.
pub(crate) fn buffers_flushed(client: &'static Client, start: u64) {
    record_overhead(client, BUFFER_FLUSH, 0, start, timestamp());
}

/// The kind of object that an overhead is of: a thread, by process and thread id.
const THREAD: u32 = 2;

fn record_overhead(client: &'static Client, kind: u32, correlation: u32, start: u64, end: u64) {
    let Some(record) = enabled(client, kind::OVERHEAD) else { return };
    let record = record.u32(4, kind).u32(8, THREAD).u32(12, std::process::id()).u32(16, attributes::thread_id());
    pool::add(client, HOST, &record.u64(24, start).u64(32, end).u32(40, correlation), None);
}
