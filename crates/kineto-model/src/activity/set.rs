//! Sets of activity types.

use std::fmt;
use std::ops::{BitOr, BitOrAssign};
use std::str::FromStr;

use super::ActivityType;
use crate::error::Error;

/// A set of activity types, stored as bits.
///
/// ```
/// use kineto_trace::activity::{ActivityType, ActivityTypes};
///
/// const SELECTED: ActivityTypes = ActivityTypes::RUNTIME.with(ActivityType::CpuOp);
/// assert_eq!(ActivityTypes::parse("cpu_op, runtime").unwrap(), SELECTED);
/// assert!(SELECTED.contains(ActivityType::CUDA_RUNTIME));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct ActivityTypes(u32);

impl ActivityTypes {
    /// No type.
    pub const EMPTY: ActivityTypes = ActivityTypes(0);
    /// All 29 types.
    pub const ALL: ActivityTypes = ActivityTypes::of(ActivityType::ALL);
    /// libkineto's selection by default: types 0 to 17, `cpu_op` to `mtia_counters`.
    pub const DEFAULT: ActivityTypes = ActivityTypes((1 << ActivityType::GlowRuntime.number()) - 1);

    /// Runtime calls of every vendor; `runtime` in a configuration.
    ///
    /// `cuda_runtime`, `mtia_runtime`, `glow_runtime`, `xpu_runtime`, `privateuse1_runtime`, and `hpu_op`, the only
    /// type that Habana's profiler reports.
    pub const RUNTIME: ActivityTypes = ActivityTypes::of(&[
        ActivityType::CudaRuntime,
        ActivityType::MtiaRuntime,
        ActivityType::GlowRuntime,
        ActivityType::HpuOp,
        ActivityType::XpuRuntime,
        ActivityType::PrivateUse1Runtime,
    ]);
    /// Driver calls of every vendor; `driver` in a configuration.
    ///
    /// `cuda_driver`, `xpu_driver`, `privateuse1_driver`.
    pub const DRIVER: ActivityTypes =
        ActivityTypes::of(&[ActivityType::CudaDriver, ActivityType::XpuDriver, ActivityType::PrivateUse1Driver]);
    /// Performance counters of every vendor's devices; `gpu_pm_counter` in a configuration.
    ///
    /// `mtia_counters`, `xpu_scope_profiler`, `hardware_counters`.
    pub const GPU_PM_COUNTER: ActivityTypes = ActivityTypes::of(&[
        ActivityType::MtiaCounters,
        ActivityType::XpuScopeProfiler,
        ActivityType::HardwareCounters,
    ]);

