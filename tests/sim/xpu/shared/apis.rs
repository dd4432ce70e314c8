//! The functions of Level Zero and of the SYCL runtime that exist here, with the ids and names that PTI knows them by.
#![allow(non_upper_case_globals, reason = "the names are C's")]

use std::ffi::CStr;

/// Groups of functions, by PTI's numbers.
pub(crate) const LEVEL_ZERO: u32 = 1;
pub(crate) const OPEN_CL: u32 = 2;
pub(crate) const SYCL: u32 = 3;
pub(crate) const HYBRID_SYCL_LEVEL_ZERO: u32 = 4;
pub(crate) const ALL_GROUPS: u32 = 0x7fff_ffff;

/// Classes of functions, by PTI's numbers: those that give work to a GPU, and those that wait for it.
pub(crate) const GPU_OPERATION_CORE: u32 = 1;
pub(crate) const HOST_SYNCHRONIZATION: u32 = 2;
pub(crate) const ALL_CLASSES: u32 = 0x7fff_ffff;

/// A function.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Api {
    pub(crate) group: u32,
    pub(crate) id: u32,
    /// Its class, 0 for none.
    pub(crate) class: u32,
    pub(crate) name: &'static CStr,
}

/// The function with that id.
pub(crate) fn find(group: u32, id: u32) -> Option<&'static Api> {
    let group = if group == HYBRID_SYCL_LEVEL_ZERO { LEVEL_ZERO } else { group };
    ALL.iter().find(|api| (api.group, api.id) == (group, id))
}

/// The functions of a group.
pub(crate) fn of_group(group: u32) -> impl Iterator<Item = &'static Api> {
    ALL.iter().filter(move |api| api.group == group)
}

macro_rules! apis {
    ($($function:ident = $group:ident $id:literal $class:expr, $name:literal;)+) => {
        $(pub(crate) const $function: Api = Api { group: $group, id: $id, class: $class, name: $name };)+

        const ALL: &[Api] = &[$($function),+];
    };
}

apis! {
    zeInit = LEVEL_ZERO 1 0, c"zeInit";
    zeCommandQueueSynchronize = LEVEL_ZERO 32 HOST_SYNCHRONIZATION, c"zeCommandQueueSynchronize";
    zeCommandListCreateImmediate = LEVEL_ZERO 34 0, c"zeCommandListCreateImmediate";
    zeCommandListAppendBarrier = LEVEL_ZERO 39 GPU_OPERATION_CORE, c"zeCommandListAppendBarrier";
    zeCommandListAppendMemoryCopy = LEVEL_ZERO 41 GPU_OPERATION_CORE, c"zeCommandListAppendMemoryCopy";
    zeCommandListAppendMemoryFill = LEVEL_ZERO 42 GPU_OPERATION_CORE, c"zeCommandListAppendMemoryFill";
    zeCommandListAppendLaunchKernel = LEVEL_ZERO 55 GPU_OPERATION_CORE, c"zeCommandListAppendLaunchKernel";
    zeMemAllocDevice = LEVEL_ZERO 63 0, c"zeMemAllocDevice";
    zeFenceHostSynchronize = LEVEL_ZERO 73 HOST_SYNCHRONIZATION, c"zeFenceHostSynchronize";
    zeEventHostSynchronize = LEVEL_ZERO 84 HOST_SYNCHRONIZATION, c"zeEventHostSynchronize";
    zeEventQueryKernelTimestamp = LEVEL_ZERO 87 0, c"zeEventQueryKernelTimestamp";
    zeCommandListHostSynchronize = LEVEL_ZERO 150 HOST_SYNCHRONIZATION, c"zeCommandListHostSynchronize";
    zeDeviceSynchronize = LEVEL_ZERO 206 HOST_SYNCHRONIZATION, c"zeDeviceSynchronize";
    urEnqueueKernelLaunch = SYCL 17 GPU_OPERATION_CORE, c"urEnqueueKernelLaunch";
    urEnqueueEventsWaitWithBarrier = SYCL 19 0, c"urEnqueueEventsWaitWithBarrier";
    urEnqueueUSMFill = SYCL 32 GPU_OPERATION_CORE, c"urEnqueueUSMFill";
    urEnqueueUSMMemcpy = SYCL 33 GPU_OPERATION_CORE, c"urEnqueueUSMMemcpy";
    urEventWait = SYCL 42 0, c"urEventWait";
    urQueueCreate = SYCL 92 0, c"urQueueCreate";
    urQueueFinish = SYCL 97 0, c"urQueueFinish";
    urUSMDeviceAlloc = SYCL 108 GPU_OPERATION_CORE, c"urUSMDeviceAlloc";
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn ids_are_unique_in_their_group() {
        let ids: HashSet<_> = ALL.iter().map(|api| (api.group, api.id)).collect();
        assert_eq!(ids.len(), ALL.len());
    }

    #[test]
    fn functions_are_found_by_group_and_id() {
        assert_eq!(find(SYCL, 17).unwrap().name, c"urEnqueueKernelLaunch");
        assert_eq!(find(HYBRID_SYCL_LEVEL_ZERO, 55).unwrap().name, c"zeCommandListAppendLaunchKernel");
        assert!(find(SYCL, 55).is_none() && find(OPEN_CL, 17).is_none());
        assert_eq!(of_group(SYCL).filter(|api| api.class == GPU_OPERATION_CORE).count(), 4);
    }
}
