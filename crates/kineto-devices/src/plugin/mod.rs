//! Plugins: libraries that record a vendor's accelerator without a change in this crate.
//!
//! They are written against `include/kineto_plugin.h`.

pub mod abi;
mod callback_context;
mod calls;
mod event_type;
mod events;
mod metadata;

use super::buffered::commands::EndLimits;
use super::library::contained::call_on_thread;
use super::{
    Attempt, Capabilities, Collector, DeviceDescription, Library, RecordSink, Recording, Rejected, Selection,
    Unavailable, Why,
};
use callback_context::CallbackContext;
use calls::{Functions, ProfilerHandle, SharedProfiler};
pub use event_type::EventType;
use events::Events;
use kineto_base::os::fork;
use kineto_base::sorting::sort_few_by;
use kineto_base::time::Timestamp;
use kineto_base::wait::{sleep, steady};
use kineto_model::activity::{ActivityTypes, CorrelationId};
use std::mem::ManuallyDrop;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// A profiler that a library registered, as a collector.
#[derive(Debug)]
pub(crate) struct LoadedPlugin {
    name: &'static str,
    file: PathBuf,
    functions: Functions,
    /// What it records, as event types and as activity types.
    records: Vec<EventType>,
    types: ActivityTypes,
    notes: Vec<String>,
    context: &'static CallbackContext<Events>,
    /// The fork generation of the process in which it runs.
    generation: AtomicU64,
    /// Whether a call has not returned; until then, the plugin is not called.
    is_busy: Arc<AtomicBool>,
}

/// A recording of a plugin.
#[derive(Debug)]
struct PluginRecording {
    name: &'static str,
    functions: Functions,
    context: &'static CallbackContext<Events>,
    profiler: Arc<SharedProfiler>,
    is_busy: Arc<AtomicBool>,
    types: ActivityTypes,
    sink: RecordSink,
    /// The devices that the plugin describes when it delivers its records.
    devices: fork::Own<Vec<DeviceDescription>>,
}

/// Marks the plugin as busy until it is dropped, on any thread.
struct BusyGuard(Arc<AtomicBool>);

impl Drop for BusyGuard {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

/// What to do about a plugin that fails.
const UPDATE_ADVICE: &str = "update the plugin, or remove it from the folder";
/// How long a plugin may take to register, and to start.
const PATIENCE: Duration = Duration::from_secs(10);
/// How often a stop polls for the end of pushes: at first, and at most.
const POLL_EVERY: [Duration; 2] = [Duration::from_micros(100), Duration::from_millis(20)];

/// Returns the profilers of all plugins in a folder, and why the others failed to load.
pub fn load_plugins(folder: &Path) -> (Vec<Arc<dyn Collector>>, Vec<Rejected>) {
    let (mut found, mut off) = (Vec::<Arc<dyn Collector>>::new(), Vec::new());
    let files = std::fs::read_dir(folder).map(|entries| {
        let files = entries.flatten().map(|entry| entry.path());
        let mut files: Vec<_> = files.filter(|file| is_library(file)).collect();
        sort_few_by(&mut files, PathBuf::cmp);
        files
    });
    let files = files.unwrap_or_else(|error| {
        let why = format!("cannot read the folder of plugins {}: {error}", folder.display());
        off.push(("plugins", Unavailable::new(Why::LibraryNotFound, why, "correct KINETO_PLUGIN_LIB_DIR_PATH")));
        Vec::new()
    });
    for file in files {
        let stem = name_of(&file.file_stem().unwrap_or_default().to_string_lossy());
        for profiler in load_in_time(&file, stem) {
            match profiler {
                Ok(plugin) => found.push(Arc::new(plugin)),
                Err(reason) => off.push((stem, reason)),
            }
        }
    }
    (found, off)
}

fn is_library(file: &Path) -> bool {
    file.extension().is_some_and(|extension| extension == std::env::consts::DLL_EXTENSION) && file.is_file()
}

/// Leaks the name: collectors and libraries are never unloaded.
fn name_of(text: &str) -> &'static str {
    let word = text.to_lowercase().replace(|sign: char| !sign.is_alphanumeric(), "_");
    Box::leak(word.into_boxed_str())
}

