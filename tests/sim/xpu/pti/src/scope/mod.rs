//! Scopes: the metrics of each kernel that ends while a scope collects.

pub(crate) mod api;
mod metrics;

use crate::code::{Code, Outcome};
use crate::shared::counters::count;
use crate::shared::devices;
use crate::shared::tracer::{KERNEL, Work};
use crate::{link, views};
use metrics::Metric;
use sim_core::handles::Handles;
use std::collections::BTreeSet;
use std::ffi::{CStr, c_char};

static SCOPES: Handles<Scope> = Handles::behind(0x5e00_0020_0000);

/// The least that a buffer of raw data holds, and what the data of a kernel take there.
const LEAST_BUFFER: usize = 2_048;
const RAW_RECORD: usize = 960;
const MOST_RECORDS: usize = 10_000;

#[derive(Debug, Default)]
struct Scope {
    /// None before it is configured.
    choice: Option<Choice>,
    buffer_size: usize,
    collects: bool,
    collected: Vec<Collected>,
}

/// What is to be collected.
#[derive(Debug)]
struct Choice {
    /// Indices; with none, all devices.
    devices: BTreeSet<u32>,
    metrics: Vec<&'static Metric>,
    /// As PTI hands them out, for as long as there is the scope.
    value_types: Vec<u32>,
    names: Vec<*const c_char>,
    units: Vec<*const c_char>,
}

// SAFETY: the texts are constants.
unsafe impl Send for Choice {}

/// A buffer of raw data of one device, which is a mere address to the client.
#[derive(Debug)]
struct Collected {
    device: u32,
    raw: Box<[u8]>,
    kernels: Vec<Work>,
}

impl Collected {
    fn address(&self) -> usize {
        self.raw.as_ptr() as usize
    }
}

impl Choice {
    fn of(devices: BTreeSet<u32>, names: &[&CStr]) -> Outcome<Choice> {
        let find = |name: &&CStr| metrics::find(name).ok_or(Code::METRIC_NOT_FOUND);
        let metrics = names.iter().map(find).collect::<Outcome<Vec<_>>>()?;
        let group = metrics.first().ok_or(Code::BAD_ARGUMENT)?.group;
        if metrics.iter().any(|metric| metric.group != group) {
            return Err(Code::NOT_A_SINGLE_GROUP);
        }
        let value_types = metrics.iter().map(|metric| metric.value_type).collect();
        let names = metrics.iter().map(|metric| metric.name.as_ptr()).collect();
        let units = metrics.iter().map(|metric| metric.unit.as_ptr()).collect();
        Ok(Choice { devices, metrics, value_types, names, units })
    }
}

impl Scope {
    fn choice(&self) -> Outcome<&Choice> {
        self.choice.as_ref().ok_or(Code::BAD_COLLECTION_CONFIGURATION)
    }

    fn buffer(&self, address: usize) -> Outcome<&Collected> {
        self.collected.iter().find(|collected| collected.address() == address).ok_or(Code::BAD_ARGUMENT)
    }

    /// Keeps a kernel, in a new buffer where the one of its device is full.
    fn keep(&mut self, work: &Work) {
        let most = (self.buffer_size.max(LEAST_BUFFER) / RAW_RECORD).min(MOST_RECORDS);
        let has_room = |collected: &&mut Collected| collected.device == work.device && collected.kernels.len() < most;
        if let Some(collected) = self.collected.iter_mut().rev().find(has_room) {
            return collected.kernels.push(*work);
        }
        let raw = vec![0xa5; RAW_RECORD].into_boxed_slice();
        self.collected.push(Collected { device: work.device, raw, kernels: vec![*work] });
    }
}

/// Makes a scope; its handle.
fn make() -> usize {
    count(&link::counters().scopes);
    SCOPES.add(Scope::default())
}

/// Does something with a scope.
fn with<T>(handle: usize, body: impl FnOnce(&mut Scope) -> Outcome<T>) -> Outcome<T> {
    SCOPES.with(handle, Code::BAD_ARGUMENT, body)
}

/// As [`with`], with one that does not collect.
fn with_idle<T>(handle: usize, body: impl FnOnce(&mut Scope) -> Outcome<T>) -> Outcome<T> {
    with(handle, |scope| if scope.collects { Err(Code::COLLECTION_ALREADY_ENABLED) } else { body(scope) })
}

fn configure(handle: usize, devices: &[usize], names: &[&CStr]) -> Outcome {
    let options = link::options();
    with_idle(handle, |scope| {
        let index = |device: &usize| devices::index(options, *device).ok_or(Code::BAD_ARGUMENT);
        let devices = devices.iter().map(index).collect::<Outcome<_>>()?;
        scope.collected.clear();
        scope.choice = Some(Choice::of(devices, names)?);
        Ok(())
    })
}

fn start(handle: usize) -> Outcome {
    with_idle(handle, |scope| {
        scope.choice()?;
        if !views::is_level_zero_traced() {
            return Err(Code::NO_GPU_VIEWS_ENABLED);
        }
        scope.collects = true;
        Ok(())
    })
}

fn stop(handle: usize) -> Outcome {
    with(handle, |scope| {
        let did = std::mem::replace(&mut scope.collects, false);
        if did { Ok(()) } else { Err(Code::COLLECTION_NOT_ENABLED) }
    })
}

fn destroy(handle: usize) -> Outcome {
    SCOPES.remove(handle).map(drop).ok_or(Code::BAD_ARGUMENT)
}

/// A piece of work has ended.
pub(crate) fn completed(work: &Work) {
    if work.kind != KERNEL {
        return;
    }
    let is_chosen = |choice: &Choice| choice.devices.is_empty() || choice.devices.contains(&work.device);
    SCOPES.with_all(|scopes| {
        let collecting = scopes.values_mut().filter(|scope| scope.collects);
        collecting.filter(|scope| scope.choice.as_ref().is_some_and(is_chosen)).for_each(|scope| scope.keep(work));
    });
}

/// How many scopes there are.
pub(crate) fn open() -> u64 {
    SCOPES.with_all(|scopes| scopes.len() as u64)
}
