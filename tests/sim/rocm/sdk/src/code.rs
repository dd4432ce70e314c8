//! Code objects: the loaded kernels.

use crate::agents;
use crate::context;
use crate::layout::{self, Bytes, CODE_OBJECT, CallbackInfo};
use crate::shared::clock::thread;
use crate::shared::link;
use crate::shared::tracer::Symbol;
use sim_core::handles::lock;
use std::collections::{HashMap, HashSet};
use std::sync::{LazyLock, Mutex};

const OBJECT: i32 = 1;
const SYMBOL: i32 = 2;

const LOAD: u32 = 1;
const UNLOAD: u32 = 2;

/// The loaded kernels by id, and the reported code objects.
#[derive(Debug, Default)]
struct Loaded {
    kernels: HashMap<u64, Symbol>,
    objects: HashSet<u64>,
}

static LOADED: LazyLock<Mutex<Loaded>> = LazyLock::new(Mutex::default);

/// The id that the client knows a kernel by.
pub(crate) fn kernel_id(id: u64) -> u64 {
    id + 100
}

pub(crate) fn load(symbol: &Symbol) {
    let is_new = {
        let mut loaded = lock(&LOADED);
        loaded.kernels.insert(symbol.id, *symbol);
        loaded.objects.insert(symbol.code_object)
    };
    if is_new {
        let payload = Bytes::sized(layout::code_object())
            .u64(8, symbol.code_object)
            .u64(16, agents::gpu(0))
            .u64(32, c"memory://1#offset=0&size=1".as_ptr() as u64)
            .u32(64, 2);
        tell(OBJECT, LOAD, payload);
    }
    tell(SYMBOL, LOAD, payload(symbol));
}

pub(crate) fn unload(id: u64) {
    let gone = lock(&LOADED).kernels.remove(&id);
    if let Some(symbol) = gone {
        tell(SYMBOL, UNLOAD, payload(&symbol));
    }
}

/// `rocprofiler_callback_tracing_code_object_kernel_symbol_register_data_t`
fn payload(symbol: &Symbol) -> Bytes {
    let name = if link::options().null_names { 0 } else { symbol.name.0 as u64 };
    Bytes::sized(layout::kernel_symbol())
        .u64(8, kernel_id(symbol.id))
        .u64(16, symbol.code_object)
        .u64(24, name)
        .u32(48, symbol.group)
        .u32(52, symbol.private)
}

fn tell(operation: i32, phase: u32, mut payload: Bytes) {
    for service in context::services(CODE_OBJECT, operation) {
        let info = CallbackInfo {
            context: service.context,
            thread: thread(),
            correlation: 0,
            external: 0,
            kind: CODE_OBJECT,
            operation,
            phase,
            payload: payload.pointer() as u64,
        };
        service.call(&info, &mut 0);
    }
    // The client has copied what it needs.
    payload.fill(0, 0xdd, &[]);
}
