//! The sources of settings: environment, file, builder and requests, and how they are merged.

pub(super) mod env;
pub(super) mod file;
pub(super) mod launchers;
pub(super) mod overrides;
pub(super) mod parse;
pub(super) mod request;
pub(super) mod settings;
