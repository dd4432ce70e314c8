//! Examines this machine: what can be recorded here, what cannot, why, and what to do about it.

mod diagnosis;
mod machine;
mod page;

pub use diagnosis::{ClockDiagnosis, CollectorDiagnosis, ConfigurationDiagnosis, Diagnosis, Verdict};
pub use kineto_devices::DriverDiagnosis;

use crate::clock::{self, Anchor, Converter};
use crate::config::{Activation, Config, Env, Overrides};
use crate::os::platform;
use kineto_devices::trial::Trial;
use kineto_devices::{
    self, Capabilities, Collector, Contained, Examination, ExamineContext, OptionValue, Selection, Unavailable,
    VENDORS, Vendor, Why,
};
use kineto_model::activity::{ActivityGroup, ActivityType, ActivityTypes};
use machine::Machine;
use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Examines this machine: searches the libraries of GPUs, queries drivers, and reads the configuration.
///
/// It loads libraries and initialises NVIDIA's driver, as a program that uses the GPU does. It starts collectors only
/// with [`with_start`](Doctor::with_start). All findings are part of the [`Diagnosis`], never an error.
///
/// No function of libcupti is called before the driver has answered, since some versions end the process otherwise.
/// As a further precaution, the command-line tool `kineto doctor` runs the examination in a child process.
///
/// ```
/// use tracing_kineto::Doctor;
///
/// let diagnosis = Doctor::new().examine();
/// println!("{diagnosis}");
/// ```
#[derive(Default)]
pub struct Doctor {
    /// Options of collectors that override the configuration.
    options: Vec<(&'static str, OptionValue)>,
    start: bool,
    collectors: Vec<Contained>,
    /// The environment; the process's, except in tests.
    env: Option<Env>,
}

impl fmt::Debug for Doctor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Doctor")
            .field("options", &self.options)
            .field("start", &self.start)
            .field("collectors", &self.collectors.len())
            .finish_non_exhaustive()
    }
}

/// Types that the host records without a collector: those of spans and events, and those that only a span can have.
const BY_HOST: ActivityTypes = ActivityTypes::of(&[
    ActivityType::CpuOp,
    ActivityType::UserAnnotation,
    ActivityType::CpuInstantEvent,
    ActivityType::PythonFunction,
    ActivityType::CollectiveComm,
]);

impl Doctor {
    /// Makes a doctor that searches libraries where a recording would.
    pub fn new() -> Doctor {
        Doctor::default()
    }

    /// Sets an [option](crate::integration::Options) of collectors, such as `KINETO_CUPTI_PATH` for another libcupti. It overrides
    /// environment and file.
    pub fn option(mut self, name: &'static str, value: impl Into<OptionValue>) -> Doctor {
        self.options.push((name, value.into()));
        self
    }

    /// Examines that collector too; may be called several times.
    pub fn collector(mut self, collector: impl Collector + 'static) -> Doctor {
        self.collectors.push(Contained::new(Arc::new(collector)));
        self
    }

    /// Starts each collector briefly. That shows whether another profiler is using its library, whether this process
    /// has the permission, and whether records arrive. Takes up to a few seconds. Default: false.
    pub fn with_start(mut self, start: bool) -> Doctor {
        self.start = start;
        self
    }

    /// Runs the examination.
    pub fn examine(&self) -> Diagnosis {
        if !platform::CAN_RECORD {
            return self.unsupported_diagnosis();
        }
        let machine = Machine::from_root(Path::new("/"));
        let (config, mut configuration) = self.diagnose_configuration();
        let mut drivers = Vec::new();
        let vendors = VENDORS.iter().flat_map(|vendor| self.examine_vendor(vendor, &config, &machine, &mut drivers));
        let mut collectors: Vec<_> = vendors.collect();
        collectors.extend(self.examine_plugins(&config));
        collectors.extend(self.collectors.iter().map(|collector| self.examine_collector(collector, &config)));
        let mut recorded = collectors.iter().fold(BY_HOST, |types, collector| types.union(collector.records));
        if recorded.contains(ActivityType::ConcurrentKernel) {
            // They are derived from spans and kernels.
            recorded = recorded.with(ActivityType::GpuUserAnnotation);
        }
        configuration.not_recorded = configuration.selected.difference(recorded);
        Diagnosis {
            clock: clock_diagnosis(&machine),
            configuration,
            drivers,
            collectors,
            machine: machine_facts(&machine),
        }
    }

