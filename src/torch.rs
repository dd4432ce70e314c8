//! What torch.profiler and libkineto offer and few Rust programs need, under their names.

pub use crate::builder::TorchOptions;
