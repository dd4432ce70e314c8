//! The types of events that plugins have, and what becomes of them.

use kineto_trace::activity::ActivityType;

/// What becomes of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// A row of a thread.
    Host,
    /// A row of a device.
    Device,
    /// Values of counters.
    Counter,
    /// Which slice a call belongs to.
    Correlation,
    /// What recording cost.
    Overhead,
}

macro_rules! event_types {
    ($($(#[$doc:meta])* $name:ident = $number:literal is $kind:ident on $place:ident),+ $(,)?) => {
        /// The type of a plugin's event; the numbers are those of `include/kineto_plugin.h`.
        ///
        /// Up to 24 they are those of kineto's pull request 1148, which leaves some activity types out; those behind are
        /// this crate's.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        #[repr(u32)]
        pub enum EventType {
            $($(#[$doc])* $name = $number),+
        }

        impl EventType {
            /// Every event type, by number.
            pub const ALL: &'static [EventType] = &[$(EventType::$name),+];

            /// Returns the activity type as which such an event stands in a trace.
            pub const fn kind(self) -> ActivityType {
                match self {
                    $(EventType::$name => ActivityType::$kind),+
                }
            }

            pub(super) const fn place(self) -> Place {
                match self {
                    $(EventType::$name => Place::$place),+
                }
            }
        }
    };
}

event_types! {
    /// An operation of the host.
    CpuOp = 1 is CpuOp on Host,
    /// What a program calls a stretch of its time.
    UserAnnotation = 2 is UserAnnotation on Host,
    /// What a device did for an annotation. Those around work that is linked to spans come by themselves.
    GpuUserAnnotation = 3 is GpuUserAnnotation on Device,
    /// A copy by a device.
    GpuMemcpy = 4 is GpuMemcpy on Device,
    /// A fill by a device.
    GpuMemset = 5 is GpuMemset on Device,
    /// A computation of a device.
    ConcurrentKernel = 6 is ConcurrentKernel on Device,
    /// The event's id is that of a slice, its argument `correlation` that of a call in it.
    ExternalCorrelation = 7 is ExternalCorrelation on Correlation,
    /// A call of CUDA's runtime.
    CudaRuntime = 8 is CudaRuntime on Host,
    /// A call of CUDA's driver.
    CudaDriver = 9 is CudaDriver on Host,
    /// A moment of the host, at its start.
    CpuInstantEvent = 10 is CpuInstantEvent on Host,
    /// A function of Python.
    PythonFunction = 11 is PythonFunction on Host,
    /// Time that recording took.
    Overhead = 12 is Overhead on Overhead,
    /// A call of MTIA's runtime.
    MtiaRuntime = 13 is MtiaRuntime on Host,
    /// A computation of an MTIA.
    MtiaCcpEvents = 14 is MtiaCcpEvents on Device,
    /// What an MTIA says of itself.
    MtiaInsight = 15 is MtiaInsight on Device,
    /// A wait of a CUDA device.
    CudaSync = 16 is CudaSync on Device,
    /// A call of Glow's runtime.
    GlowRuntime = 17 is GlowRuntime on Host,
    /// A range that CUPTI's profiler measured.
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
    /// A call of any accelerator's runtime; a trace has it as `privateuse1_runtime`.
    Runtime = 25 is PrivateUse1Runtime on Host,
    /// A call of any accelerator's driver; a trace has it as `privateuse1_driver`.
    Driver = 26 is PrivateUse1Driver on Host,
    /// Values of an MTIA's counters.
    MtiaCounters = 27 is MtiaCounters on Counter,
    /// A call of an XPU's driver.
    XpuDriver = 28 is XpuDriver on Host,
    /// Metrics of an XPU's kernels.
    XpuScopeProfiler = 29 is XpuScopeProfiler on Counter,
    /// A wait for an XPU.
    XpuSync = 30 is XpuSync on Host,
    /// An event that a CUDA stream came to.
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
    use kineto_trace::activity::ActivityTypes;

    #[test]
    fn every_activity_type_has_an_event_type_and_the_place_where_it_is_drawn() {
        let all: ActivityTypes = EventType::ALL.iter().map(|each| each.kind()).collect();
        assert_eq!(all, ActivityTypes::ALL);
        for each in EventType::ALL {
            let (kind, place) = (each.kind(), each.place());
            assert_eq!(kind.is_counter(), place == Place::Counter, "{kind}");
            if matches!(place, Place::Host | Place::Device) && kind.is_slice() {
                assert_eq!(kind.is_cpu(), place == Place::Host, "{kind}");
            }
        }
        assert_eq!((EventType::from_number(0), EventType::from_number(32)), (None, None));
    }

    #[test]
    fn the_header_says_the_same_numbers() {
        let header = include_str!("../../../include/kineto_plugin.h");
        let mut said = Vec::new();
        for line in header.lines() {
            let Some(rest) = line.trim().strip_prefix("KINETO_PLUGIN_PROFILE_EVENT_TYPE_") else { continue };
            let (name, rest) = rest.split_once(" = ").unwrap();
            said.push((name.replace('_', "").to_lowercase(), rest.split([',', ' ']).next().unwrap().parse().unwrap()));
        }
        assert_eq!(said.remove(0), ("invalid".to_owned(), 0));
        let ours: Vec<_> =
            EventType::ALL.iter().map(|each| (format!("{each:?}").to_lowercase(), each.number())).collect();
        assert_eq!(said, ours);
    }
}
