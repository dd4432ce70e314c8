//! A CUDA driver without a GPU: memory is the host's, kernels compute nothing, and time passes on simulated engines.
//!
//! It has the C functions of libcuda that a program on the driver API needs. By `simMachine` a simulated CUPTI becomes
//! the tracer. See README.md for the options (`SIM_CUDA`, `simConfigure`) and the counters (`simCount`).
#![cfg(target_os = "linux")]
#![allow(non_snake_case, reason = "the exported names are C's")]

#[path = "../../shared/mod.rs"]
mod shared;

/// Functions of the driver API: each is exported under its name, and the tracer sees its calls.
macro_rules! api {
    ($(fn $name:ident($($argument:ident: $type:ty),* $(,)?) |$caller:pat_param| $body:block)+) => {$(
        #[unsafe(no_mangle)]
        pub extern "C" fn $name($($argument: $type),*) -> i32 {
            #[allow(dead_code, reason = "the tracer reads them")]
            #[repr(C)]
            struct Params { $($argument: $type),* }
            let params = Params { $($argument),* };
            $crate::trace::set_params(&params);
            $crate::trace::call(&$crate::shared::calls::$name, |$caller| $body)
        }
    )+};
}

mod attributes;
mod context;
mod control;
mod device;
mod engine;
mod error;
mod event;
mod graph;
mod injection;
mod launch;
mod memory;
mod module;
mod procedure;
mod runtime;
mod state;
mod stream;
mod trace;
mod transfer;