    /// Returns the hardware counters that each NVIDIA GPU offers for PM sampling. For metrics that `names` lists with their
    /// rollups, such as `sm__cycles_active.avg`, it also returns how many passes they take, and which fit in one. PM sampling
    /// and annotations have one.
    ///
    /// # Errors
    /// Why no GPU can be queried, for example because there is no driver.
    #[cfg(feature = "metrics")]
    pub fn metrics(&self, names: &[String]) -> Result<Vec<kineto_devices::GpuMetrics>, Unavailable> {
        let (config, _) = self.diagnose_configuration();
        if config.gpu.options.flag("DISABLE_CUPTI") {
            return Err(switched_off("KINETO_DISABLE_CUPTI"));
        }
        kineto_devices::PmSampling::new(&config.gpu.options).describe_metrics(names)
    }

    /// Returns a diagnosis of a platform that is not supported.
    fn unsupported_diagnosis(&self) -> Diagnosis {
        let reason = Unavailable::on_this_platform();
        let names = VENDORS.iter().map(|vendor| vendor.name);
        let names = names.chain(self.collectors.iter().map(|collector| collector.name()));
        let selected = Config::default().activities;
        let configuration = ConfigurationDiagnosis {
            from_env: "returns no layer".to_owned(),
            set: Vec::new(),
            selected,
            not_recorded: selected,
            error: Some(reason.to_string()),
            warnings: Vec::new(),
        };
        Diagnosis {
            clock: ClockDiagnosis { source: "none", error_ns: 0, notes: Vec::new() },
            configuration,
            drivers: Vec::new(),
            collectors: names.map(|name| CollectorDiagnosis::for_unavailable(name, reason.clone())).collect(),
            machine: machine_facts(&Machine::default()),
        }
    }

    /// Returns the configuration of a layer with the options of the doctor, and its diagnosis; the default configuration if it is invalid.
    fn diagnose_configuration(&self) -> (Config, ConfigurationDiagnosis) {
        let env = &self.env.clone().unwrap_or_else(Env::from_process);
        let mut warnings = Vec::new();
        let resolved = Config::resolve(&Overrides::default(), env, &mut warnings);
        warnings.extend(env.unknown_warnings());
        let error = resolved.as_ref().err().map(ToString::to_string);
        let from_env = match env.activation_or_default() {
            _ if resolved.is_err() => "fails",
            Activation::On => "returns a layer that records",
            Activation::Idle => "returns a layer that waits for requests",
            Activation::Off => "returns no layer; set KINETO_ENABLED=1 to enable it",
        };
        let mut config = resolved.unwrap_or_else(|_| {
            let mut config = Config::default();
            config.gpu.read_variables(env);
            config
        });
        let diagnosis = ConfigurationDiagnosis {
            from_env: from_env.to_owned(),
            set: config.set_keys(),
            selected: config.activities,
            not_recorded: ActivityTypes::EMPTY,
            error,
            warnings,
        };
        self.options.iter().for_each(|(name, value)| config.gpu.options.set(name, value.clone()));
        (config, diagnosis)
    }

