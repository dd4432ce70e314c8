//! Files: their contents, and reading them back.

mod averages;
mod diff;
mod execution_trace;
mod hostile;
mod json_features;
mod path;
mod read;
mod related;
mod summary;
