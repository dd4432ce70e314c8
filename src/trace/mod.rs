//! The rows of a trace, as its walk hands them to writers.

pub(crate) mod rows;
