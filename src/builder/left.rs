//! Reports what earlier processes have left: unfinished traces, live files, folders of segments.

use crate::config::{Config, Overflow};
use crate::diag::diag;
use crate::segment::folder;
use crate::text::escaped_path;
use crate::write::sink::Sinks;
use std::path::{Path, PathBuf};

/// Reports what processes that have ended have left where this one writes.
pub(super) fn report_left_files(config: &Config) {
    let output = config.output.expanded_path(&config.placeholder_values());
    let unfinished = output.as_deref().map(Sinks::abandoned_files).unwrap_or_default();
    let advice = |first: &Path| format!("run `kineto repair {}` for each, and delete it", escaped_path(first));
    if let Some((files, first)) = list_files(&unfinished) {
        diag!(Warning, "trace", "unfinished traces of processes that have ended: {files}; {}", advice(first));
    }
    let report = |found: &[PathBuf]| {
        if let Some((files, first)) = list_files(found) {
            diag!(Warning, "live", "records of processes that have ended: {files}; {}", advice(first));
        }
    };
    let folders = (config.overflow == Overflow::Spill).then(|| {
        let segments = config.spill_folder.as_deref().or_else(|| output.as_deref().and_then(Path::parent));
        segments.map(folder::left_segment_folders).unwrap_or_default()
    });
    let folders = folders.unwrap_or_default();
    // `kineto repair` reads the live file of a folder with it.
    let named: Vec<_> = folders.iter().filter_map(|folder| folder::named_live_file(folder)).collect();
    if let Some(shm) = &config.shm_folder {
        let mut left = folder::left_live_files(shm);
        left.retain(|path| !named.contains(path));
        report(&left);
    }
    report(&folders);
}

/// Returns the first names and how many more there are, and the first path; `None` without files.
fn list_files(files: &[PathBuf]) -> Option<(String, &Path)> {
    const SHOWN: usize = 3;
    let first = files.first()?;
    let names: Vec<_> = files.iter().take(SHOWN).map(|path| escaped_path(path)).collect();
    let more = files.len() - names.len();
    let more = if more == 0 { String::new() } else { format!(" and {more} more") };
    Some((format!("{}{more}", names.join(", ")), first))
}
