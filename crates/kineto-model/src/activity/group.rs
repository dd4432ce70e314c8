//! PyTorch's groups of activity types.

use std::fmt;
use std::str::FromStr;

use super::{ActivityType, ActivityTypes};
use crate::error::Error;
use crate::named_values;

named_values! {
    /// A group of activity types; `ProfilerActivity` in PyTorch.
    ///
    /// ```
    /// use kineto_trace::activity::ActivityGroup;
    ///
    /// let selected = ActivityGroup::parse_csv("cpu,cuda").unwrap();
    /// assert_eq!(selected, ActivityGroup::Cpu | ActivityGroup::Cuda);
    /// ```
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
    #[non_exhaustive]
    pub enum ActivityGroup {
        /// The host.
        Cpu => "CPU",
        /// NVIDIA devices, and AMD devices under ROCm.
        Cuda => "CUDA",
        /// Intel devices.
        Xpu => "XPU",
        /// Meta's accelerators.
        Mtia => "MTIA",
        /// Habana devices.
        Hpu => "HPU",
        /// Devices of an out-of-tree backend of PyTorch.
        PrivateUse1 => "PrivateUse1",
    }

    /// All groups.
    pub const ALL;

    /// Returns the name of the group.
    pub const fn as_str;
}

impl ActivityGroup {
    /// Returns the types of the group, as in PyTorch's newest front end.
    ///
    /// Runtime and driver calls are both in the host's group and in their vendor's. `cuda_sync` is in no group, and
    /// must be selected by name.
    pub const fn types(self) -> ActivityTypes {
        match self {
            ActivityGroup::Cpu => ActivityTypes::of(&[
                ActivityType::CpuOp,
                ActivityType::CpuInstantEvent,
                ActivityType::UserAnnotation,
                ActivityType::ExternalCorrelation,
                ActivityType::XpuRuntime,
                ActivityType::XpuDriver,
                ActivityType::CudaRuntime,
                ActivityType::CudaDriver,
                ActivityType::PythonFunction,
                ActivityType::PrivateUse1Runtime,
                ActivityType::PrivateUse1Driver,
            ]),
            ActivityGroup::Cuda => {
                ON_DEVICE.with(ActivityType::CudaRuntime).with(ActivityType::CudaDriver).with(ActivityType::Overhead)
            }
            ActivityGroup::Xpu => {
                ON_DEVICE.with(ActivityType::XpuRuntime).with(ActivityType::XpuDriver).with(ActivityType::Overhead)
            }
            ActivityGroup::Mtia => ActivityTypes::of(&[
                ActivityType::MtiaCcpEvents,
                ActivityType::MtiaRuntime,
                ActivityType::MtiaInsight,
                ActivityType::MtiaCounters,
                ActivityType::CollectiveComm,
            ]),
            ActivityGroup::Hpu => ActivityTypes::from_type(ActivityType::HpuOp),
            ActivityGroup::PrivateUse1 => {
                ON_DEVICE.with(ActivityType::PrivateUse1Runtime).with(ActivityType::PrivateUse1Driver)
            }
        }
    }

    /// Parses a comma-separated list of groups, and returns the union of their types.
    ///
    /// Names may be in any case and surrounded by spaces; `all` selects every group. Empty items are ignored; a text
    /// without names returns the empty set.
    ///
    /// # Errors
    ///
    /// If a name is unknown; the error contains the first one.
    pub fn parse_csv(text: &str) -> Result<ActivityTypes, Error> {
        let names = text.split(',').map(str::trim).filter(|name| !name.is_empty());
        names.map(parse_name).try_fold(ActivityTypes::EMPTY, |set, types| Ok(set | types?))
    }
}

/// The types that the groups CUDA, XPU and PrivateUse1 share.
const ON_DEVICE: ActivityTypes = ActivityTypes::of(&[
    ActivityType::GpuMemcpy,
    ActivityType::GpuMemset,
    ActivityType::GpuUserAnnotation,
    ActivityType::ConcurrentKernel,
]);

/// Returns the types of a group, or of all groups.
fn parse_name(name: &str) -> Result<ActivityTypes, Error> {
    if name.eq_ignore_ascii_case("all") {
        return Ok(ActivityGroup::ALL.iter().copied().fold(ActivityTypes::EMPTY, |set, group| set | group));
    }
    name.parse::<ActivityGroup>().map(ActivityGroup::types).map_err(|_| {
        let known = ActivityGroup::ALL.iter().map(|each| each.as_str());
        Error::unknown_name("activity group", name, known.chain(["all"]))
    })
}

