//! Exclusive use of the simulated CUDA machine, and access to its rows and report in a trace.

use crate::cuda::{self, Cuda};
use crate::simulator;
use crate::wait::{is_virtual, since, steady};
use crate::{File, child, nanos};
use serde_json::Value;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Deref;
use std::process::Output;
use std::time::Duration;
pub use test_base::fork;
use tracing_kineto::integration::{CollectorReport, Unavailable};
use tracing_kineto::{ActivityType, ActivityTypes, KinetoLayerBuilder, Loss};

/// All activity types of GPUs.
pub const TYPES: ActivityTypes = ActivityTypes::DEFAULT.with(ActivityType::CudaSync).with(ActivityType::CudaEvent);

/// Versions of CUPTI, each with its driver.
pub const VERSIONS: [(&str, u32); 16] = [
    ("11.7", 11070),
    ("11.8", 11080),
    ("12.0", 12000),
    ("12.1", 12010),
    ("12.2", 12020),
    ("12.3", 12030),
    ("12.4", 12040),
    ("12.5", 12050),
    ("12.6", 12060),
    ("12.8", 12080),
    ("12.9", 12090),
    ("13.0", 13000),
    ("13.1", 13010),
    ("13.2", 13020),
    ("13.3", 13030),
    ("13.4", 13040),
];

/// Time limit of a stop that should end soon; generous for slow machines.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// The simulated machine; the process has one, with one CUPTI.
pub struct Machine {
    pub cuda: Cuda,
}

/// Returns the machine with these options.
#[track_caller]
pub fn machine(settings: &str) -> Machine {
    simulator::assert_own_process();
    let cuda = Cuda::with(settings);
    cuda::reset();
    Machine { cuda }
}

impl Deref for Machine {
    type Target = Cuda;

    fn deref(&self) -> &Cuda {
        &self.cuda
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        cuda::configure("");
        cuda::reset();
    }
}

/// Enables all that these tests record.
pub fn all(builder: KinetoLayerBuilder) -> KinetoLayerBuilder {
    builder.activities(TYPES).flush_timeout(PATIENCE)
}

/// Records `work` with all activity types of GPUs.
pub fn record(work: impl FnOnce()) -> File {
    crate::record_with(all, work)
}

/// Returns the CUPTI collector's report.
#[track_caller]
pub fn report(file: &File) -> CollectorReport {
    file.collector_report("cupti")
}

/// Returns why CUPTI recorded nothing.
#[track_caller]
pub fn reason(file: &File) -> Unavailable {
    file.unavailable_reason("cupti")
}

pub fn events<'f>(file: &'f File, ph: &str, cat: &str) -> Vec<&'f Value> {
    file.events().filter(|event| event["ph"] == ph && event["cat"] == cat).collect()
}

pub fn kernels(file: &File) -> Vec<&Value> {
    events(file, "X", "kernel")
}

/// Returns kernels, copies and fills.
pub fn work(file: &File) -> Vec<&Value> {
    ["kernel", "gpu_memcpy", "gpu_memset"].iter().flat_map(|cat| events(file, "X", cat)).collect()
}

/// Returns calls of the runtime and the driver.
pub fn calls(file: &File) -> Vec<&Value> {
    ["cuda_runtime", "cuda_driver"].iter().flat_map(|cat| events(file, "X", cat)).collect()
}

pub fn name(event: &Value) -> &str {
    event["name"].as_str().unwrap()
}

/// Returns the device and the stream of a row, also if it overflowed to a further lane.
pub fn stream(event: &Value) -> (i64, i64) {
    const NEXT_ROW: i64 = 10_000_000;
    (event["pid"].as_i64().unwrap(), event["tid"].as_i64().unwrap() % NEXT_ROW)
}

pub fn correlation(event: &Value) -> u64 {
    event["args"]["correlation"].as_u64().unwrap()
}

/// Returns the start and end of an event, in nanoseconds.
pub fn interval(event: &Value) -> (u64, u64) {
    let start = nanos(&event["ts"]);
    (start, start + nanos(&event["dur"]))
}

/// Returns the start and end of the recording, in nanoseconds.
pub fn window(file: &File) -> (u64, u64) {
    let (mut start, mut end) = (u64::MAX, 0);
    for slice in file.events().filter(|event| event["ph"] == "X" && event["pid"] == "Spans") {
        let (from, to) = interval(slice);
        (start, end) = (start.min(from), end.max(to));
    }
    (start, end)
}

