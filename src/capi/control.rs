//! The one profiler that the functions use, from init to shutdown.

use super::status::{Fault, Status};
use crate::error::{Error, ErrorKind};
use crate::guard::KinetoGuard;
use crate::layer::KinetoLayer;
use crate::os::fork::Own;
use crate::profiler::Profiler;
use crate::session;
use crate::trace::Trace;
use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, Ordering};
use tracing_core::dispatcher::{self, Dispatch};
use tracing_core::subscriber::NoSubscriber;
use tracing_subscriber::layer::SubscriberExt;

/// What the library is at: the status that a call gets, which is [`Status::Ok`] while it is at work.
static STATE: AtomicU8 = AtomicU8::new(Status::NotInitialized as u8);
/// Stays after the shutdown.
static PROFILER: OnceLock<Profiler> = OnceLock::new();

/// What takes a lock.
#[derive(Default)]
struct Kept {
    /// Of the layer that was made here; none if the program has brought its own, and none in a forked child.
    guard: Option<KinetoGuard>,
    /// It was made without the program's doing.
    is_injected: bool,
    /// The recording that was stopped last, until the next one starts.
    last: Option<Trace>,
}

fn kept() -> &'static Own<Kept> {
    static KEPT: OnceLock<Own<Kept>> = OnceLock::new();
    KEPT.get_or_init(Own::default)
}

/// Returns what the library is at: one load.
#[inline]
pub(super) fn state() -> Status {
    const NOT_INITIALIZED: u8 = Status::NotInitialized as u8;
    const DISABLED: u8 = Status::Disabled as u8;
    const SHUT_DOWN: u8 = Status::ShutDown as u8;
    // Acquire: the profiler was set before.
    match STATE.load(Ordering::Acquire) {
        NOT_INITIALIZED => Status::NotInitialized,
        DISABLED => Status::Disabled,
        SHUT_DOWN => Status::ShutDown,
        _ => Status::Ok,
    }
}

fn set_state(state: Status) {
    STATE.store(state as u8, Ordering::Release);
}

fn profiler() -> Result<&'static Profiler, Fault> {
    PROFILER.get().ok_or_else(|| Fault::of(state()))
}

/// Makes the layer that the environment asks for, and installs it. The caller hears of faults in the environment.
pub(super) fn init() -> Result<(), Fault> {
    let mut kept = kept().lock();
    match state() {
        Status::NotInitialized => make(&mut kept, KinetoLayer::try_from_env),
        // The program is to be as well off as without.
        Status::Ok if std::mem::take(&mut kept.is_injected) => Ok(()),
        Status::Ok => Err(Fault::new(Status::AlreadyInitialized, "tracing_kineto_init was called before")),
        other => Err(Fault::of(other)),
    }
}

/// Does the same for a program that does not, inside of `cuInit`; `false` if the program has done it, or is at it.
pub(super) fn inject() -> Result<bool, Fault> {
    // Not waited for: who is at it may be waiting for this very `cuInit`, on this thread or on another.
    let Some(mut kept) = kept().try_lock() else { return Ok(false) };
    if state() != Status::NotInitialized {
        return Ok(false);
    }
    // Nobody hears of faults here: they are reported and passed over.
    make(&mut kept, KinetoLayer::from_env)?;
    kept.is_injected = true;
    Ok(true)
}

type FromEnv = fn() -> Result<(Option<KinetoLayer>, KinetoGuard), Error>;

fn make(kept: &mut Kept, from_env: FromEnv) -> Result<(), Fault> {
    if let Some(session) = session::newest() {
        let _ = PROFILER.set(Profiler::new(Some(session)));
        set_state(Status::Ok);
        let why = "the program has a KinetoLayer of its own: ranges and calls go to that one";
        return Err(Fault::new(Status::AlreadyInitialized, why));
    }
    let no_layer = || {
        let why = "the program has a `tracing` subscriber without a KinetoLayer: add one in its Rust half";
        Fault::new(Status::NoLayer, why)
    };
    if !dispatcher::get_default(Dispatch::is::<NoSubscriber>) {
        return Err(no_layer());
    }
    let (Some(layer), guard) = from_env()? else {
        set_state(Status::Disabled);
        return Err(Fault::of(Status::Disabled));
    };
    let subscriber = tracing_subscriber::registry().with(layer);
    if dispatcher::set_global_default(Dispatch::new(subscriber)).is_err() {
        // What it may have recorded is nobody's.
        drop(guard.finish());
        return Err(no_layer());
    }
    let _ = PROFILER.set(guard.profiler());
    kept.guard = Some(guard);
    set_state(Status::Ok);
    Ok(())
}

/// Ends the recording, writes it where the environment says, and has further calls do nothing.
///
/// A layer that the program has brought is left as it is.
pub(super) fn shutdown() -> Result<(), Fault> {
    let Kept { guard, last, .. } = {
        let mut kept = kept().lock();
        if state() != Status::Ok {
            return Err(Fault::of(state()));
        }
        set_state(Status::ShutDown);
        std::mem::take(&mut *kept)
    };
    drop(last);
    Ok(guard.map_or(Ok(()), |mut guard| guard.close())?)
}

pub(super) fn start() -> Result<(), Fault> {
    profiler()?.start()?;
    // It would take room from what is recorded now.
    let last = kept().lock().last.take();
    drop(last);
    Ok(())
}

/// Ends the recording, and keeps it to be saved.
pub(super) fn stop() -> Result<(), Fault> {
    let stopped = profiler()?.stop();
    let trace = stopped.as_ref().map_or_else(Error::trace, Some);
    if let Some(trace) = trace.cloned() {
        let before = kept().lock().last.replace(trace);
        drop(before);
    }
    Ok(stopped.map(drop)?)
}

/// Saves what the recording that goes on has so far, else the one that was stopped last.
pub(super) fn save(path: &Path) -> Result<(), Fault> {
    let trace = match profiler()?.snapshot() {
        Err(error) if error.kind() == ErrorKind::NotActive => kept().lock().last.clone().ok_or_else(|| {
            Error::new(ErrorKind::NotActive, "there is no recording to save; start one first, and stop it or not")
        }),
        so_far => so_far,
    };
    Ok(trace?.save(path)?)
}

/// Writes what was recorded so far to where the environment says.
pub(super) fn flush() -> Result<(), Fault> {
    Ok(profiler()?.flush()?)
}

pub(super) fn step() -> Result<(), Fault> {
    let outcome = profiler()?.step();
    outcome.cycle.and_then(|cycle| cycle.error).map_or(Ok(()), |error| Err(error.into()))
}

pub(super) fn metadata(key: &str, json: &str) -> Result<(), Fault> {
    Ok(profiler()?.add_metadata_json(key, json)?)
}

pub(super) fn is_recording() -> bool {
    state() == Status::Ok && PROFILER.get().is_some_and(Profiler::is_recording)
}
