//! Which kinds of views are enabled, and which functions of the APIs.

use crate::code::{Code, Outcome, unless};
use crate::courier;
use crate::layout::{self, kind};
use crate::link;
use crate::shared::apis::{self, ALL_CLASSES, ALL_GROUPS, GPU_OPERATION_CORE, HOST_SYNCHRONIZATION, LEVEL_ZERO, SYCL};
use crate::shared::counters::count;
use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{LazyLock, Mutex, PoisonError};

/// The enabled kinds, as bits.
static ENABLED: AtomicU32 = AtomicU32::new(0);

/// The functions of each group that are recorded, where that are not all.
static CHOSEN: LazyLock<Mutex<HashMap<u32, HashSet<u32>>>> = LazyLock::new(Mutex::default);

/// Views that Level Zero's calls are traced for.
const OF_LEVEL_ZERO: u32 = bit(kind::KERNEL)
    | bit(kind::MEMSET)
    | bit(kind::MEMCPY)
    | bit(kind::MEMCPY_PEER)
    | bit(kind::DRIVER_API)
    | bit(kind::SYNCHRONIZATION);

const fn bit(kind: u32) -> u32 {
    1 << kind
}

pub(crate) fn enable(kind: u32) -> Outcome {
    count(&link::counters().enables);
    if !courier::is_registered() {
        return Err(Code::NO_CALLBACKS_SET);
    }
    let options = link::options();
    unless(options.enable_error.code_for(kind) as u32)?;
    if kind == kind::CPU_KERNEL {
        return Err(Code::NOT_IMPLEMENTED);
    }
    check(kind)?;
    // Enabled anew, all functions of its group are recorded.
    let is_new = ENABLED.fetch_or(bit(kind), Ordering::Relaxed) & bit(kind) == 0;
    match kind {
        kind::RUNTIME_API if is_new => choose(SYCL, None),
        kind::DRIVER_API => choose(LEVEL_ZERO, None),
        _ => {}
    }
    Ok(())
}

pub(crate) fn disable(kind: u32) -> Outcome {
    count(&link::counters().disables);
    check(kind)?;
    ENABLED.fetch_and(!bit(kind), Ordering::Relaxed);
    Ok(())
}

fn check(kind: u32) -> Outcome {
    let is_reserved = kind == 0 || kind == kind::RESERVED || kind >= u32::BITS;
    let is_known = layout::length(kind, link::options()).is_some();
    if is_reserved || !is_known { Err(Code::BAD_ARGUMENT) } else { Ok(()) }
}

pub(crate) fn is_enabled(kind: u32) -> bool {
    kind < u32::BITS && ENABLED.load(Ordering::Relaxed) & bit(kind) != 0
}

/// How many kinds are enabled.
pub(crate) fn enabled() -> u64 {
    ENABLED.load(Ordering::Relaxed).count_ones().into()
}

/// Whether Level Zero is traced, without which there are no metrics of kernels.
pub(crate) fn is_level_zero_traced() -> bool {
    ENABLED.load(Ordering::Relaxed) & OF_LEVEL_ZERO != 0
}

fn choose(group: u32, functions: Option<HashSet<u32>>) {
    let mut chosen = CHOSEN.lock().unwrap_or_else(PoisonError::into_inner);
    match functions {
        Some(functions) => drop(chosen.insert(group, functions)),
        None => drop(chosen.remove(&group)),
    }
}

/// Adds a class of functions to those of their group that are recorded, or takes them away; at first there are none.
fn refine(enable: bool, group: u32, class: u32) {
    let of_class = apis::of_group(group).filter(|api| api.class == class);
    of_class.for_each(|api| set_one(enable, group, api.id));
}

fn set_one(enable: bool, group: u32, id: u32) {
    let mut chosen = CHOSEN.lock().unwrap_or_else(PoisonError::into_inner);
    let functions = chosen.entry(group).or_default();
    if enable {
        functions.insert(id)
    } else {
        functions.remove(&id)
    };
}

/// Has a function recorded, or not, and no others than have been named.
pub(crate) fn set(enable: bool, group: u32, id: u32) -> Outcome {
    apis::find(group, id).ok_or(Code::BAD_API_ID)?;
    set_one(enable, group, id);
    Ok(())
}

/// Has the functions of a class of the runtime's recorded, or not, and no others than have been named.
pub(crate) fn set_runtime_class(enable: bool, class: u32, group: u32) -> Outcome {
    if ![SYCL, ALL_GROUPS].contains(&group) || ![GPU_OPERATION_CORE, ALL_CLASSES].contains(&class) {
        return Err(Code::BAD_ARGUMENT);
    }
    refine(enable, SYCL, GPU_OPERATION_CORE);
    Ok(())
}

/// As [`set_runtime_class`], of the driver.
pub(crate) fn set_driver_class(enable: bool, class: u32, group: u32) -> Outcome {
    if ![LEVEL_ZERO, ALL_GROUPS].contains(&group) {
        return Err(Code::BAD_ARGUMENT);
    }
    match class {
        ALL_CLASSES => [GPU_OPERATION_CORE, HOST_SYNCHRONIZATION].map(|class| refine(enable, LEVEL_ZERO, class)),
        GPU_OPERATION_CORE | HOST_SYNCHRONIZATION => [refine(enable, LEVEL_ZERO, class); 2],
        _ => return Err(Code::BAD_ARGUMENT),
    };
    Ok(())
}

/// The kind under which a call is recorded, if it is.
pub(crate) fn call(group: u32, id: u32) -> Option<u32> {
    let kind = if group == SYCL { kind::RUNTIME_API } else { kind::DRIVER_API };
    let chosen = CHOSEN.lock().unwrap_or_else(PoisonError::into_inner);
    let is_chosen = chosen.get(&group).is_none_or(|functions| functions.contains(&id));
    (is_enabled(kind) && is_chosen).then_some(kind)
}
