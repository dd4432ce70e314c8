//! HIP's versions, if the program uses HIP.
#![allow(unsafe_code, reason = "HIP is foreign code")]

use crate::library::functions;
use crate::rocm::search;

functions! {
    /// The functions that return versions.
    HipVersions
    optional {
        runtime = c"hipRuntimeGetVersion": fn(*mut i32) -> u32;
        driver = c"hipDriverGetVersion": fn(*mut i32) -> u32;
    }
}

/// Returns the versions of HIP's runtime and driver under libkineto's keys; nothing if the process has not loaded it.
///
/// These calls start HIP if it has not started.
pub(super) fn hip_versions() -> Vec<(String, String)> {
    let Some(Ok(hip)) = search::loaded_hip().map(HipVersions::new) else { return Vec::new() };
    let versions = [("hip_runtime_version", hip.runtime), ("hip_driver_version", hip.driver)];
    let query = |(key, get_version): (&str, Option<_>)| {
        let (get_version, mut version): (unsafe extern "C" fn(*mut i32) -> u32, _) = (get_version?, 0);
        // SAFETY: the pointer is a valid place for a version.
        let error = unsafe { get_version(&raw mut version) };
        (error == 0 && version > 0).then(|| (key.to_owned(), version.to_string()))
    };
    versions.into_iter().filter_map(query).collect()
}
