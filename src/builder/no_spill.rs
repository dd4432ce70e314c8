//! Stub of the settings about records on disk, for builds without the feature `segments`: there are none.

use crate::config::{Config, Key};
use crate::error::Error;
use std::path::Path;

/// Reports nothing: this build makes neither segments nor live files.
pub(super) fn report_left_records(_config: &Config, _output: Option<&Path>) {}

/// Checks nothing: no key asks for parts.
pub(super) fn settle_parts(
    _config: &mut Config,
    _has_handler: bool,
    _can_dump: bool,
    _refuse: impl Fn(Key, &str) -> Result<(), Error>,
) -> Result<(), Error> {
    Ok(())
}
