//! The API calls that exist here, with the callback ids and names that CUPTI knows them by.
#![allow(non_upper_case_globals, reason = "the names are C's")]

use super::tracer::{DRIVER_API, RUNTIME_API};
use std::ffi::CStr;

/// A function of the driver's or the runtime's API.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Call {
    pub(crate) domain: u32,
    /// CUPTI's callback id.
    pub(crate) cbid: u32,
    pub(crate) name: &'static CStr,
}

/// Returns the call with that callback id.
pub(crate) fn find(domain: u32, cbid: u32) -> Option<&'static Call> {
    let calls = match domain {
        DRIVER_API => DRIVER,
        RUNTIME_API => RUNTIME,
        _ => return None,
    };
    calls.iter().find(|call| call.cbid == cbid)
}

/// Returns the first versions of CUPTI and of the driver that have a call. A newer CUPTI knows it by name, and refuses its callback.
pub(crate) fn first_versions(call: &Call) -> Option<(&'static str, i32)> {
    match (call.domain, call.cbid) {
        (DRIVER_API, 831) => Some(("13.2", 13_020)),
        (DRIVER_API, 846) => Some(("13.3", 13_030)),
        _ => None,
    }
}

macro_rules! calls {
    ($list:ident, $domain:ident: $($function:ident = $cbid:literal, $name:literal;)+) => {
        $(pub(crate) const $function: Call = Call { domain: $domain, cbid: $cbid, name: $name };)+

        const $list: &[Call] = &[$($function),+];
    };
}

calls! { DRIVER, DRIVER_API:
    cuInit = 1, c"cuInit";
    cuDriverGetVersion = 2, c"cuDriverGetVersion";
    cuDeviceGet = 3, c"cuDeviceGet";
    cuDeviceGetCount = 4, c"cuDeviceGetCount";
    cuDeviceGetName = 5, c"cuDeviceGetName";
    cuDeviceGetUuid = 482, c"cuDeviceGetUuid";
    cuDeviceGetUuid_v2 = 647, c"cuDeviceGetUuid_v2";
    cuDeviceTotalMem_v2 = 259, c"cuDeviceTotalMem_v2";
    cuDeviceGetAttribute = 9, c"cuDeviceGetAttribute";
    cuDeviceGetPCIBusId = 332, c"cuDeviceGetPCIBusId";
    cuDevicePrimaryCtxRetain = 386, c"cuDevicePrimaryCtxRetain";
    cuDevicePrimaryCtxRelease_v2 = 544, c"cuDevicePrimaryCtxRelease_v2";
    cuCtxCreate_v2 = 235, c"cuCtxCreate_v2";
    cuCtxCreate_v4 = 757, c"cuCtxCreate_v4";
    cuCtxDestroy_v2 = 322, c"cuCtxDestroy_v2";
    cuCtxSetCurrent = 303, c"cuCtxSetCurrent";
    cuCtxGetCurrent = 304, c"cuCtxGetCurrent";
    cuCtxPushCurrent_v2 = 323, c"cuCtxPushCurrent_v2";
    cuCtxPopCurrent_v2 = 324, c"cuCtxPopCurrent_v2";
    cuCtxGetDevice = 16, c"cuCtxGetDevice";
    cuCtxSynchronize = 17, c"cuCtxSynchronize";
    cuCtxGetStreamPriorityRange = 370, c"cuCtxGetStreamPriorityRange";
    cuStreamCreate = 124, c"cuStreamCreate";
    cuStreamCreateWithPriority = 367, c"cuStreamCreateWithPriority";
    cuStreamDestroy_v2 = 326, c"cuStreamDestroy_v2";
    cuStreamSynchronize = 126, c"cuStreamSynchronize";
    cuStreamQuery = 125, c"cuStreamQuery";
    cuStreamWaitEvent = 295, c"cuStreamWaitEvent";
    cuStreamBeginCapture_v2 = 539, c"cuStreamBeginCapture_v2";
    cuStreamBeginRecaptureToGraph = 846, c"cuStreamBeginRecaptureToGraph";
    cuStreamEndCapture = 497, c"cuStreamEndCapture";
    cuStreamIsCapturing = 499, c"cuStreamIsCapturing";
    cuEventCreate = 118, c"cuEventCreate";
    cuEventDestroy_v2 = 325, c"cuEventDestroy_v2";
    cuEventRecord = 119, c"cuEventRecord";
    cuEventSynchronize = 121, c"cuEventSynchronize";
    cuEventQuery = 120, c"cuEventQuery";
    cuEventElapsedTime = 123, c"cuEventElapsedTime";
    cuEventElapsedTime_v2 = 780, c"cuEventElapsedTime_v2";
    cuMemAlloc_v2 = 243, c"cuMemAlloc_v2";
    cuMemFree_v2 = 245, c"cuMemFree_v2";
    cuMemAllocAsync = 598, c"cuMemAllocAsync";
    cuMemFreeAsync = 600, c"cuMemFreeAsync";
    cuMemAllocHost_v2 = 294, c"cuMemAllocHost_v2";
    cuMemHostAlloc = 39, c"cuMemHostAlloc";
    cuMemFreeHost = 38, c"cuMemFreeHost";
    cuMemAllocManaged = 371, c"cuMemAllocManaged";
    cuMemGetInfo_v2 = 242, c"cuMemGetInfo_v2";
    cuMemcpy = 305, c"cuMemcpy";
    cuMemcpyAsync = 306, c"cuMemcpyAsync";
    cuMemcpyHtoD_v2 = 276, c"cuMemcpyHtoD_v2";
    cuMemcpyHtoDAsync_v2 = 277, c"cuMemcpyHtoDAsync_v2";
    cuMemcpyDtoH_v2 = 278, c"cuMemcpyDtoH_v2";
    cuMemcpyDtoHAsync_v2 = 279, c"cuMemcpyDtoHAsync_v2";
    cuMemcpyDtoD_v2 = 280, c"cuMemcpyDtoD_v2";
    cuMemcpyDtoDAsync_v2 = 281, c"cuMemcpyDtoDAsync_v2";
    cuMemcpyPeerAsync = 319, c"cuMemcpyPeerAsync";
    cuMemsetD8_v2 = 249, c"cuMemsetD8_v2";
    cuMemsetD16_v2 = 250, c"cuMemsetD16_v2";
    cuMemsetD32_v2 = 251, c"cuMemsetD32_v2";
    cuMemsetD8Async = 216, c"cuMemsetD8Async";
    cuMemsetD16Async = 218, c"cuMemsetD16Async";
    cuMemsetD32Async = 220, c"cuMemsetD32Async";
    cuModuleLoadData = 19, c"cuModuleLoadData";
    cuModuleGetFunction = 23, c"cuModuleGetFunction";
    cuModuleUnload = 22, c"cuModuleUnload";
    cuFuncGetAttribute = 85, c"cuFuncGetAttribute";
    cuFuncSetAttribute = 481, c"cuFuncSetAttribute";
    cuLaunchKernel = 307, c"cuLaunchKernel";
    cuLaunchKernelEx = 652, c"cuLaunchKernelEx";
    cuLaunchHostFunc_v2 = 831, c"cuLaunchHostFunc_v2";
    cuLaunchCooperativeKernel = 477, c"cuLaunchCooperativeKernel";
    cuGraphInstantiateWithFlags = 643, c"cuGraphInstantiateWithFlags";
    cuGraphLaunch = 514, c"cuGraphLaunch";
    cuGraphUpload = 580, c"cuGraphUpload";
    cuGraphExecDestroy = 516, c"cuGraphExecDestroy";
    cuGraphDestroy = 517, c"cuGraphDestroy";
    cuGetErrorName = 373, c"cuGetErrorName";
    cuGetErrorString = 372, c"cuGetErrorString";
    cuProfilerStart = 308, c"cuProfilerStart";
    cuProfilerStop = 309, c"cuProfilerStop";
    cuGetProcAddress_v2 = 677, c"cuGetProcAddress_v2";
}