    /// Names of the sets above in a configuration; they are never written.
    const GENERIC: [(&'static str, ActivityTypes); 3] = [
        ("runtime", ActivityTypes::RUNTIME),
        ("driver", ActivityTypes::DRIVER),
        ("gpu_pm_counter", ActivityTypes::GPU_PM_COUNTER),
    ];

    /// Returns the set with a single type.
    pub const fn from_type(kind: ActivityType) -> ActivityTypes {
        ActivityTypes(1 << kind.number())
    }

    /// Returns the set of these types.
    pub const fn of(kinds: &[ActivityType]) -> ActivityTypes {
        let mut set = ActivityTypes::EMPTY;
        let mut remaining = kinds;
        while let [kind, rest @ ..] = remaining {
            set = set.with(*kind);
            remaining = rest;
        }
        set
    }

    /// Returns the set as bits: bit n is the type with number n.
    pub const fn bits(self) -> u32 {
        self.0
    }

    /// Returns the set with these bits; undefined bits are dropped.
    pub const fn from_bits(bits: u32) -> ActivityTypes {
        ActivityTypes(bits & ActivityTypes::ALL.0)
    }

    /// Returns the set with `kind` added.
    pub const fn with(self, kind: ActivityType) -> ActivityTypes {
        self.union(ActivityTypes::from_type(kind))
    }

    /// Returns the set with `kind` removed.
    pub const fn without(self, kind: ActivityType) -> ActivityTypes {
        self.difference(ActivityTypes::from_type(kind))
    }

    /// Returns the types that are in either set; same as the operator `|`.
    pub const fn union(self, other: ActivityTypes) -> ActivityTypes {
        ActivityTypes(self.0 | other.0)
    }

    /// Returns the types that are in both sets.
    pub const fn intersection(self, other: ActivityTypes) -> ActivityTypes {
        ActivityTypes(self.0 & other.0)
    }

    /// Returns the types of this set that are not in the other.
    pub const fn difference(self, other: ActivityTypes) -> ActivityTypes {
        ActivityTypes(self.0 & !other.0)
    }

    /// Returns whether the type is in the set.
    pub const fn contains(self, kind: ActivityType) -> bool {
        self.0 & (1 << kind.number()) != 0
    }

    /// Returns whether `other` is a subset.
    pub const fn is_superset(self, other: ActivityTypes) -> bool {
        other.difference(self).is_empty()
    }

    /// Returns whether the set is empty.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Returns the number of types.
    pub const fn len(self) -> usize {
        self.0.count_ones() as usize
    }

    /// Iterates over the types by number.
    pub fn iter(self) -> impl Iterator<Item = ActivityType> + Clone {
        ActivityType::ALL.iter().copied().filter(move |kind| self.contains(*kind))
    }

    /// Returns this set, or [`DEFAULT`](ActivityTypes::DEFAULT) if it is empty, as libkineto reads an empty
    /// `ACTIVITY_TYPES`.
    pub const fn or_default(self) -> ActivityTypes {
        if self.is_empty() { ActivityTypes::DEFAULT } else { self }
    }

    /// Parses a comma-separated list of names.
    ///
    /// Names may be in any case and surrounded by spaces. A name is that of a type ([`ActivityType::from_name`]), or
    /// one of `runtime`, `driver` and `gpu_pm_counter`, which select the types of all vendors. A vendor's name, such as
    /// `cuda_runtime`, selects only that vendor's type. Empty items are ignored, as in libkineto; a text without names
    /// returns the empty set (see [`or_default`](ActivityTypes::or_default)).
    ///
    /// # Errors
    ///
    /// If a name is unknown; the error contains the first one.
    pub fn parse(text: &str) -> Result<ActivityTypes, Error> {
        let names = text.split(',').map(str::trim).filter(|name| !name.is_empty());
        names.map(ActivityTypes::parse_name).try_fold(ActivityTypes::EMPTY, |set, types| Ok(set | types?))
    }

    /// Returns the set of a single name.
    fn parse_name(name: &str) -> Result<ActivityTypes, Error> {
        let lower = name.to_ascii_lowercase();
        let generic = ActivityTypes::GENERIC.into_iter().find(|(word, _)| *word == lower).map(|(_, set)| set);
        let single = || ActivityType::from_name(&lower).map(ActivityTypes::from_type);
        generic.or_else(single).ok_or_else(|| {
            let singles = ActivityType::ALL.iter().map(|each| each.as_str());
            let generics = ActivityTypes::GENERIC.into_iter().map(|(word, _)| word);
            Error::unknown_name("activity type", name, singles.chain(generics))
        })
    }
}

impl Default for ActivityTypes {
    /// Returns [`ActivityTypes::DEFAULT`].
    fn default() -> Self {
        ActivityTypes::DEFAULT
    }
}

impl From<ActivityType> for ActivityTypes {
    fn from(kind: ActivityType) -> Self {
        ActivityTypes::from_type(kind)
    }
}

impl FromIterator<ActivityType> for ActivityTypes {
    fn from_iter<I: IntoIterator<Item = ActivityType>>(kinds: I) -> Self {
        kinds.into_iter().fold(ActivityTypes::EMPTY, ActivityTypes::with)
    }
}

impl<T: Into<ActivityTypes>> BitOr<T> for ActivityTypes {
    type Output = ActivityTypes;

    fn bitor(self, other: T) -> ActivityTypes {
        self.union(other.into())
    }
}

impl<T: Into<ActivityTypes>> BitOr<T> for ActivityType {
    type Output = ActivityTypes;

    fn bitor(self, other: T) -> ActivityTypes {
        ActivityTypes::from_type(self).union(other.into())
    }
}

impl<T: Into<ActivityTypes>> BitOrAssign<T> for ActivityTypes {
    fn bitor_assign(&mut self, other: T) {
        *self = self.union(other.into());
    }
}

impl FromStr for ActivityTypes {
    type Err = Error;