    fn examine_vendor(
        &self,
        vendor: &Vendor,
        config: &Config,
        machine: &Machine,
        drivers: &mut Vec<DriverDiagnosis>,
    ) -> Vec<CollectorDiagnosis> {
        let options = &config.gpu.options;
        let is_enabled = !options.flag(vendor.disabled_by);
        let made = if is_enabled {
            vendor.make_collectors(options)
        } else {
            Err(switched_off(&format!("KINETO_{}", vendor.disabled_by)))
        };
        let mut all = match made {
            Ok(collectors) => collectors.iter().map(|it| self.examine_collector(&**it, config)).collect(),
            Err(reason) => vec![CollectorDiagnosis::for_unavailable(vendor.name, reason)],
        };
        let Some(found) = all.first_mut() else { return all };
        let examination = vendor.examine(&ExamineContext {
            root: "/".into(),
            container: machine.container,
            is_wsl: machine.is_wsl,
            options,
            is_enabled,
            reason: found.reason.as_ref(),
            versions: &found.versions,
            library: found.library.as_deref(),
        });
        found.add_examination(examination, drivers);
        all
    }

    fn examine_plugins(&self, config: &Config) -> Vec<CollectorDiagnosis> {
        let Some(folder) = &config.gpu.plugin_folder else { return Vec::new() };
        if config.gpu.disables_plugins {
            return vec![CollectorDiagnosis::for_unavailable("plugins", switched_off("KINETO_DISABLE_PLUGINS"))];
        }
        let (plugins, others) = kineto_devices::load_plugins(folder);
        let found = plugins.iter().map(|plugin| self.examine_collector(&**plugin, config));
        // A user who names the folder wants its plugins, whatever they record.
        let refused = |(name, reason)| CollectorDiagnosis {
            is_selected: true,
            ..CollectorDiagnosis::for_unavailable(name, reason)
        };
        found.chain(others.into_iter().map(refused)).collect()
    }

    fn examine_collector(&self, collector: &dyn Collector, config: &Config) -> CollectorDiagnosis {
        let mut selection = Selection::of(config.activities);
        selection.options = config.gpu.options.clone();
        let mut found = CollectorDiagnosis::new(collector, &selection);
        match collector.probe() {
            Ok(can) => found.add_capabilities(can),
            Err(reason) => found.set_unavailable(reason),
        }
        let is_wanted = found.is_selected || !collector.is_optional();
        if self.start && is_wanted && found.reason.is_none() {
            selection.types = collector.types();
            match Trial::start(collector, &selection) {
                Ok(trial) => {
                    found.add_capabilities(trial.capabilities().clone());
                    found.started = true;
                    found.notes.extend(trial.stop(Duration::from_secs(1)).notes);
                }
                Err(reason) => found.set_unavailable(reason),
            }
        }
        found.attempts = collector.attempts();
        found.devices = if found.reason.is_none() { collector.devices() } else { Vec::new() };
        found
    }
}

impl CollectorDiagnosis {
    fn new(collector: &dyn Collector, selection: &Selection) -> CollectorDiagnosis {
        let types = collector.types();
        // The CPU group includes API calls of devices; selected alone, they need no device. The host records spans of other types.
        let by_host = ActivityGroup::Cpu.types().union(BY_HOST);
        let by_types = !types.intersection(selection.types).difference(by_host).is_empty();
        let is_selected = if collector.is_optional() { collector.is_selected(selection) } else { by_types };
        let mut found = CollectorDiagnosis::for_name(collector.name());
        (found.types, found.is_selected) = (types, is_selected);
        found
    }

    /// Makes the diagnosis of a collector that cannot be examined.
    fn for_unavailable(name: &'static str, reason: Unavailable) -> CollectorDiagnosis {
        let mut found = CollectorDiagnosis::for_name(name);
        found.set_unavailable(reason);
        found
    }

    fn for_name(name: &'static str) -> CollectorDiagnosis {
        CollectorDiagnosis {
            name,
            verdict: Verdict::Unavailable,
            is_selected: false,
            types: ActivityTypes::EMPTY,
            records: ActivityTypes::EMPTY,
            library: None,
            versions: Vec::new(),
            devices: Vec::new(),
            reason: None,
            notes: Vec::new(),
            advice: Vec::new(),
            started: false,
            proven: None,
            attempts: Vec::new(),
        }
    }