impl From<ActivityGroup> for ActivityTypes {
    fn from(group: ActivityGroup) -> Self {
        group.types()
    }
}

impl<T: Into<ActivityTypes>> std::ops::BitOr<T> for ActivityGroup {
    type Output = ActivityTypes;

    fn bitor(self, other: T) -> ActivityTypes {
        self.types().union(other.into())
    }
}

impl fmt::Display for ActivityGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for ActivityGroup {
    type Err = Error;

    /// Parses the name of a group, in any case.
    ///
    /// # Errors
    ///
    /// If the name is not that of a single group; see [`ActivityGroup::parse_csv`] for `all`.
    fn from_str(name: &str) -> Result<Self, Error> {
        ActivityGroup::ALL.iter().copied().find(|group| group.as_str().eq_ignore_ascii_case(name)).ok_or_else(|| {
            Error::unknown_name("activity group", name, ActivityGroup::ALL.iter().map(|each| each.as_str()))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// By group: its types today, and in older front ends.
    const GROUPS: [(&str, &str, &str); 6] = [
        (
            "CPU",
            "cpu_op,cpu_instant_event,user_annotation,external_correlation,xpu_runtime,xpu_driver,cuda_runtime,\
             cuda_driver,python_function,privateuse1_runtime,privateuse1_driver",
            "cpu_op,cpu_instant_event,user_annotation,external_correlation,cuda_runtime,cuda_driver,xpu_runtime,\
             python_function,privateuse1_runtime,privateuse1_driver",
        ),
        (
            "CUDA",
            "gpu_memcpy,gpu_memset,gpu_user_annotation,kernel,cuda_runtime,cuda_driver,overhead",
            "gpu_memcpy,gpu_memset,gpu_user_annotation,concurrent_kernel,cuda_runtime,cuda_driver",
        ),
        (
            "XPU",
            "gpu_memcpy,gpu_memset,gpu_user_annotation,kernel,xpu_runtime,xpu_driver,overhead",
            "gpu_memcpy,gpu_memset,concurrent_kernel,xpu_runtime",
        ),
        (
            "MTIA",
            "mtia_ccp_events,mtia_runtime,mtia_insight,mtia_counters,collective_comm",
            "mtia_ccp_events,mtia_runtime,mtia_workloadd",
        ),
        ("HPU", "hpu_op", "hpu_op"),
        (
            "PrivateUse1",
            "gpu_memcpy,gpu_memset,gpu_user_annotation,kernel,privateuse1_runtime,privateuse1_driver",
            "gpu_memcpy,gpu_memset,gpu_user_annotation,concurrent_kernel,privateuse1_runtime,privateuse1_driver",
        ),
    ];

    #[test]
    fn groups_match_and_extend_those_of_pytorch() {
        for (group, (name, newest, older)) in ActivityGroup::ALL.iter().copied().zip(GROUPS) {
            assert_eq!(group.as_str(), name);
            assert_eq!(group.types(), ActivityTypes::parse(newest).unwrap(), "{name}");
            assert!(group.types().is_superset(ActivityTypes::parse(older).unwrap()), "{name}");
            assert!(!group.types().contains(ActivityType::CudaSync), "{name}");
        }
    }

    #[test]
    fn groups_parse_in_any_case_and_all_is_their_union() {
        for group in ActivityGroup::ALL.iter().copied() {
            for name in [group.to_string(), group.as_str().to_lowercase(), group.as_str().to_uppercase()] {
                assert_eq!(name.parse().ok(), Some(group));
                assert_eq!(ActivityGroup::parse_csv(&format!(" {name} ,")).ok(), Some(group.types()));
            }
            assert!(ActivityGroup::parse_csv("All").unwrap().is_superset(group.types()));
        }
        assert_eq!(ActivityGroup::parse_csv("cpu,CUDA").unwrap(), ActivityGroup::Cpu | ActivityGroup::Cuda);
        assert_eq!(ActivityGroup::parse_csv("all").unwrap().len(), 22);
        assert_eq!(ActivityGroup::parse_csv(" , ").ok(), Some(ActivityTypes::EMPTY));
    }

    #[test]
    fn unknown_group_error_lists_known_groups() {
        let error = ActivityGroup::parse_csv("cpu,gpu").unwrap_err();
        assert_eq!(
            error.to_string(),
            "unknown activity group \"gpu\": expected one of CPU, CUDA, XPU, MTIA, HPU, PrivateUse1, all"
        );
        assert!("all".parse::<ActivityGroup>().is_err());
    }
}
