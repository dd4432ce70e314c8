//! Which kinds of views are enabled, and which functions of the APIs.

use crate::code::{Code, Outcome};
use crate::courier;
use crate::layout::{self, kind};
use crate::link;
use crate::shared::apis::{self, ALL_CLASSES, ALL_GROUPS, GPU_OPERATION_CORE, SYCL};
use crate::shared::counters::count;
use sim_core::handles::lock;
use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{LazyLock, Mutex};

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
    Code::unless(options.enable_error.code_for(kind) as u32)?;
    if kind == kind::CPU_KERNEL {
        return Err(Code::NOT_IMPLEMENTED);
    }
    check(kind)?;
    // Enabled anew, all functions of its group are recorded.
    let is_new = ENABLED.fetch_or(bit(kind), Ordering::Relaxed) & bit(kind) == 0;
    if kind == kind::RUNTIME_API && is_new {
        lock(&CHOSEN).remove(&SYCL);
    }
    Ok(())
}

pub(crate) fn disable(kind: u32) -> Outcome {
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

/// Has the functions of a class of the runtime's recorded, or not, and no others than have been named; at first there are
/// none.
pub(crate) fn set_runtime_class(enable: bool, class: u32, group: u32) -> Outcome {
    if ![SYCL, ALL_GROUPS].contains(&group) || ![GPU_OPERATION_CORE, ALL_CLASSES].contains(&class) {
        return Err(Code::BAD_ARGUMENT);
    }
    let mut chosen = lock(&CHOSEN);
    let functions = chosen.entry(SYCL).or_default();
    for api in apis::of_group(SYCL).filter(|api| api.class == GPU_OPERATION_CORE) {
        if enable {
            functions.insert(api.id)
        } else {
            functions.remove(&api.id)
        };
    }
    Ok(())
}

/// The kind under which a call is recorded, if it is.
pub(crate) fn call(group: u32, id: u32) -> Option<u32> {
    let kind = if group == SYCL { kind::RUNTIME_API } else { kind::DRIVER_API };
    let chosen = lock(&CHOSEN);
    let is_chosen = chosen.get(&group).is_none_or(|functions| functions.contains(&id));
    (is_enabled(kind) && is_chosen).then_some(kind)
}
