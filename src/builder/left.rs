//! Reports what earlier processes have left.

use super::spill;
use crate::config::Config;
use crate::diag::diag;
use crate::text::{escaped_path, joined};
use crate::write::sink::Sinks;
use std::path::{Path, PathBuf};

/// Reports what processes that have ended have left where this one writes.
pub(super) fn report_left_files(config: &Config) {
    let output = config.output.expanded_path(&config.placeholder_values());
    let unfinished = output.as_deref().map(Sinks::abandoned_files).unwrap_or_default();
    if let Some((files, first)) = list_files(&unfinished) {
        diag!(Warning, "trace", "unfinished traces of processes that have ended: {files}; {}", repair_advice(first));
    }
    spill::report_left_records(config, output.as_deref());
}

/// Returns how to make traces of files that start with `first`.
pub(super) fn repair_advice(first: &Path) -> String {
    format!("run `kineto repair {}` for each, and delete it", escaped_path(first))
}

/// Returns the first names and how many more there are, and the first path; `None` without files.
pub(super) fn list_files(files: &[PathBuf]) -> Option<(String, &Path)> {
    const SHOWN: usize = 3;
    let first = files.first()?;
    let names: Vec<_> = files.iter().take(SHOWN).map(|path| escaped_path(path)).collect();
    let more = files.len() - names.len();
    let more = if more == 0 { String::new() } else { format!(" and {more} more") };
    Some((format!("{}{more}", joined(&names, ", ")), first))
}