calls! { RUNTIME, RUNTIME_API:
    cudaMalloc = 20, c"cudaMalloc_v3020";
    cudaFree = 22, c"cudaFree_v3020";
    cudaMemcpyAsync = 41, c"cudaMemcpyAsync_v3020";
    cudaMemsetAsync = 51, c"cudaMemsetAsync_v3020";
    cudaStreamSynchronize = 131, c"cudaStreamSynchronize_v3020";
    cudaProfilerStart = 171, c"cudaProfilerStart_v4000";
    cudaProfilerStop = 172, c"cudaProfilerStop_v4000";
    cudaLaunchKernel = 211, c"cudaLaunchKernel_v7000";
    cudaStreamBeginCapture = 317, c"cudaStreamBeginCapture_v10000";
    cudaStreamEndCapture = 318, c"cudaStreamEndCapture_v10000";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn callback_ids_are_unique() {
        for list in [DRIVER, RUNTIME] {
            let mut ids: Vec<_> = list.iter().map(|call| call.cbid).collect();
            ids.sort_unstable();
            ids.dedup();
            assert_eq!(ids.len(), list.len());
        }
    }

    #[test]
    fn calls_are_found_by_domain_and_id() {
        assert_eq!(find(DRIVER_API, 307).unwrap().name, c"cuLaunchKernel");
        assert_eq!(find(RUNTIME_API, 211).unwrap().name, c"cudaLaunchKernel_v7000");
        assert!(find(RUNTIME_API, 307).is_none() && find(3, 1).is_none());
    }
}
