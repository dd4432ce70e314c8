//! Makes records of what Level Zero tells.

use crate::layout::kind;
use crate::record::{self, new_record};
use crate::shared::apis;
use crate::shared::clock::now;
use crate::shared::counters::count;
use crate::shared::devices;
use crate::shared::tracer::{self, Call, Communication, Event, Report, Synchronization, Work};
use crate::{link, pool, scope, stamps, views};
use sim_core::clock::thread_id;
use sim_core::external;
use sim_core::record::Record;

/// Hears Level Zero.
pub(crate) fn hear(event: &mut Event<'_>) {
    match event {
        Event::Configured => link::configured(),
        Event::Entered(_) | Event::Retimed(_) => {}
        Event::Left(call) => record_call(call),
        Event::Work(work) => record_work(work),
        Event::Report(Report::Synchronized(wait)) => record_wait(wait),
        Event::Report(Report::Communicated(communication)) => record_communication(communication),
        Event::Count(name, count) => {
            **count = match *name {
                "push_depth" => Some(external::depth()),
                "enabled_views" => Some(views::enabled()),
                "open_scopes" => Some(scope::open()),
                _ => None,
            }
        }
    }
}

/// A new record of a kind, if that is enabled.
fn enabled(kind: u32) -> Option<Record> {
    if views::is_enabled(kind) { new_record(kind) } else { None }
}

fn record_call(call: &Call) {
    let Some(record) = views::call(call.group, call.id).and_then(new_record) else { return };
    let thread = thread_id();
    if views::is_enabled(kind::EXTERNAL_CORRELATION) {
        for (external_kind, id) in external::innermost() {
            let Some(record) = new_record(kind::EXTERNAL_CORRELATION) else { return };
            pool::add(thread, &record.u32(4, call.correlation).u64(8, id).u32(16, external_kind));
        }
    }
    let record = record.u64(8, stamps::of(call.start)).u64(16, stamps::of(call.end));
    let record = record.u32(24, call.group).u32(28, call.id).u32(32, std::process::id()).u32(36, thread);
    count(&link::counters().api_records);
    pool::add(thread, &record.u32(40, call.correlation).u32(44, call.result));
}

fn record_work(work: &[Work]) {
    let began = now();
    for work in work {
        let record = match work.kind {
            tracer::KERNEL => enabled(kind::KERNEL).map(|record| kernel(record, work)),
            tracer::MEMCPY => enabled(kind::MEMCPY).map(|record| memcpy(record, work)),
            tracer::MEMSET => enabled(kind::MEMSET).map(|record| memset(record, work)),
            tracer::MEMCPY_PEER => enabled(kind::MEMCPY_PEER).map(|record| memcpy_peer(record, work)),
            _ => {
                barrier(work);
                None
            }
        };
        if let Some(record) = record {
            count(&link::counters().device_records);
            pool::add(work.thread, &record);
        }
        scope::completed(work);
    }
    overhead(began, work.len());
}

/// The times of a piece of work: given to a list, begun, ended, given to the device.
fn times(record: Record, offset: usize, work: &Work) -> Record {
    let options = link::options();
    let device =
        |at: u64| if options.timestamp_zero { 0 } else { stamps::of(at).saturating_sub(options.early_kernels_ns) };
    let record = record.u64(offset, stamps::of(work.append)).u64(offset + 8, device(work.start));
    record.u64(offset + 16, device(work.end)).u64(offset + 24, stamps::of(work.submit))
}

/// The address of a device on its bus, and its id.
fn device(record: Record, address: usize, uuid: usize, device: u32) -> Record {
    let (options, pci) = (link::options(), format!("0:{:x}:0.0", devices::bus(device)));
    let mut id = devices::uuid(options, device);
    if options.unknown_uuid {
        id.reverse();
    }
    record.put(address, pci.as_bytes()).put(uuid, &id)
}

/// The handle of a device, and the engine of it that has run something.
fn engine(record: Record, offset: usize, handles: &[u32], work: &Work) -> Record {
    let mut record = record;
    for (index, device) in handles.iter().enumerate() {
        record = record.u64(offset + index * 8, devices::handle(*device) as u64);
    }
    let offset = offset + handles.len() * 8;
    record.u32(offset, work.engine_ordinal).u32(offset + 4, work.engine_index)
}

/// Takes the texts away, on demand.
fn with_texts(record: Record, kind: u32) -> Record {
    if !link::options().null_names {
        return record;
    }
    let length = record.bytes().len();
    record::texts(kind, length).iter().fold(record, |record, text| record.u64(*text, 0))
}

