//! The agents of the machine: processors first, then GPUs.

use crate::layout::{self, Bytes};
use crate::shared::link;
use crate::status::{Status, code_of};
use sim_core::exports;
use std::ffi::{CStr, CString, c_void};

const CPU: u32 = 1;
const GPU: u32 = 2;

/// The version of the struct that a client asks for.
const VERSION_0: u32 = 1;

/// The handle of the agent of a node.
fn handle(node: u32) -> u64 {
    0x9000 + u64::from(node) * 0x11
}

/// The agent of a GPU.
pub(crate) fn gpu(device: u32) -> u64 {
    handle(link::options().cpus + device)
}

/// The agent of the memory of the host.
pub(crate) fn host() -> u64 {
    handle(0)
}

/// `rocprofiler_agent_v0_t`
fn describe(node: u32, name: &CString) -> Bytes {
    let options = link::options();
    let is_gpu = node >= options.cpus;
    let ordinal = if is_gpu { node - options.cpus } else { node };
    let text = |text: &CStr| if options.null_names { 0 } else { text.as_ptr() as u64 };
    let agent = Bytes::sized(layout::agent())
        .u64(8, handle(node))
        .u32(16, if is_gpu { GPU } else { CPU })
        .u64(248, text(c"gfx942"))
        .u64(256, text(c"AMD"))
        .u64(264, text(name))
        .u64(272, text(c"aqua_vanjaram"))
        .u32(280, node)
        .u32(284, node)
        .u32(288, ordinal)
        // Place on the PCI bus.
        .u32(108, if is_gpu { (0x23 + ordinal) << 8 } else { 0 });
    // Threads that go together, and units.
    if is_gpu { agent.u32(64, 64).u32(72, 304) } else { agent.u32(20, 8) }
}

type AgentsCallback = extern "C" fn(u32, *const *const c_void, usize, *mut c_void) -> i32;

exports! {
    code_of as i32;

    /// Reports all agents in one call.
    fn rocprofiler_query_available_agents(version: u32, callback: AgentsCallback, size: usize, data: *mut c_void) {
        if version != VERSION_0 || size > layout::agent() {
            return Err(Status::INVALID_ARGUMENT);
        }
        let options = link::options();
        let name = CString::new(options.name.as_str()).unwrap_or_default();
        let mut agents: Vec<Bytes> = (0..options.cpus + options.devices).map(|node| describe(node, &name)).collect();
        let mut pointers: Vec<*const c_void> = Vec::new();
        if options.lying_agents {
            // A null, one that is cut short, and two of one id.
            pointers.push(std::ptr::null());
            agents.push(Bytes::zeros(16).u64(0, 16).u64(8, 0x77));
            agents.push(describe(options.cpus, &name).u32(288, 5));
        }
        pointers.extend(agents.iter_mut().map(|agent| agent.pointer().cast_const().cast::<c_void>()));
        let answer = callback(VERSION_0, pointers.as_ptr(), pointers.len(), data);
        agents.iter_mut().for_each(|agent| agent.fill(0, 0xdd, &[]));
        Status::unless(answer)
    }
}
