//! The event types of plugins, and their rows in a trace.

use kineto_model::activity::ActivityType;

/// Where events of a type are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EventPlace {
    /// In a row of a thread.
    Host,
    /// In a row of a device.
    Device,
    /// Values of counters.
    Counter,
    /// Links a call to its slice.
    Correlation,
    /// Overhead of recording.
    Overhead,
}

macro_rules! event_types {
    ($($(#[$doc:meta])* $name:ident = $number:literal is $kind:ident on $place:ident),+ $(,)?) => {
        /// The type of a plugin's event; the numbers are those of `include/kineto_plugin.h`.
        ///
        /// Numbers up to 24 are those of kineto's pull request 1148, which omits some activity types; further numbers
        /// are this crate's.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        #[repr(u32)]
        pub enum EventType {
            $($(#[$doc])* $name = $number),+
        }

        impl EventType {
            /// Every event type, by number.
            pub const ALL: &'static [EventType] = &[$(EventType::$name),+];

            /// Returns the activity type of such an event in a trace.
            pub const fn kind(self) -> ActivityType {
                match self {
                    $(EventType::$name => ActivityType::$kind),+
                }
            }

            pub(super) const fn place(self) -> EventPlace {
                match self {
                    $(EventType::$name => EventPlace::$place),+
                }
            }
        }
    };
}

event_types! {
    /// An operation of the host.
    CpuOp = 1 is CpuOp on Host,
    /// A user annotation.
    UserAnnotation = 2 is UserAnnotation on Host,
    /// A device's work for an annotation. It is derived automatically for work that is linked to spans.
    GpuUserAnnotation = 3 is GpuUserAnnotation on Device,
    /// A copy by a device.
    GpuMemcpy = 4 is GpuMemcpy on Device,
    /// A fill by a device.
    GpuMemset = 5 is GpuMemset on Device,
    /// A kernel of a device.
    ConcurrentKernel = 6 is ConcurrentKernel on Device,
    /// The event's id is that of a slice, its argument `correlation` that of a call in it.
    ExternalCorrelation = 7 is ExternalCorrelation on Correlation,
    /// A call of CUDA's runtime.
    CudaRuntime = 8 is CudaRuntime on Host,
    /// A call of CUDA's driver.
    CudaDriver = 9 is CudaDriver on Host,
    /// An instant of the host, at its start.
    CpuInstantEvent = 10 is CpuInstantEvent on Host,
    /// A function of Python.
    PythonFunction = 11 is PythonFunction on Host,
    /// Overhead of recording.
    Overhead = 12 is Overhead on Overhead,
    /// A call of MTIA's runtime.
    MtiaRuntime = 13 is MtiaRuntime on Host,
    /// A kernel of an MTIA device.
    MtiaCcpEvents = 14 is MtiaCcpEvents on Device,
    /// Insights of an MTIA device.
    MtiaInsight = 15 is MtiaInsight on Device,
    /// A wait for a CUDA device.
    CudaSync = 16 is CudaSync on Device,
    /// A call of Glow's runtime.
    GlowRuntime = 17 is GlowRuntime on Host,
    /// A range measured by CUPTI's profiler.
    CudaProfilerRange = 18 is CudaProfilerRange on Device,
    /// An operation of an HPU.
    HpuOp = 19 is HpuOp on Device,
    /// A call of an XPU's runtime.
    XpuRuntime = 20 is XpuRuntime on Host,
    /// A collective operation.
    CollectiveComm = 21 is CollectiveComm on Host,
    /// Values of a device's counters, which are the event's arguments.
    GpuPmCounter = 22 is HardwareCounters on Counter,
    /// A call of a PrivateUse1 backend's runtime.
    PrivateUse1Runtime = 23 is PrivateUse1Runtime on Host,
    /// A call of a PrivateUse1 backend's driver.
    PrivateUse1Driver = 24 is PrivateUse1Driver on Host,
    /// A call of any accelerator's runtime, shown as `privateuse1_runtime`.
    Runtime = 25 is PrivateUse1Runtime on Host,
    /// A call of any accelerator's driver, shown as `privateuse1_driver`.
    Driver = 26 is PrivateUse1Driver on Host,
    /// Values of an MTIA's counters.
    MtiaCounters = 27 is MtiaCounters on Counter,
    /// A call of an XPU's driver.
    XpuDriver = 28 is XpuDriver on Host,
    /// Metrics of an XPU's kernels.
    XpuScopeProfiler = 29 is XpuScopeProfiler on Counter,
    /// A wait for an XPU.
    XpuSync = 30 is XpuSync on Host,
    /// An event that a CUDA stream reached.
    CudaEvent = 31 is CudaEvent on Device,
}

impl EventType {
    /// Returns the type with that number.
    pub fn from_number(number: u32) -> Option<EventType> {
        EventType::ALL.iter().copied().find(|known| known.number() == number)
    }

    /// Returns its number.
    pub const fn number(self) -> u32 {
        self as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kineto_model::activity::ActivityTypes;

    #[test]
    fn every_activity_type_has_an_event_type() {
        let all: ActivityTypes = EventType::ALL.iter().map(|each| each.kind()).collect();
        assert_eq!(all, ActivityTypes::ALL);
        for each in EventType::ALL {
            let (kind, place) = (each.kind(), each.place());
            assert_eq!(kind.is_counter(), place == EventPlace::Counter, "{kind}");
            if matches!(place, EventPlace::Host | EventPlace::Device) && kind.is_slice() {
                assert_eq!(kind.is_cpu(), place == EventPlace::Host, "{kind}");
            }
        }
        assert_eq!((EventType::from_number(0), EventType::from_number(32)), (None, None));
    }

    #[test]
    fn numbers_match_the_header() {
        let header = include_str!("../../../../include/kineto_plugin.h");
        let mut numbers = Vec::new();
        for line in header.lines() {
            let Some(rest) = line.trim().strip_prefix("KINETO_PLUGIN_PROFILE_EVENT_TYPE_") else { continue };
            let (name, rest) = rest.split_once(" = ").unwrap();
            numbers
                .push((name.replace('_', "").to_lowercase(), rest.split([',', ' ']).next().unwrap().parse().unwrap()));
        }
        assert_eq!(numbers.remove(0), ("invalid".to_owned(), 0));
        let ours: Vec<_> =
            EventType::ALL.iter().map(|each| (format!("{each:?}").to_lowercase(), each.number())).collect();
        assert_eq!(numbers, ours);
    }
}