    /// Parses a list of names; see [`ActivityTypes::parse`].
    ///
    /// # Errors
    ///
    /// If a name is unknown; the error contains the first one.
    fn from_str(text: &str) -> Result<Self, Error> {
        ActivityTypes::parse(text)
    }
}

impl fmt::Display for ActivityTypes {
    /// Writes a comma-separated list of names, which [`ActivityTypes::parse`] accepts.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, kind) in self.iter().enumerate() {
            let comma = if n == 0 { "" } else { "," };
            write!(f, "{comma}{kind}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for ActivityTypes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter().map(|kind| kind.as_str())).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// By name in a configuration: the names of the types that it selects.
    const NAMES: [(&str, &str); 29 + 3 + 2] = [
        ("cpu_op", "cpu_op"),
        ("user_annotation", "user_annotation"),
        ("gpu_user_annotation", "gpu_user_annotation"),
        ("gpu_memcpy", "gpu_memcpy"),
        ("gpu_memset", "gpu_memset"),
        ("kernel", "kernel"),
        ("external_correlation", "external_correlation"),
        ("cuda_runtime", "cuda_runtime"),
        ("cuda_driver", "cuda_driver"),
        ("cpu_instant_event", "cpu_instant_event"),
        ("python_function", "python_function"),
        ("overhead", "overhead"),
        ("mtia_runtime", "mtia_runtime"),
        ("mtia_ccp_events", "mtia_ccp_events"),
        ("mtia_insight", "mtia_insight"),
        ("cuda_sync", "cuda_sync"),
        ("cuda_event", "cuda_event"),
        ("mtia_counters", "mtia_counters"),
        ("glow_runtime", "glow_runtime"),
        ("cuda_profiler_range", "cuda_profiler_range"),
        ("hpu_op", "hpu_op"),
        ("xpu_runtime", "xpu_runtime"),
        ("xpu_driver", "xpu_driver"),
        ("collective_comm", "collective_comm"),
        ("privateuse1_runtime", "privateuse1_runtime"),
        ("privateuse1_driver", "privateuse1_driver"),
        ("xpu_scope_profiler", "xpu_scope_profiler"),
        ("xpu_sync", "xpu_sync"),
        ("hardware_counters", "hardware_counters"),
        ("runtime", "cuda_runtime,mtia_runtime,glow_runtime,hpu_op,xpu_runtime,privateuse1_runtime"),
        ("driver", "cuda_driver,xpu_driver,privateuse1_driver"),
        ("gpu_pm_counter", "mtia_counters,xpu_scope_profiler,hardware_counters"),
        ("mtia_workloadd", "mtia_insight"),
        ("concurrent_kernel", "kernel"),
    ];

    /// The 11 names that kineto's proposal of generic types keeps as aliases, with their constants and generic sets.
    /// `mtia_ccp_events` would be `kernel` there, which is a separate type here.
    const ALIASES: [(&str, ActivityType, Option<ActivityTypes>); 11] = [
        ("cuda_runtime", ActivityType::CUDA_RUNTIME, Some(ActivityType::RUNTIME)),
        ("mtia_runtime", ActivityType::MTIA_RUNTIME, Some(ActivityType::RUNTIME)),
        ("glow_runtime", ActivityType::GLOW_RUNTIME, Some(ActivityType::RUNTIME)),
        ("hpu_op", ActivityType::HPU_OP, Some(ActivityType::RUNTIME)),
        ("xpu_runtime", ActivityType::XPU_RUNTIME, Some(ActivityType::RUNTIME)),
        ("privateuse1_runtime", ActivityType::PRIVATEUSE1_RUNTIME, Some(ActivityType::RUNTIME)),
        ("cuda_driver", ActivityType::CUDA_DRIVER, Some(ActivityType::DRIVER)),
        ("xpu_driver", ActivityType::XPU_DRIVER, Some(ActivityType::DRIVER)),
        ("privateuse1_driver", ActivityType::PRIVATEUSE1_DRIVER, Some(ActivityType::DRIVER)),
        ("mtia_ccp_events", ActivityType::MTIA_CCP_EVENTS, None),
        ("mtia_counters", ActivityType::MTIA_COUNTERS, Some(ActivityType::GPU_PM_COUNTER)),
    ];

    #[test]
    fn every_name_selects_its_types() {
        for (name, written) in NAMES {
            assert_eq!(ActivityTypes::parse(name).unwrap().to_string(), written, "{name}");
            assert_eq!(name.to_uppercase().parse::<ActivityTypes>().unwrap().to_string(), written, "{name}");
        }
        for (number, (name, _)) in (0u8..).zip(NAMES).take(29) {
            let kind = ActivityType::from_number(number).unwrap();
            assert_eq!(ActivityTypes::parse(name).unwrap(), ActivityTypes::from_type(kind));
        }
        for (name, kind, generic) in ALIASES {
            assert_eq!(
                ActivityTypes::parse(name).unwrap(),
                kind.into(),
                "a vendor's name selects only that vendor's type"
            );
            assert_eq!(kind.as_str(), name);
            for set in [ActivityTypes::RUNTIME, ActivityTypes::DRIVER, ActivityTypes::GPU_PM_COUNTER] {
                assert_eq!(set.contains(kind), generic == Some(set), "{name}");
            }
        }
        let default = "cpu_op,user_annotation,gpu_user_annotation,gpu_memcpy,gpu_memset,kernel,external_correlation,\
            cuda_runtime,cuda_driver,cpu_instant_event,python_function,overhead,mtia_runtime,mtia_ccp_events,\
            mtia_insight,cuda_sync,cuda_event,mtia_counters";
        assert_eq!(ActivityTypes::DEFAULT.to_string(), default);
        assert_eq!(ActivityTypes::DEFAULT.len(), 18);
    }

    #[test]
    fn list_is_a_union_and_ignores_spaces() {
        let set = ActivityTypes::parse(" Kernel ,,\tdriver, kernel,\r\n").unwrap();
        assert_eq!(set, ActivityTypes::DRIVER | ActivityType::ConcurrentKernel);
        for empty in ["", " ", ",,", " , "] {
            assert_eq!(ActivityTypes::parse(empty).ok(), Some(ActivityTypes::EMPTY));
            assert_eq!(ActivityTypes::parse(empty).unwrap().or_default(), ActivityTypes::DEFAULT);
        }
        assert_eq!(set.or_default(), set);
    }

    #[test]
    fn unknown_name_error_lists_all_names() {
        let error = ActivityTypes::parse("cpu_op,Kernels,nonsense").unwrap_err();
        let known = NAMES.map(|(name, _)| name)[..32].join(", ");
        assert_eq!(error.to_string(), format!("unknown activity type \"Kernels\": expected one of {known}"));
    }

    #[test]
    fn any_set_round_trips_as_text() {
        assert_eq!(ActivityTypes::ALL.len(), 29);
        assert!(ActivityTypes::ALL.iter().eq(ActivityType::ALL.iter().copied()));
        for set in [ActivityTypes::EMPTY, ActivityTypes::ALL, ActivityTypes::DEFAULT, ActivityTypes::RUNTIME] {
            assert_eq!(set.to_string().parse().ok(), Some(set));
            assert_eq!(set.iter().collect::<ActivityTypes>(), set);
            assert_eq!(ActivityTypes::from_bits(set.bits()), set);
        }
        assert_eq!(ActivityTypes::from_bits(u32::MAX), ActivityTypes::ALL);
    }

    #[test]
    fn set_operations() {
        const SMALL: ActivityTypes = ActivityTypes::EMPTY.with(ActivityType::CpuOp).with(ActivityType::GpuMemset);
        assert_eq!(ActivityType::CpuOp | ActivityType::GpuMemset, SMALL);
        assert_eq!(SMALL.len(), 2);
        assert!(SMALL.contains(ActivityType::GpuMemset) && !SMALL.contains(ActivityType::GpuMemcpy));
        assert_eq!(SMALL.without(ActivityType::CpuOp), ActivityType::GpuMemset.into());
        assert_eq!(SMALL.intersection(ActivityTypes::RUNTIME), ActivityTypes::EMPTY);
        assert_eq!(ActivityTypes::ALL.difference(SMALL).len(), 27);
        assert!(ActivityTypes::DEFAULT.is_superset(SMALL) && !SMALL.is_superset(ActivityTypes::DEFAULT));
        let mut grown = SMALL;
        grown |= ActivityType::Overhead;
        grown |= ActivityTypes::DRIVER;
        assert_eq!(grown.len(), 6);
        assert_eq!(format!("{SMALL:?}"), r#"{"cpu_op", "gpu_memset"}"#);
        assert_eq!(ActivityTypes::default(), ActivityTypes::DEFAULT);
    }
}
