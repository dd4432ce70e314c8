//! The functions of `include/tracing_kineto.h` as a library by itself; they are in the crate's `src/capi`.

use tracing_kineto as _;
