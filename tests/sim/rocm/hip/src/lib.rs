//! HIP without a GPU: memory is the host's, kernels compute nothing, and time passes in simulated queues.
//!
//! It has the C functions of libamdhip64 that programs with kernels need. Simulated profilers attach by `simMachine`. See
//! README.md for the options (`SIM_ROCM`, `simConfigure`) and the counters.
#![cfg(target_os = "linux")]
#![allow(non_snake_case, reason = "the exported names and their arguments are C's")]

#[path = "../../shared/mod.rs"]
mod shared;

/// Functions of HIP's API: each is exported under its name, and the tracers see its calls.
macro_rules! api {
    ($(fn $name:ident($($argument:ident: $type:ty),* $(,)?) |$caller:pat_param| $body:block)+) => {$(
        #[unsafe(no_mangle)]
        pub extern "C" fn $name($($argument: $type),*) -> i32 {
            const CALL: usize = $crate::shared::calls::find(stringify!($name));
            let arguments = [$($crate::argument::argument(concat!(stringify!($argument), "\0"), &$argument)),*];
            $crate::trace::call(CALL, &arguments, |$caller| $body)
        }
    )+};
}

mod argument;
mod control;
mod device;
mod engine;
mod error;
mod event;
mod graph;
mod launch;
mod memory;
mod module;
mod state;
mod stream;
mod trace;
mod transfer;