    /// Adds the capabilities.
    fn add_capabilities(&mut self, can: Capabilities) {
        let is_whole = can.types.is_superset(self.types) && can.proven != Some(false) && !can.is_incomplete;
        self.verdict = if is_whole { Verdict::Ready } else { Verdict::Degraded };
        self.records = can.types;
        self.library = can.library;
        self.versions = can.metadata;
        self.proven = can.proven;
        self.notes = can.notes;
    }

    /// Sets the reason why it cannot record; keeps what it uses.
    fn set_unavailable(&mut self, reason: Unavailable) {
        self.verdict = Verdict::Unavailable;
        self.records = ActivityTypes::EMPTY;
        self.reason = Some(reason);
    }

    /// Adds the vendor's findings.
    fn add_examination(&mut self, examination: Examination, drivers: &mut Vec<DriverDiagnosis>) {
        if let Some(reason) = examination.refusal {
            self.set_unavailable(reason);
        }
        // Records that arrived refute the doubt.
        if examination.is_doubtful && self.verdict == Verdict::Ready && self.proven != Some(true) {
            self.verdict = Verdict::Degraded;
        }
        self.notes.extend(examination.notes);
        self.advice.extend(examination.advice);
        if let Some(driver) = examination.driver {
            self.devices.clear();
            drivers.push(driver);
        }
    }
}

fn switched_off(by: &str) -> Unavailable {
    Unavailable::new(Why::Disabled, format!("it is switched off by {by}"), "remove that setting")
}

fn clock_diagnosis(machine: &Machine) -> ClockDiagnosis {
    let source = clock::source_name();
    let anchors = vec![Anchor::read_clocks(), Anchor::read_clocks()];
    let mut notes = Vec::new();
    if source == "monotonic" {
        let what = if cfg!(target_arch = "x86_64") {
            "this processor's counter is not steady, or the kernel has rejected it"
        } else {
            "no counter"
        };
        notes.push(format!("{what}, so the system's clock is read, which adds about 10 ns to each span"));
    }
    if let Some(kernel_source) = machine.clock_source.as_deref()
        && cfg!(target_arch = "x86_64")
        && !matches!(kernel_source, "tsc" | "kvm-clock" | "hyperv_clocksource_tsc_page")
    {
        notes.push(format!("the kernel's own clock is {kernel_source:?}, not \"tsc\": reading the time is slow here"));
    }
    ClockDiagnosis { source, error_ns: Converter::new(anchors).error_ns(), notes }
}