fn kernel(record: Record, work: &Work) -> Record {
    let record =
        record.u64(8, work.queue).u64(16, work.context).u64(24, work.name.0 as u64).u64(32, work.file.0 as u64);
    let record = record.u64(40, work.line).u64(48, work.id).u32(56, work.correlation).u32(60, work.thread);
    let record = times(device(record, 64, 80, work.device), 96, work);
    let begun = [work.task_begin, work.enqueue_begin].map(|at| if at == 0 { 0 } else { stamps::of(at) });
    let record = record.u64(128, begun[0]).u64(136, begun[1]).u64(144, work.node).u64(152, work.sycl_queue);
    with_texts(engine(record.u32(160, work.invocation), 168, &[work.device], work), kind::KERNEL)
}

fn memcpy(record: Record, work: &Work) -> Record {
    let record = record.u32(4, work.copy_type).u32(8, work.source_type).u32(12, work.target_type);
    let record = record.u64(16, work.queue).u64(24, work.context).u64(32, work.name.0 as u64);
    let record = device(record, 40, 56, work.device).u64(72, work.id).u32(80, work.correlation).u32(84, work.thread);
    let record = times(record, 88, work).u64(120, work.bytes).u64(128, work.sycl_queue);
    with_texts(engine(record, 136, &[work.device], work), kind::MEMCPY)
}

fn memcpy_peer(record: Record, work: &Work) -> Record {
    let record = record.u32(4, work.copy_type).u32(8, work.source_type).u32(12, work.target_type);
    let record = record.u64(16, work.queue).u64(24, work.context).u64(32, work.name.0 as u64);
    let record = device(device(record, 40, 72, work.device), 56, 88, work.target);
    let record = record.u64(104, work.id).u32(112, work.correlation).u32(116, work.thread);
    let record = times(record, 120, work).u64(152, work.bytes).u64(160, work.sycl_queue);
    with_texts(engine(record, 168, &[work.device, work.target], work), kind::MEMCPY_PEER)
}

fn memset(record: Record, work: &Work) -> Record {
    let record = record.u32(4, work.target_type).u64(8, work.queue).u64(16, work.context).u64(24, work.name.0 as u64);
    let record = device(record, 32, 48, work.device).u64(64, work.id).u32(72, work.correlation).u32(76, work.thread);
    let record = times(record, 80, work).u64(112, work.bytes).u64(120, work.value).u64(128, work.sycl_queue);
    with_texts(engine(record, 136, &[work.device], work), kind::MEMSET)
}

fn barrier(work: &Work) {
    record_wait(&Synchronization {
        kind: tracer::GPU_BARRIER_EXECUTION,
        correlation: work.correlation,
        context: work.context,
        queue: work.queue,
        event: 0,
        start: work.start,
        end: work.end,
        thread: work.thread,
        api: apis::zeCommandListAppendBarrier.id,
        wait_events: 0,
        result: 0,
    });
}

fn record_wait(its: &Synchronization) {
    let Some(record) = enabled(kind::SYNCHRONIZATION) else { return };
    let record = record.u32(4, its.kind).u64(8, its.context).u64(16, its.queue).u64(24, its.event);
    let record = record.u64(32, stamps::of(its.start)).u64(40, stamps::of(its.end));
    let record = record.u32(48, its.thread).u32(52, its.correlation).u32(56, its.wait_events).u32(60, its.result);
    pool::add(its.thread, &record.u32(64, its.api).u32(68, apis::LEVEL_ZERO));
}

fn record_communication(its: &Communication) {
    let Some(record) = enabled(kind::COMMUNICATION) else { return };
    let record = record.u64(8, stamps::of(its.start)).u64(16, stamps::of(its.end));
    let record = record.u32(24, std::process::id()).u32(28, its.thread);
    // Before 1.0 it had the size of some metadata in place of those of the two buffers.
    let record = if link::options().pti.is_since("1.0") {
        record.u64(32, its.send).u64(40, its.receive).u64(48, its.communicator).u64(56, its.name.0 as u64)
    } else {
        record.u64(32, 24).u64(40, its.communicator).u64(48, its.name.0 as u64)
    };
    pool::add(its.thread, &with_texts(record, kind::COMMUNICATION));
}

/// Records the overhead of collecting `count` items of work.
fn overhead(began: u64, pieces: usize) {
    /// PTI's number for time spent in functions of Level Zero.
    const TIME: u32 = 5;
    let Some(record) = enabled(kind::OVERHEAD) else { return };
    let end = now();
    let thread = thread_id();
    let record = record.u64(8, stamps::of(began)).u64(16, stamps::of(end)).u32(24, thread);
    let record = record.u32(28, apis::zeEventQueryKernelTimestamp.id).u64(32, pieces as u64);
    pool::add(thread, &record.u64(40, (end - began) / 2).u32(48, TIME));
}
