//! A library of the functions of `include/tracing_kineto.h`, which are in the crate's `src/capi`.

use tracing_kineto as _;
