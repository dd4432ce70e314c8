//! Which devices a profiler supports.

use super::super::error::CuptiError;
use super::ffi::{CallFailure, ProfilerApi, ProfilerKind};
use crate::{DeviceDescription, Unavailable};

/// Returns ten times the compute capability of a device, 0 if it is not known.
pub(crate) fn compute_capability(device: &DeviceDescription) -> i64 {
    let property = |key: &str| device.properties.iter().find(|(known, _)| known == key).map_or(0, |(_, value)| *value);
    property("computeMajor").saturating_mul(10).saturating_add(property("computeMinor"))
}

/// Checks that CUPTI supports a device.
///
/// # Errors
/// Why not.
pub(crate) fn check_levels(
    api: &ProfilerApi,
    kind: ProfilerKind,
    device: &DeviceDescription,
) -> Result<(), Unavailable> {
    let levels = api.support_levels(kind, device.id).map_err(CallFailure::to_unavailable)?;
    let is_refused = |level: &u32| matches!(level, 1 | 2);
    if !levels.first().is_some_and(is_refused) {
        return Ok(());
    }
    /// The codes of the levels that follow that of the whole.
    const CODES: [u32; 6] = [27, 44, 40, 41, 42, 45];
    let refused = levels.iter().skip(1).zip(CODES).find(|(level, _)| is_refused(level)).map_or(27, |(_, code)| code);
    Err(CallFailure { call: "cuptiProfilerDeviceSupported", error: CuptiError(refused) }.to_unavailable())
}
