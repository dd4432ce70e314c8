//! Device work: the enabled operations and their records.

use crate::callback::connect;
use crate::names::{
    BARRIER, COPY, DEVICE_TO_DEVICE, DEVICE_TO_HOST, DISPATCH, FILL, HIP_OPS, HOST_TO_DEVICE, KERNEL, MARKER,
    OPERATIONS, TASK, check,
};
use crate::pool::{self, Handle};
use crate::shared::calls::CALLS;
use crate::shared::clock::now;
use crate::shared::courier::{self, Courier};
use crate::shared::link;
use crate::shared::options::Service;
use crate::shared::tracer::{self, ApiCall, Work};
use crate::status::{Outcome, Status, answer, give, is_stopped};
use sim_core::exports;
use sim_core::handles::lock;
use std::ffi::CStr;
use std::sync::Mutex;

/// The pool of each operation that is recorded.
static ENABLED: Mutex<[Option<u64>; OPERATIONS as usize]> = Mutex::new([None; OPERATIONS as usize]);

/// `activity_record_t`
pub(crate) type Record = [u64; 8];

fn pool_of(operation: u32) -> Option<u64> {
    lock(&ENABLED)[operation as usize].filter(|_| !is_stopped())
}

/// The operation and the kind of work; none for what no device does.
fn describe(work: &Work) -> Option<(u32, u32)> {
    Some(match (work.kind, work.direction) {
        (tracer::KERNEL, _) if work.in_graph => (DISPATCH, TASK),
        (tracer::KERNEL, _) => (DISPATCH, KERNEL),
        (tracer::FILL, _) => (COPY, FILL),
        (_, tracer::HOST_TO_DEVICE) => (COPY, HOST_TO_DEVICE),
        (_, tracer::DEVICE_TO_HOST) => (COPY, DEVICE_TO_HOST),
        (_, tracer::DEVICE_TO_DEVICE) => (COPY, DEVICE_TO_DEVICE),
        _ => return None,
    })
}

/// Work that gets a record in a pool when it has ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pending {
    work: Work,
    operation: u32,
    kind: u32,
    pool: u64,
}

/// The thread for them.
pub(crate) static COURIER: Courier<Pending> = Courier::new("sim-roctracer", pool::deliver, || COURIER.collect());

impl courier::Pending for Pending {
    fn work(&self) -> &Work {
        &self.work
    }

    fn work_mut(&mut self) -> &mut Work {
        &mut self.work
    }

    fn write(&self) {
        let (record, name) = self.record();
        pool::add(self.pool, record, name);
    }
}

pub(crate) fn expect(work: &[Work]) {
    for work in work {
        let Some((operation, kind)) = describe(work) else { continue };
        if let Some(pool) = pool_of(operation) {
            COURIER.expect(Pending { work: *work, operation, kind, pool });
        }
    }
}

/// The marker by which HIP waits for a stream.
pub(crate) fn mark(call: &ApiCall) {
    let waits = matches!(CALLS[call.call].name.to_bytes(), b"hipStreamSynchronize" | b"hipDeviceSynchronize");
    let Some(pool) = pool_of(BARRIER).filter(|_| waits) else { return };
    let at = link::options().reported(now());
    let record = words(BARRIER, MARKER, call.correlation, [at, at], [node(0), 0], 0);
    pool::add(pool, record, None);
}

/// The node of a device, by which records know it: those of the processors come first.
fn node(device: u32) -> u64 {
    u64::from(link::options().cpus + device)
}

fn words(operation: u32, kind: u32, correlation: u64, times: [u64; 2], place: [u64; 2], last: u64) -> Record {
    let first = u64::from(HIP_OPS) | u64::from(kind) << 32;
    [first, u64::from(operation), correlation, times[0], times[1], place[0], place[1], last]
}

impl Pending {
    /// Its record, and the name that goes with it.
    fn record(&self) -> (Record, Option<&'static CStr>) {
        let Pending { work, operation, kind, .. } = self;
        let place = [node(work.device), u64::from(work.queue)];
        let has_name = *operation == DISPATCH && !link::options().null_names;
        // SAFETY: HIP keeps names, whose text changes when their module is gone.
        let name = has_name.then(|| unsafe { CStr::from_ptr(work.name.0) });
        (words(*operation, *kind, work.correlation, [work.start, work.end], place, work.bytes), name)
    }
}

fn enable(domain: u32, operation: Option<u32>, pool: Handle) -> Outcome {
    check(domain, operation)?;
    if domain != HIP_OPS {
        return Ok(());
    }
    let what = if operation == Some(COPY) { Service::Copies } else { Service::Kernels };
    Status::unless(link::options().enable_error.code_for(what))?;
    let pool = pool::find(pool)?;
    connect();
    set(operation, Some(pool));
    Ok(())
}

fn disable(domain: u32, operation: Option<u32>) -> Outcome {
    check(domain, operation)?;
    if domain == HIP_OPS {
        set(operation, None);
    }
    Ok(())
}

fn set(operation: Option<u32>, pool: Option<u64>) {
    let mut enabled = lock(&ENABLED);
    for (index, place) in (0..).zip(enabled.iter_mut()) {
        if operation.is_none_or(|operation| operation == index) {
            *place = pool;
        }
    }
}

exports! {
    answer as i32;

    /// Records all operations of a domain, in the default pool for null.
    fn roctracer_enable_domain_activity_expl(domain: u32, pool: Handle) {
        enable(domain, None, pool)
    }

    fn roctracer_disable_domain_activity(domain: u32) {
        disable(domain, None)
    }

    /// The record behind one.
    fn roctracer_next_record(record: *const Record, next: *mut *const Record) {
        give(next, record.wrapping_add(1))
    }
}