fn load_in_time(file: &Path, stem: &str) -> Vec<Result<LoadedPlugin, Unavailable>> {
    let own = file.to_owned();
    call_on_thread(stem, PATIENCE, move || load_library(&own)).unwrap_or_else(|| {
        let why = format!("{}: no registration within 10 s", file.display());
        vec![Err(Unavailable::new(Why::Failed, why, UPDATE_ADVICE))]
    })
}

/// Opens a library and makes it register its profilers.
fn load_library(file: &Path) -> Vec<Result<LoadedPlugin, Unavailable>> {
    let refused = |why, text: String| Err(Unavailable::new(why, format!("{}: {text}", file.display()), UPDATE_ADVICE));
    let library = match Library::open_file(file) {
        Ok(library) => library,
        Err(words) => return vec![refused(Why::Failed, words)],
    };
    let Some((registered, status)) = calls::register_profilers(library) else {
        let why = "not a plugin: it lacks KinetoPlugin_register";
        return vec![refused(Why::Unsupported, why.to_owned())];
    };
    if status != 0 {
        return vec![refused(Why::Failed, format!("KinetoPlugin_register failed with status {status}"))];
    }
    let profilers = registered.profilers.into_iter().map(|interface| match Functions::new(interface) {
        Ok(functions) => LoadedPlugin::new(file, functions),
        Err(missing) => refused(Why::Incompatible, format!("its profiler lacks the function {missing}")),
    });
    let others = registered.refused.into_iter().map(|why| refused(Why::Incompatible, format!("it registers {why}")));
    let all: Vec<_> = profilers.chain(others).collect();
    if all.is_empty() { vec![refused(Why::Failed, "it registers no profiler".to_owned())] } else { all }
}

impl LoadedPlugin {
    fn new(file: &Path, functions: Functions) -> Result<LoadedPlugin, Unavailable> {
        let described = functions.query_profile().map_err(|status| {
            let text = format!("{}: profilerQuery failed with status {status}", file.display());
            Unavailable::new(Why::Failed, text, UPDATE_ADVICE)
        })?;
        let known: Vec<_> = described.types.iter().filter_map(|number| EventType::from_number(*number)).collect();
        let unknown = described.types.iter().filter(|number| EventType::from_number(**number).is_none());
        let unknown: Vec<_> = unknown.map(u32::to_string).collect();
        let stem = file.file_stem().unwrap_or_default().to_string_lossy();
        let name = name_of(if described.name.is_empty() { &stem } else { &described.name });
        let note = format!("unknown event types are not recorded: {}", unknown.join(", "));
        Ok(LoadedPlugin {
            name,
            file: file.to_owned(),
            functions,
            types: known.iter().map(|known| known.kind()).collect(),
            records: known,
            notes: Some(note).filter(|_| !unknown.is_empty()).into_iter().collect(),
            context: CallbackContext::new(),
            generation: AtomicU64::new(fork::generation()),
            is_busy: Arc::default(),
        })
    }

    fn check_capabilities(&self) -> Result<Capabilities, Unavailable> {
        if self.generation.swap(fork::generation(), Ordering::Relaxed) != fork::generation() {
            // The thread that was in a call stayed in the parent.
            self.is_busy.store(false, Ordering::Relaxed);
        }
        if self.is_busy.load(Ordering::Acquire) {
            let why = format!("{} has not returned from a call of an earlier recording", self.file.display());
            return Err(Unavailable::new(Why::Failed, why, "give it a longer flush_timeout; tell the plugin's vendor"));
        }
        let (types, notes) = (self.types, self.notes.clone());
        Ok(Capabilities { types, library: Some(self.file.clone()), notes, ..Capabilities::default() })
    }
}

/// A profiler that was started. Unless the recording takes it, it is stopped and destroyed: a start that took too long.
struct StartedProfiler {
    functions: Functions,
    profiler: ProfilerHandle,
}

impl StartedProfiler {
    /// Returns the profiler, which runs on.
    fn keep(self) -> ProfilerHandle {
        ManuallyDrop::new(self).profiler
    }
}

impl Drop for StartedProfiler {
    fn drop(&mut self) {
        // Its records would belong to no recording.
        self.functions.stop_profiler(self.profiler, |_| 0);
    }
}

