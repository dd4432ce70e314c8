//! HIP's versions, if the program uses HIP.
#![allow(unsafe_code, reason = "HIP is foreign code")]

use crate::rocm::search;

type GetVersion = unsafe extern "C" fn(*mut i32) -> u32;

/// Returns the versions of HIP's runtime and driver under libkineto's keys; nothing if the process has not loaded it.
///
/// These calls start HIP if it has not started.
pub(super) fn hip_versions() -> Vec<(String, String)> {
    let Some(hip) = search::loaded_hip() else { return Vec::new() };
    let versions = [("hip_runtime_version", c"hipRuntimeGetVersion"), ("hip_driver_version", c"hipDriverGetVersion")];
    let ask = |(key, name): (&str, _)| {
        // SAFETY: AMD documents this type for both functions.
        let get_version = unsafe { hip.resolve_function::<GetVersion>(name) }?;
        let mut version = 0;
        // SAFETY: the pointer is a valid place for a version.
        let error = unsafe { get_version(&raw mut version) };
        (error == 0 && version > 0).then(|| (key.to_owned(), version.to_string()))
    };
    versions.into_iter().filter_map(ask).collect()
}
