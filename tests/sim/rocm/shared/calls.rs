//! The implemented API calls, with the numbers of both profilers.

use std::ffi::CStr;

/// A function of HIP's API.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Call {
    pub(crate) name: &'static CStr,
    /// The operation of rocprofiler-sdk 1.0.
    pub(crate) operation: i32,
    /// The callback id of roctracer.
    pub(crate) cid: u32,
}

/// The index of the call of that name.
pub(crate) const fn find(name: &str) -> usize {
    let mut index = 0;
    while index < CALLS.len() {
        if same(CALLS[index].name.to_bytes(), name.as_bytes()) {
            return index;
        }
        index += 1;
    }
    panic!("no such call")
}

const fn same(one: &[u8], other: &[u8]) -> bool {
    let mut index = 0;
    while index < one.len() && index < other.len() && one[index] == other[index] {
        index += 1;
    }
    index == one.len() && index == other.len()
}

macro_rules! calls {
    ($($name:literal $operation:literal $cid:literal;)+) => {
        /// All of them.
        pub(crate) const CALLS: &[Call] = &[$(Call { name: $name, operation: $operation, cid: $cid }),+];
    };
}

calls! {
    c"hipDeviceGetAttribute" 41 31;
    c"hipDeviceGetName" 48 35;
    c"hipDeviceGetPCIBusId" 50 37;
    c"hipDeviceSynchronize" 66 48;
    c"hipDeviceTotalMem" 67 49;
    c"hipDriverGetVersion" 68 341;
    c"hipEventCreate" 76 54;
    c"hipEventDestroy" 78 56;
    c"hipEventElapsedTime" 79 57;
    c"hipEventQuery" 80 58;
    c"hipEventRecord" 81 59;
    c"hipEventSynchronize" 82 60;
    c"hipFree" 90 69;
    c"hipFreeAsync" 92 306;
    c"hipGetDevice" 102 78;
    c"hipGetDeviceCount" 103 79;
    c"hipGetDevicePropertiesR0600" 105 370;
    c"hipGetLastError" 109 84;
    c"hipGraphDestroy" 136 212;
    c"hipGraphExecDestroy" 143 213;
    c"hipGraphInstantiate" 159 214;
    c"hipGraphLaunch" 166 215;
    c"hipInit" 202 98;
    c"hipLaunchKernel" 214 107;
    c"hipMalloc" 215 108;
    c"hipMallocAsync" 219 307;
    c"hipMemcpy" 259 125;
    c"hipMemcpyAsync" 268 134;
    c"hipMemcpyPeerAsync" 283 149;
    c"hipMemcpyWithStream" 287 153;
    c"hipMemset" 288 154;
    c"hipMemsetAsync" 293 159;
    c"hipModuleGetFunction" 303 166;
    c"hipModuleLaunchKernel" 308 169;
    c"hipModuleLoadData" 310 171;
    c"hipModuleUnload" 316 177;
    c"hipRuntimeGetVersion" 326 343;
    c"hipSetDevice" 327 186;
    c"hipStreamBeginCapture" 333 219;
    c"hipStreamCreate" 334 192;
    c"hipStreamCreateWithFlags" 335 193;
    c"hipStreamDestroy" 337 195;
    c"hipStreamEndCapture" 338 220;
    c"hipStreamQuery" 345 198;
    c"hipStreamSynchronize" 346 199;
    c"hipStreamWaitEvent" 348 200;
    c"hipExtModuleLaunchKernel" 388 65;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_unique_and_calls_are_found_by_name() {
        let mut operations: Vec<_> = CALLS.iter().map(|call| call.operation).collect();
        operations.sort_unstable();
        operations.dedup();
        let mut cids: Vec<_> = CALLS.iter().map(|call| call.cid).collect();
        cids.sort_unstable();
        cids.dedup();
        assert_eq!((operations.len(), cids.len()), (CALLS.len(), CALLS.len()));
        assert_eq!(CALLS[find("hipLaunchKernel")].cid, 107);
    }
}
