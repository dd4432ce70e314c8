//! The profiler of the C API, from init to shutdown.

use super::status::{CStatus, CallError};
use kineto_base::os::fork::Own;
use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, Ordering};
use tracing_core::dispatcher::{self, Dispatch};
use tracing_core::subscriber::NoSubscriber;
use tracing_kineto::{Error, ErrorKind, KinetoGuard, KinetoLayer, Profiler, Trace, profiler as newest_profiler};
use tracing_subscriber::layer::SubscriberExt;

/// The state of the library, as the status that a call returns; [`CStatus::Ok`] while it is active.
static STATE: AtomicU8 = AtomicU8::new(CStatus::NotInitialized as u8);
/// It is kept after the shutdown.
static PROFILER: OnceLock<Profiler> = OnceLock::new();

/// The state behind a lock.
#[derive(Default)]
struct ControlState {
    /// The guard of the layer that was built here; `None` if the program installed its own, and in a forked child.
    guard: Option<KinetoGuard>,
    /// Whether the layer was built by injection.
    is_injected: bool,
    /// The recording that was stopped last, until the next one starts.
    last: Option<Trace>,
}

fn control_state() -> &'static Own<ControlState> {
    static KEPT: OnceLock<Own<ControlState>> = OnceLock::new();
    KEPT.get_or_init(Own::default)
}

/// Returns the state of the library, with one load.
#[inline]
pub(super) fn library_state() -> CStatus {
    const NOT_INITIALIZED: u8 = CStatus::NotInitialized as u8;
    const DISABLED: u8 = CStatus::Disabled as u8;
    const SHUT_DOWN: u8 = CStatus::ShutDown as u8;
    // Acquire: the profiler was set before.
    match STATE.load(Ordering::Acquire) {
        NOT_INITIALIZED => CStatus::NotInitialized,
        DISABLED => CStatus::Disabled,
        SHUT_DOWN => CStatus::ShutDown,
        _ => CStatus::Ok,
    }
}

fn set_state(state: CStatus) {
    STATE.store(state as u8, Ordering::Release);
}

fn profiler() -> Result<&'static Profiler, CallError> {
    PROFILER.get().ok_or_else(|| CallError::from_status(library_state()))
}

/// Builds the layer that the environment configures, and installs it. Returns errors of the environment.
pub(super) fn init() -> Result<(), CallError> {
    let mut kept = control_state().lock();
    match library_state() {
        CStatus::NotInitialized => install_layer(&mut kept, KinetoLayer::try_from_env),
        // The program must not notice the injection.
        CStatus::Ok if std::mem::take(&mut kept.is_injected) => Ok(()),
        CStatus::Ok => {
            Err(CallError::new(CStatus::AlreadyInitialized, "tracing_kineto_init was called before; call it once"))
        }
        other => Err(CallError::from_status(other)),
    }
}

/// Does the same inside `cuInit`, for a program that does not call init. Returns `false` if the program has done it, or is
/// doing it.
pub(super) fn init_from_injection() -> Result<bool, CallError> {
    // Does not wait: the thread that holds the lock may be waiting for this `cuInit` call.
    let Some(mut kept) = control_state().try_lock() else { return Ok(false) };
    if library_state() != CStatus::NotInitialized {
        return Ok(false);
    }
    // No caller could handle errors here: they are printed and ignored.
    install_layer(&mut kept, KinetoLayer::from_env)?;
    kept.is_injected = true;
    Ok(true)
}

type FromEnv = fn() -> Result<(Option<KinetoLayer>, KinetoGuard), Error>;

fn install_layer(kept: &mut ControlState, from_env: FromEnv) -> Result<(), CallError> {
    if let Some(profiler) = newest_profiler() {
        let _ = PROFILER.set(profiler);
        set_state(CStatus::Ok);
        let why = "the program has its own KinetoLayer, which ranges and calls use; no init is needed";
        return Err(CallError::new(CStatus::AlreadyInitialized, why));
    }
    let no_layer = || {
        let why = "the program has a `tracing` subscriber without a KinetoLayer; add one in its Rust part";
        CallError::new(CStatus::NoLayer, why)
    };
    if !dispatcher::get_default(Dispatch::is::<NoSubscriber>) {
        return Err(no_layer());
    }
    let (Some(layer), guard) = from_env()? else {
        set_state(CStatus::Disabled);
        return Err(CallError::from_status(CStatus::Disabled));
    };
    let subscriber = tracing_subscriber::registry().with(layer);
    if dispatcher::set_global_default(Dispatch::new(subscriber)).is_err() {
        // Nothing can use what it may have recorded.
        drop(guard.finish());
        return Err(no_layer());
    }
    let _ = PROFILER.set(guard.profiler());
    kept.guard = Some(guard);
    set_state(CStatus::Ok);
    Ok(())
}

/// Ends the recording, writes it to the configured output, and makes further calls do nothing.
///
/// A layer that the program installed itself is not changed.
pub(super) fn shutdown() -> Result<(), CallError> {
    let ControlState { guard, last, .. } = {
        let mut kept = control_state().lock();
        if library_state() != CStatus::Ok {
            return Err(CallError::from_status(library_state()));
        }
        set_state(CStatus::ShutDown);
        std::mem::take(&mut *kept)
    };
    drop(last);
    Ok(guard.map_or(Ok(()), KinetoGuard::close)?)
}

pub(super) fn start_recording() -> Result<(), CallError> {
    profiler()?.start()?;
    // It would use memory of the new recording.
    let last = control_state().lock().last.take();
    drop(last);
    Ok(())
}

/// Ends the recording, and keeps it for a later save.
pub(super) fn stop_recording() -> Result<(), CallError> {
    let stopped = profiler()?.stop();
    let trace = stopped.as_ref().map_or_else(Error::trace, Some);
    if let Some(trace) = trace.cloned() {
        let before = control_state().lock().last.replace(trace);
        drop(before);
    }
    Ok(stopped.map(drop)?)
}

/// Saves a snapshot of the running recording, or the one that was stopped last.
pub(super) fn save_recording(path: &Path) -> Result<(), CallError> {
    let trace = match profiler()?.snapshot() {
        Err(error) if error.kind() == ErrorKind::NotActive => control_state()
            .lock()
            .last
            .clone()
            .ok_or_else(|| CallError::new(CStatus::NotRecording, "there is no recording to save; start one first")),
        so_far => so_far.map_err(CallError::from),
    };
    Ok(trace?.save(path)?)
}

/// Writes what was recorded so far to the configured output.
pub(super) fn flush_recording() -> Result<(), CallError> {
    Ok(profiler()?.flush()?)
}

pub(super) fn step() -> Result<(), CallError> {
    let outcome = profiler()?.step();
    outcome.cycle.and_then(|cycle| cycle.error).map_or(Ok(()), |error| Err(error.into()))
}

pub(super) fn add_metadata(key: &str, json: &str) -> Result<(), CallError> {
    Ok(profiler()?.add_metadata_json(key, json)?)
}

pub(super) fn is_recording() -> bool {
    library_state() == CStatus::Ok && PROFILER.get().is_some_and(Profiler::is_recording)
}
