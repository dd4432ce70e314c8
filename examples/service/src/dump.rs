//! Reads a dump: finds the slow request in it, and the kernels for which it waited.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::{fs, io};

use tracing_kineto::Timestamp;
use tracing_kineto::analysis::Events;

use crate::Outcome;
use crate::service::{DOCUMENTS, QUERY, SLOW};

/// Returns the newest dump of this process next to `output`.
pub fn newest(output: &Path) -> io::Result<Option<PathBuf>> {
    let folder = output.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let files = fs::read_dir(folder)?.filter_map(|file| Some(file.ok()?.path()));
    let (pid, end) = (format!("_{}_", std::process::id()), "_slow-span-request.pt.trace.json.gz");
    let is_dump = |path: &PathBuf| path.to_str().is_some_and(|path| path.contains(&pid) && path.ends_with(end));
    Ok(files.filter(is_dump).max())
}

/// Describes what made the slow request wait.
///
/// # Errors
/// The dump lacks the request, its kernel or the kernel before, or does not know what launched them.
pub fn describe(path: &Path) -> Outcome<String> {
    let events = Events::read(path)?;
    let header = |key| events.metadata().find(|(known, _)| *known == key).map_or("", |(_, value)| value);

    // A request is polled several times. It lasts from the first poll to the end of the last one.
    let mut requests = BTreeMap::new();
    for poll in events.iter().filter(|event| event.name() == "request" && event.is_slice()) {
        let (_, end) = requests.entry(poll.span()).or_insert((poll.start(), poll.end()));
        *end = poll.end().max(*end);
    }
    let slowest = requests.iter().max_by_key(|(_, (start, end))| end.since(*start));
    let (&request, &(start, end)) = slowest.ok_or("the dump has no request")?;
    if u128::from(end.since(start)) < SLOW.as_nanos() {
        return Err("the dump has no slow request".into());
    }

    let (attribution, tree) = (events.attribution(), events.span_tree());
    // The spans around the launch of a kernel, from the innermost one.
    let callers = |kernel| attribution.op(kernel).into_iter().flat_map(|op| tree.ancestors(op));
    let kernels = |(name, _)| events.iter().filter(move |event| event.is_device_work() && event.name() == name);
    let own = kernels(QUERY).find(|kernel| callers(*kernel).any(|span| span.span() == request));
    let own = own.ok_or("the dump has no kernel that the slow request launched")?;
    let before = kernels(DOCUMENTS).find(|kernel| kernel.start() < own.start() && kernel.end() > start);
    let before = before.ok_or("the dump has no kernel for which the slow request waited")?;
    if !callers(before).any(|span| span.name() == "rebuild_index") {
        return Err("the dump does not know what launched the documents' kernel".into());
    }

    let at = |time: Timestamp| (time.as_nanos() as f64 - start.as_nanos() as f64) / 1e6;
    Ok(format!(
        "  reason: {}, and {} more requests\n\n\
         {:>9.1} ms  `rebuild_index` begins {} on the GPU\n\
         {:>9.1} ms  the slow `request` arrives and waits for the GPU\n\
         {:>9.1} ms  {} ends\n\
         {:>9.1} ms  {}, which the request launched, begins\n\
         {:>9.1} ms  the request is answered",
        header("dump_reason").trim_matches('"'),
        header("dump_triggers_joined"),
        at(before.start()),
        before.name(),
        0.0,
        at(before.end()),
        before.name(),
        at(own.start()),
        own.name(),
        at(end),
    ))
}
