//! CUPTI's profiler, which PM sampling ([`pm`](super::pm)) and range metrics ([`range`](super::range)) share: metrics and
//! their evaluation ([`host`]), and its exclusive use ([`lease`]).

pub(super) mod host;
pub(super) mod lease;
pub(super) mod levels;

pub(super) use super::profiler_ffi as ffi;

use super::start::Loaded;
use crate::library::{Attempt, Candidate, Library};
use crate::{Unavailable, Why};
use ffi::ProfilerApi;
use std::ffi::CStr;
use std::path::Path;

/// The library that evaluates counters. libcupti opens it by this name, and its own folder is not searched.
const HELPER: &str = "libnvperf_host.so";
/// Opened by libcupti as well, where it is shipped.
const OTHER_HELPER: &str = "libnvperf_target.so";
/// `cuptiGetVersion` of CUPTI 12.6.
const FIRST_VERSION: u32 = 24;

/// libcupti's functions for metrics: the profiler's, and those of one use of it.
#[derive(Debug)]
pub(super) struct ProfilerLibrary<A: 'static> {
    pub(super) profiler: &'static ProfilerApi,
    pub(super) api: &'static A,
    /// Why the library is missing that libcupti needs for metrics, if it is.
    missing_helper: Option<String>,
}

impl<A> ProfilerLibrary<A> {
    /// Resolves the functions.
    ///
    /// # Errors
    /// The library is too old: it has none of `what`.
    pub(super) fn find(
        loaded: &Loaded,
        what: &str,
        resolve: fn(Library) -> Result<A, &'static CStr>,
        attempts: &mut Vec<Attempt>,
    ) -> Result<ProfilerLibrary<A>, Unavailable> {
        let version = loaded.interfaces.version;
        let too_old = |_| {
            let message = format!("libcupti {version} has no {what}");
            Unavailable::new(Why::Incompatible, message, "use libcupti of CUDA 12.6 or newer")
        };
        if version < FIRST_VERSION {
            return Err(too_old(c""));
        }
        let missing_helper = preload_helpers(loaded.path.as_deref(), attempts);
        let profiler = ProfilerApi::new(loaded.library).map_err(too_old)?;
        let api = resolve(loaded.library).map_err(too_old)?;
        Ok(ProfilerLibrary { profiler: Box::leak(Box::new(profiler)), api: Box::leak(Box::new(api)), missing_helper })
    }

    /// Adds libcupti's missing helper to a reason that it may explain.
    pub(super) fn explain(&self, reason: Unavailable) -> Unavailable {
        match &self.missing_helper {
            // NOT_INITIALIZED, with which libcupti also reports that it lacks the helper.
            Some(missing) if reason.message().contains("(15)") => {
                let message = format!("{}; {HELPER} is missing: {missing}", reason.message());
                let advice = "install it in the folder of libcupti; the package nvidia-cuda-cupti contains it";
                Unavailable::new(Why::LibraryNotFound, message, advice)
            }
            _ => reason,
        }
    }
}

/// Opens the libraries that libcupti opens by name alone. Returns why the one that it needs is missing.
fn preload_helpers(libcupti: Option<&Path>, attempts: &mut Vec<Attempt>) -> Option<String> {
    let open = |name: &str, attempts: &mut Vec<Attempt>| {
        let in_folder = libcupti.and_then(Path::parent).map(|folder| Candidate::File(folder.join(name)));
        let names = [name];
        let first = Candidate::mapped(&names).chain(in_folder);
        Library::open_first(first.chain(Candidate::by_loader(&names)), attempts)
    };
    open(OTHER_HELPER, &mut Vec::new());
    let before = attempts.len();
    match open(HELPER, attempts) {
        Some(_) => None,
        None => Some(attempts.get(before..)?.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")),
    }
}
