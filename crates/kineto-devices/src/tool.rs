//! Tools that a variable names for a library of ranges to load, such as NVTX's.

use crate::Unavailable;
use crate::cuda::Driver;
use std::path::Path;

/// Returns whether the tool that a variable names is libcupti.
///
/// # Errors
/// It is, and there is no driver: one version of libcupti ends the process then.
pub fn check_tool(variable: &str, path: &Path) -> Result<bool, Unavailable> {
    let is_cupti = path.file_name().is_some_and(|name| name.to_string_lossy().contains("cupti"));
    if is_cupti {
        let opened = Driver::open(&mut Vec::new()).map(drop);
        opened.map_err(|missing| {
            let why = format!("the tool in {variable} is libcupti, and {}", missing.message());
            Unavailable::new(missing.why(), why, missing.advice())
        })?;
    }
    Ok(is_cupti)
}