/// Returns the name of the slice that owns an event; empty if it names none, "?" if the slice does not exist.
pub fn under<'f>(file: &'f File, event: &Value) -> &'f str {
    let id = &event["args"]["External id"];
    let slice = file.slices().iter().find(|slice| slice.args["External id"] == *id);
    if id.is_null() { "" } else { slice.map_or("?", |slice| &slice.name) }
}

pub fn losses(file: &File) -> Vec<(Loss, usize)> {
    file.trace.stats().losses.iter().map(|(loss, count)| (*loss, usize::try_from(*count).unwrap())).collect()
}

/// Counts the occurrences of each text.
pub fn tally(texts: impl IntoIterator<Item = String>) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    texts.into_iter().for_each(|text| *counts.entry(text).or_default() += 1);
    counts
}

/// Counts of a program's device work in a trace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Calls that launch device work.
    pub launches: usize,
    pub kernels: usize,
    pub copies: usize,
    pub fills: usize,
    /// Work with the same slice as its launch.
    pub linked: usize,
    /// Starts and ends of arrows.
    pub starts: usize,
    pub ends: usize,
    /// Annotations on streams.
    pub annotations: usize,
}

impl Counts {
    /// Counts; checks that each arrow leads from a call to work with its correlation id.
    #[track_caller]
    pub fn of(file: &File) -> Counts {
        let mut by_id: HashMap<u64, Vec<&Value>> = HashMap::new();
        calls(file).into_iter().for_each(|call| by_id.entry(correlation(call)).or_default().push(call));
        let launch_of = |work: &Value| by_id.get(&correlation(work));
        let belongs = |work: &&&Value| {
            let id = &work["args"]["External id"];
            launch_of(work).is_some_and(|calls| !id.is_null() && calls.iter().any(|c| c["args"]["External id"] == *id))
        };
        let work = work(file);
        let launches: HashSet<_> =
            work.iter().filter(|work| launch_of(work).is_some()).map(|w| correlation(w)).collect();
        let (starts, ends) = (events(file, "s", "ac2g"), events(file, "f", "ac2g"));
        let ids: HashSet<_> = starts.iter().map(|start| start["id"].as_u64().unwrap()).collect();
        assert_eq!(ids.len(), starts.len(), "each arrow begins once");
        assert_eq!(ids, ends.iter().map(|end| end["id"].as_u64().unwrap()).collect(), "arrows have both ends");
        for start in starts.iter() {
            let lies = |call: &&&Value| (&call["tid"], &call["ts"]) == (&start["tid"], &start["ts"]);
            let call = by_id.get(&start["id"].as_u64().unwrap()).and_then(|calls| calls.iter().find(lies));
            assert!(call.is_some(), "an arrow does not begin on a call: {start}");
        }
        Counts {
            launches: launches.len(),
            kernels: kernels(file).len(),
            copies: events(file, "X", "gpu_memcpy").len(),
            fills: events(file, "X", "gpu_memset").len(),
            linked: work.iter().filter(belongs).count(),
            starts: starts.len(),
            ends: ends.len(),
            annotations: events(file, "X", "gpu_user_annotation").len(),
        }
    }
}

/// Starts a watchdog that prints a message and aborts the process if the guard lives longer than `patience`.
///
/// On a virtual clock the test itself takes no time, but each of its steps does.
pub fn watch(patience: Duration) -> Watchdog {
    let patience = if is_virtual() { patience * 10 } else { patience };
    let (done, over) = std::sync::mpsc::channel::<()>();
    let watching = std::thread::Builder::new().name("watch".to_owned());
    let begun = steady();
    let watching = watching.spawn(move || {
        // Dropping the guard disconnects the channel.
        if over.recv_timeout(patience) == Err(std::sync::mpsc::RecvTimeoutError::Timeout) {
            say(&format!("hung for {:?}", since(begun)));
            std::process::abort();
        }
    });
    drop(watching.unwrap());
    Watchdog { _done: done }
}

/// The guard of [`watch`].
pub struct Watchdog {
    _done: std::sync::mpsc::Sender<()>,
}

/// Runs an ignored test of this binary in a child process, with these variables.
#[track_caller]
pub fn in_child(test: &str, env: &[(&str, &str)]) -> Output {
    child::run(child::command(test).envs(env.iter().copied()))
}

/// Prints a text, and writes it to a file in the target folder.
pub fn publish(file: &str, text: &str) {
    say(text);
    std::fs::write(crate::target().join(file), text).unwrap();
}

/// Writes a trace to the target folder, where other people's tools read it after the tests (`.ci/run`).
pub fn keep_trace(file: &File, name: &str) {
    let folder = crate::target().join("metrics");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join(format!("{name}.pt.trace.json")), file.json.to_string()).unwrap();
}

pub fn say(text: &str) {
    println!("{text}");
}