fn machine_facts(machine: &Machine) -> Vec<(&'static str, String)> {
    let kernel = if machine.kernel.is_empty() { std::env::consts::OS } else { &machine.kernel };
    let mut facts = vec![("kernel", format!("{kernel} {}", std::env::consts::ARCH))];
    facts.extend(machine.container.map(|kind| ("container", format!("{kind}, by the look of it"))));
    facts.extend(machine.is_wsl.then(|| ("windows", "this is WSL".to_owned())));
    facts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::Timestamp;
    use kineto_devices::{RecordSink, Recording};
    use std::time::Instant;

    /// A collector that returns prepared results.
    #[derive(Clone, Debug)]
    struct ScriptedCollector {
        probe: Result<Capabilities, Unavailable>,
        start: Result<Capabilities, Unavailable>,
    }

    /// If all are built, there is nothing to check.
    #[test]
    fn vendors_that_are_not_built_are_reported() {
        for vendor in VENDORS.iter().filter(|vendor| vendor.make_collectors(&Default::default()).is_err()) {
            let (config, machine) = (Config::default(), Machine::default());
            let found = Doctor::new().examine_vendor(vendor, &config, &machine, &mut Vec::new());
            let [found] = &*found else { panic!("{found:?}") };
            let reason = found.reason.as_ref().unwrap();
            assert_eq!((found.verdict, reason.why()), (Verdict::Unavailable, Why::Disabled), "{}", vendor.name);
            assert!(reason.message().starts_with("this build lacks tracing-kineto's feature `"), "{reason}");
            assert_eq!(reason.advice(), "enable it in Cargo.toml");
        }
    }

    const TYPES: ActivityTypes = ActivityTypes::of(&[ActivityType::ConcurrentKernel, ActivityType::CudaSync]);

    impl Collector for ScriptedCollector {
        fn name(&self) -> &'static str {
            "told"
        }
        fn types(&self) -> ActivityTypes {
            TYPES
        }
        fn probe(&self) -> Result<Capabilities, Unavailable> {
            self.probe.clone()
        }
        fn start(&self, _: &Selection, _: RecordSink) -> Result<(Capabilities, Box<dyn Recording>), Unavailable> {
            Ok((self.start.clone()?, Box::new(self.clone())))
        }
        fn devices(&self) -> Vec<kineto_devices::DeviceDescription> {
            vec![kineto_devices::DeviceDescription::new(3, "Scripted 9000")]
        }
    }

    impl Recording for ScriptedCollector {
        fn stop(&self, _: Timestamp, _: Instant) {}
    }

    fn can(types: ActivityTypes, proven: Option<bool>) -> Result<Capabilities, Unavailable> {
        let mut capabilities = Capabilities::default();
        (capabilities.types, capabilities.proven) = (types, proven);
        Ok(capabilities)
    }

    /// Makes a doctor with these variables; the vendors' collectors are disabled.
    fn without_vendors(env: &[(&str, &str)]) -> Doctor {
        let disabled: Vec<_> = VENDORS.iter().map(|vendor| format!("KINETO_{}", vendor.disabled_by)).collect();
        let env = env.iter().copied().chain(disabled.iter().map(|name| (name.as_str(), "1")));
        Doctor { env: Some(Env::from_pairs(env)), ..Doctor::new() }
    }

    /// Examines that collector with these variables.
    fn examine(told: &ScriptedCollector, start: bool, env: &[(&str, &str)]) -> Diagnosis {
        without_vendors(env).collector(told.clone()).with_start(start).examine()
    }

    #[test]
    fn verdicts_follow_from_a_collectors_results() {
        let busy = || Err(Unavailable::new(Why::Busy, "taken", "wait"));
        let kernels = ActivityTypes::from_type(ActivityType::ConcurrentKernel);
        for (probe, start, verdict) in [
            (can(TYPES, None), None, Verdict::Ready),
            (can(kernels, None), None, Verdict::Degraded),
            (busy(), None, Verdict::Unavailable),
            (can(TYPES, None), Some(can(TYPES, Some(true))), Verdict::Ready),
            (can(TYPES, None), Some(can(TYPES, Some(false))), Verdict::Degraded),
            (can(TYPES, None), Some(busy()), Verdict::Unavailable),
        ] {
            let told = ScriptedCollector { probe, start: start.clone().unwrap_or_else(busy) };
            let diagnosis = examine(&told, start.is_some(), &[]);
            let found = diagnosis.collectors.last().unwrap();
            assert_eq!(found.verdict, verdict, "{told:?}");
            assert_eq!(found.started, matches!(start, Some(Ok(_))));
            let is_there = verdict != Verdict::Unavailable;
            assert_eq!(diagnosis.to_string().contains("GPU 3               Scripted 9000"), is_there, "{diagnosis}");
            assert_eq!(diagnosis.to_json().contains("Scripted 9000"), is_there);
            assert_eq!(found.reason.is_some(), verdict == Verdict::Unavailable);
            assert_eq!(diagnosis.is_well(), verdict == Verdict::Ready);
        }
    }

    #[test]
    fn vendor_without_a_device_is_fine_if_another_has_one() {
        let told = |probe: Result<Capabilities, Unavailable>| ScriptedCollector { start: probe.clone(), probe };
        let absent = || told(Err(Unavailable::new(Why::NoDevice, "no device", "")));
        let busy = || told(Err(Unavailable::new(Why::Busy, "taken", "")));
        let ready = || told(can(TYPES, None));
        let cases = [
            (vec![ready(), absent()], true),
            (vec![absent(), ready()], true),
            (vec![absent(), absent()], false),
            (vec![ready(), busy()], false),
        ];
        for (collectors, is_well) in cases {
            let text = format!("{collectors:?}");
            let doctor = collectors.into_iter().fold(without_vendors(&[]), Doctor::collector);
            assert_eq!(doctor.examine().is_well(), is_well, "{text}");
        }
    }

    #[test]
    fn disabled_collectors_are_not_examined() {
        let told = ScriptedCollector { probe: can(TYPES, None), start: can(TYPES, None) };
        let diagnosis = examine(&told, false, &[]);
        let cupti = &diagnosis.collectors[0];
        assert_eq!((cupti.name, cupti.verdict, cupti.is_selected), ("cupti", Verdict::Unavailable, false));
        assert_eq!(cupti.reason.as_ref().map(Unavailable::why), Some(Why::Disabled));
        assert!(cupti.attempts.is_empty(), "nothing was searched");
        let host = examine(&told, false, &[("KINETO_ACTIVITIES", "cpu")]);
        assert!(!host.collectors.last().unwrap().is_selected);
        let not_recorded = diagnosis.configuration.not_recorded;
        assert!(not_recorded.contains(ActivityType::GpuMemcpy));
        assert!(!not_recorded.contains(ActivityType::PythonFunction), "a span may say that it is one");
    }

    #[test]
    fn configuration_is_reported_with_its_faults() {
        let told = ScriptedCollector { probe: can(TYPES, None), start: can(TYPES, None) };
        let fine =
            examine(&told, false, &[("KINETO_GZIP_LEVEL", "3"), ("KINETO_ENABLED", "1"), ("KINETO_GZIP_LEVL", "1")]);
        let configuration = &fine.configuration;
        assert_eq!(configuration.from_env, "returns a layer that records");
        assert!(configuration.set.contains(&("GZIP_LEVEL", "3".to_owned(), "environment".to_owned())));
        assert_eq!(configuration.warnings, ["unknown variable KINETO_GZIP_LEVL; did you mean KINETO_GZIP_LEVEL?"]);
        assert!(fine.is_well());
        // `from_env` does the same: it warns and falls back.
        for (name, value) in [("KINETO_GZIP_LEVEL", "30"), ("KINETO_ENABLED", "perhaps")] {
            let warned = examine(&told, false, &[(name, value)]);
            let ConfigurationDiagnosis { error, warnings, .. } = &warned.configuration;
            assert!(error.is_none() && warned.is_well(), "{warned}");
            assert!(warnings.len() == 1 && warnings[0].contains(name) && warnings[0].contains(value), "{warnings:?}");
        }
        let wrong = examine(&told, false, &[("KINETO_CONFIG", "/nowhere/file")]);
        assert_eq!(wrong.configuration.from_env, "fails");
        assert!(wrong.configuration.error.as_ref().is_some_and(|error| error.contains("/nowhere/file")), "{wrong}");
        assert!(!wrong.is_well());
    }

    #[test]
    fn doubtful_collector_is_degraded_unless_records_arrive() {
        let told = ScriptedCollector { probe: can(TYPES, None), start: can(TYPES, None) };
        for (proven, verdict) in [(None, Verdict::Degraded), (Some(true), Verdict::Ready)] {
            let mut found = CollectorDiagnosis::new(&told, &Selection::of(TYPES));
            found.add_capabilities(can(TYPES, proven).unwrap());
            let examination =
                Examination { is_doubtful: true, advice: vec!["update".to_owned()], ..Examination::default() };
            found.add_examination(examination, &mut Vec::new());
            assert_eq!((found.verdict, found.advice.len()), (verdict, 1), "{found:?}");
        }
    }

    #[test]
    fn missing_parts_degrade_a_collector() {
        let told = ScriptedCollector { probe: can(TYPES, None), start: can(TYPES, None) };
        let mut found = CollectorDiagnosis::new(&told, &Selection::of(TYPES));
        let mut capabilities = can(TYPES, None).unwrap();
        capabilities.is_incomplete = true;
        found.add_capabilities(capabilities);
        assert_eq!(found.verdict, Verdict::Degraded);
    }
}