/// Calls a plugin and waits for it until `deadline`; it is busy until that call has returned, and a late answer is dropped.
fn call_plugin<R: Send + 'static>(
    name: &str,
    is_busy: &Arc<AtomicBool>,
    deadline: Instant,
    call: impl FnOnce() -> R + Send + 'static,
) -> Option<R> {
    is_busy.store(true, Ordering::Relaxed);
    let busy = BusyGuard(is_busy.clone());
    let patience = deadline.saturating_duration_since(steady());
    call_on_thread(name, patience, move || (call(), busy)).map(|(answer, _)| answer)
}

/// Waits until no thread is in a push or pop.
fn wait_for_pushes(profiler: &SharedProfiler) {
    let [mut wait, longest] = POLL_EVERY;
    while !profiler.is_idle() {
        sleep(wait);
        wait = (wait * 2).min(longest);
    }
}

impl Collector for LoadedPlugin {
    fn name(&self) -> &'static str {
        self.name
    }

    fn types(&self) -> ActivityTypes {
        self.types
    }

    fn probe(&self) -> Result<Capabilities, Unavailable> {
        self.check_capabilities()
    }

    fn start(
        &self,
        selection: &Selection,
        sink: RecordSink,
    ) -> Result<(Capabilities, Box<dyn Recording>), Unavailable> {
        let can = self.check_capabilities()?;
        let asked = self.records.iter().filter(|known| selection.types.contains(known.kind()));
        let numbers: Vec<u32> = asked.map(|known| known.number()).collect();
        let LoadedPlugin { name, functions, context, .. } = *self;
        let deadline = steady() + PATIENCE;
        let start = move || {
            let started = functions.start_profiler(&numbers);
            started.map(|profiler| StartedProfiler { functions, profiler })
        };
        let profiler = match call_plugin(name, &self.is_busy, deadline, start) {
            Some(Ok(started)) => Arc::new(SharedProfiler::new(started.keep())),
            Some(Err(why)) => return Err(Unavailable::new(Why::Failed, why, UPDATE_ADVICE)),
            None => return Err(Unavailable::new(Why::Failed, "no start within 10 s", UPDATE_ADVICE)),
        };
        let (types, is_busy) = (self.types.intersection(selection.types), self.is_busy.clone());
        let devices = fork::Own::default();
        let recording = PluginRecording { name, functions, context, profiler, is_busy, types, sink, devices };
        Ok((Capabilities { types, ..can }, Box::new(recording)))
    }

    fn attempts(&self) -> Vec<Attempt> {
        vec![Attempt::new(self.file.display().to_string(), "opened")]
    }
}

impl Recording for PluginRecording {
    fn push(&self, id: CorrelationId) -> bool {
        self.functions.push_slice(&self.profiler, id.0, false)
    }

    fn pop(&self) {
        self.functions.pop_slice(&self.profiler, false);
    }

    fn push_annotation(&self, id: CorrelationId) -> bool {
        self.functions.push_slice(&self.profiler, id.0, true)
    }

    fn pop_annotation(&self) {
        self.functions.pop_slice(&self.profiler, true);
    }

    fn stop(&self, _end: Timestamp, deadline: Instant) {
        let deadline = steady() + EndLimits::new(steady(), deadline).library;
        let Some(handle) = self.profiler.reject_pushes() else { return };
        let (functions, context, events) = (self.functions, self.context, Events::new(self.sink.clone(), self.types));
        let profiler = self.profiler.clone();
        let ended = call_plugin(self.name, &self.is_busy, deadline, move || {
            // Also after the deadline: the profiler is destroyed once the last thread has left it.
            wait_for_pushes(&profiler);
            let mut devices = Vec::new();
            let failures = functions.stop_profiler(handle, |process| {
                let (described, status) = context.receive_events(events, process);
                devices = described;
                status
            });
            (devices, failures)
        });
        match ended {
            Some((devices, failures)) => {
                failures.into_iter().for_each(|failure| self.sink.note(failure));
                *self.devices.lock() = devices;
            }
            None if self.profiler.is_idle() => {
                self.sink.note("the plugin hung during stop; records that it had not delivered are lost");
            }
            None => self.sink.note("the plugin hung in a push or pop; its records are lost"),
        }
    }

    fn devices(&self) -> Vec<DeviceDescription> {
        self.devices.lock().clone()
    }
}
