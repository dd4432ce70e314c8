//! The doctor's findings: plain values, as text and as JSON.

use super::page::Page;
use crate::os::platform;
use kineto_devices::{Attempt, DeviceDescription, DriverDiagnosis, Unavailable, Why};
use kineto_model::activity::{ActivityType, ActivityTypes};
use kineto_model::write::json_object;
use serde_json::{Value, json};
use std::fmt;
use std::path::PathBuf;

/// The findings of [`Doctor::examine`](crate::Doctor::examine).
///
/// Its `Display` is text in sections, at most 100 columns wide except for paths; [`to_json`](Diagnosis::to_json)
/// returns the same as JSON.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Diagnosis {
    /// The machine: labels such as "kernel" with values.
    pub machine: Vec<(&'static str, String)>,
    /// The clock of spans.
    pub clock: ClockDiagnosis,
    /// The configuration, from the environment and the file.
    pub configuration: ConfigurationDiagnosis,
    /// The vendors' drivers, if the vendor's collector examines them.
    pub drivers: Vec<DriverDiagnosis>,
    /// The examined collectors.
    pub collectors: Vec<CollectorDiagnosis>,
}

/// Findings about the clock of spans.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ClockDiagnosis {
    /// The source: "tsc", "cntvct" or "monotonic"; "none" in WebAssembly.
    pub source: &'static str,
    /// The largest distance from CLOCK_REALTIME in two readings, in nanoseconds.
    pub error_ns: u64,
    /// Limitations, and what to do about them.
    pub notes: Vec<String>,
}

/// Findings about the configuration.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ConfigurationDiagnosis {
    /// The effect of `KinetoLayer::from_env()` in this environment.
    pub from_env: String,
    /// The keys that are set, each with its value and source.
    pub set: Vec<(&'static str, String, String)>,
    /// The selected activity types.
    pub selected: ActivityTypes,
    /// Selected types that cannot be recorded here.
    pub not_recorded: ActivityTypes,
    /// Why the configuration cannot be used.
    pub error: Option<String>,
    /// Warnings.
    pub warnings: Vec<String>,
}

/// Findings about a collector.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct CollectorDiagnosis {
    /// Its name, such as "cupti".
    pub name: &'static str,
    /// Whether it can be used.
    pub verdict: Verdict,
    /// Whether the configuration selects any of its types, not counting those that the host's group includes.
    pub is_selected: bool,
    /// The types that it could record at best.
    pub types: ActivityTypes,
    /// The types that it can record here.
    pub records: ActivityTypes,
    /// The library that it uses.
    pub library: Option<PathBuf>,
    /// Entries such as versions: keys with JSON values, such as `cupti_version`.
    pub versions: Vec<(String, String)>,
    /// Its devices, unless they are listed with the vendor's [driver](Diagnosis::drivers).
    pub devices: Vec<DeviceDescription>,
    /// Why it records nothing.
    pub reason: Option<Unavailable>,
    /// Limitations.
    pub notes: Vec<String>,
    /// What to do.
    pub advice: Vec<String>,
    /// Whether the doctor started it.
    pub started: bool,
    /// Whether records were seen to arrive after the start; `None` if that cannot be verified.
    pub proven: Option<bool>,
    /// The places of the last search for its libraries, with the outcomes.
    pub attempts: Vec<Attempt>,
}

/// Whether a collector works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Verdict {
    /// It records all of its types.
    Ready,
    /// It records only some of its types, or probably fails.
    Degraded,
    /// It records nothing.
    Unavailable,
}

impl Verdict {
    /// Returns the lower-case name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Verdict::Ready => "ready",
            Verdict::Degraded => "degraded",
            Verdict::Unavailable => "unavailable",
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Diagnosis {
    /// Returns whether everything selected can be recorded: the configuration is valid, and each selected collector
    /// is [ready](Verdict::Ready). A vendor's devices may be missing if there are devices of another vendor.
    pub fn is_well(&self) -> bool {
        let selected = || self.collectors.iter().filter(|collector| collector.is_selected);
        let has_device = selected().any(|collector| collector.verdict != Verdict::Unavailable);
        let is_fine = |collector: &CollectorDiagnosis| match &collector.reason {
            Some(reason) => reason.why() == Why::NoDevice && has_device,
            None => collector.verdict == Verdict::Ready,
        };
        self.configuration.error.is_none() && selected().all(is_fine)
    }

    /// Returns all findings as a JSON object.
    pub fn to_json(&self) -> String {
        let facts = |facts: &[(&'static str, String)]| {
            json_object(facts.iter().map(|(word, text)| (*word, text.as_str().into())).collect())
        };
        let device = |(device, id): &(DeviceDescription, Option<String>)| {
            let properties = device.properties.iter().map(|(key, value)| (&**key, (*value).into())).collect();
            json!({ "id": device.id, "name": device.name, "uuid": id, "properties": json_object(properties) })
        };
        json!({
            "version": env!("CARGO_PKG_VERSION"),
            "well": self.is_well(),
            "machine": facts(&self.machine),
            "clock": { "source": self.clock.source, "error_ns": self.clock.error_ns, "notes": self.clock.notes },
            "configuration": self.configuration.to_json(),
            "driver": self.drivers.first().map(|driver| facts(&driver.facts)).unwrap_or_default(),
            "devices": self.drivers.iter().flat_map(|driver| &driver.devices).map(device).collect::<Vec<_>>(),
            "collectors": self.collectors.iter().map(CollectorDiagnosis::to_json).collect::<Vec<_>>(),
        })
        .to_string()
    }
}

fn type_names(types: ActivityTypes) -> Vec<&'static str> {
    types.iter().map(|kind| kind.as_str()).collect()
}

impl ConfigurationDiagnosis {
    fn to_json(&self) -> Value {
        let set = |(key, value, source): &(&str, String, String)| json!({ "key": key, "value": value, "from": source });
        json!({
            "from_env": self.from_env,
            "set": self.set.iter().map(set).collect::<Vec<_>>(),
            "selected": type_names(self.selected),
            "not_recorded": type_names(self.not_recorded),
            "error": self.error,
            "warnings": self.warnings,
        })
    }

    fn add_to_page(&self, page: &mut Page) {
        page.start_section("Configuration");
        page.add_line("from_env()", &self.from_env);
        for (key, value, source) in &self.set {
            page.add_line("set", &format!("{key}={value} ({source})"));
        }
        if let Some(error) = &self.error {
            page.add_line("error", error);
        }
        self.warnings.iter().for_each(|warning| page.add_line("warning", warning));
        page.add_types("selected", self.selected);
        page.add_types("not available", self.not_recorded);
    }
}

impl CollectorDiagnosis {
    fn to_json(&self) -> Value {
        let attempt = |attempt: &Attempt| json!({ "what": attempt.what, "outcome": attempt.outcome });
        let reason = |reason: &Unavailable| json!({ "why": format!("{:?}", reason.why()), "message": reason.message(), "advice": reason.advice() });
        let versions = self.versions.iter().map(|(key, value)| (key.as_str(), value.as_str().into())).collect();
        json!({
            "name": self.name,
            "verdict": self.verdict.as_str(),
            "selected": self.is_selected,
            "records": type_names(self.records),
            "does_not_record": type_names(self.types.difference(self.records)),
            "library": self.library.as_ref().map(|path| path.to_string_lossy()),
            "versions": json_object(versions),
            "devices": self.devices.iter().map(|one| json!({ "id": one.id, "name": one.name })).collect::<Vec<_>>(),
            "reason": self.reason.as_ref().map(reason),
            "notes": self.notes,
            "advice": self.advice,
            "started": self.started,
            "proven": self.proven,
            "attempts": self.attempts.iter().map(attempt).collect::<Vec<_>>(),
        })
    }

    fn add_to_page(&self, page: &mut Page) {
        let selection_note = if self.is_selected { "" } else { " (not selected)" };
        page.start_section(&format!("Collector {}: {}{selection_note}", self.name, self.verdict));
        if let Some(reason) = &self.reason {
            page.add_line("because", reason.message());
        }
        if self.is_selected {
            let advice = self.advice.iter().map(String::as_str).chain(self.reason.iter().map(Unavailable::advice));
            advice.filter(|advice| !advice.is_empty()).for_each(|advice| page.add_line("to do", advice));
        }
        if let Some(library) = &self.library {
            page.add_line("library", &library.to_string_lossy());
        }
        self.versions.iter().for_each(|(key, value)| page.add_line(key, value));
        self.devices.iter().for_each(|device| page.add_line(&device.label, &describe_device(device, None)));
        page.add_types("records", self.records);
        page.add_types("cannot record", self.types.difference(self.records));
        self.notes.iter().for_each(|note| page.add_line("note", note));
        if self.reason.is_none() {
            let tried = match (self.started, self.proven) {
                (false, _) => {
                    "not started: only a start shows whether the library is in use, and whether records arrive"
                }
                (true, Some(true)) => "started, and records arrived",
                (true, Some(false)) => "started, and no record arrived",
                (true, None) => "started; whether records arrive is unknown",
            };
            page.add_line("tried", tried);
        }
        self.attempts.iter().for_each(|attempt| page.add_line("searched", &attempt.to_string()));
    }
}

impl Diagnosis {
    /// Returns which collectors record the work of devices, or why none does.
    fn describe_gpu_work(&self) -> String {
        let gpu_work = ActivityTypes::of(&[ActivityType::ConcurrentKernel]);
        let able: Vec<_> =
            self.collectors.iter().filter(|one| !one.records.intersection(gpu_work).is_empty()).collect();
        let names = |of: &[&CollectorDiagnosis]| of.iter().map(|one| one.name).collect::<Vec<_>>().join(", ");
        let selected: Vec<_> = able.iter().copied().filter(|one| one.is_selected).collect();
        let mut reasons = self.collectors.iter().filter_map(|one| one.reason.as_ref());
        match () {
            () if !selected.is_empty() => format!("recorded by {}", names(&selected)),
            () if !able.is_empty() => format!("not selected; {} could record it", names(&able)),
            () => match reasons.find(|reason| reason.why() != Why::NoDevice) {
                Some(reason) => format!("not recorded: {}", reason.message()),
                None => "no GPU was found".to_owned(),
            },
        }
    }
}

impl fmt::Display for Diagnosis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut page = Page::default();
        page.start_section(&format!("Summary (tracing-kineto {})", env!("CARGO_PKG_VERSION")));
        page.add_line("spans", if platform::CAN_RECORD { "recorded" } else { "not recorded on this platform" });
        page.add_line("GPU work", &self.describe_gpu_work());
        page.start_section("Machine");
        self.machine.iter().for_each(|(word, text)| page.add_line(word, text));
        page.add_line(
            "clock",
            &format!("{}, at most {} ns from CLOCK_REALTIME", self.clock.source, self.clock.error_ns),
        );
        self.clock.notes.iter().for_each(|note| page.add_line("clock", note));
        self.configuration.add_to_page(&mut page);
        for driver in &self.drivers {
            page.start_section(&format!("{} driver", driver.vendor));
            driver.facts.iter().for_each(|(word, text)| page.add_line(word, text));
            for (device, id) in &driver.devices {
                page.add_line(&device.label, &describe_device(device, id.as_deref()));
            }
        }
        self.collectors.iter().for_each(|collector| collector.add_to_page(&mut page));
        f.write_str(page.text())
    }
}

/// Describes a device in a line.
fn describe_device(device: &DeviceDescription, id: Option<&str>) -> String {
    let number = |key| device.property(key);
    let capability = number("computeMajor").zip(number("computeMinor"));
    let mut parts = vec![device.name.clone()];
    parts.extend(capability.map(|(major, minor)| format!("compute capability {major}.{minor}")));
    parts.extend(number("totalGlobalMem").map(|bytes| {
        // Tenths, in whole numbers.
        let tenths = bytes / ((1 << 30) / 10);
        format!("{}.{} GiB", tenths / 10, tenths % 10)
    }));
    parts.extend(id.map(str::to_owned));
    parts.extend(partial_gpu_remark(&device.name).map(str::to_owned));
    parts.join(", ")
}

/// Returns a remark if the device's name shows that it is not a whole GPU: "… MIG 1g.10gb", "… A40-8Q".
fn partial_gpu_remark(name: &str) -> Option<&'static str> {
    let number = name.rsplit_once('-').and_then(|(_, profile)| profile.strip_suffix(['A', 'B', 'C', 'Q']));
    let is_virtual = number.is_some_and(|number| !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit()));
    if name.contains(" MIG ") { Some("a part of a GPU (MIG)") } else { is_virtual.then_some("a share of a GPU (vGPU)") }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use kineto_devices::Why;
    use kineto_model::activity::ActivityType;

    /// Makes the diagnosis of a machine with a GPU and a collector of that verdict.
    fn sample(verdict: Verdict) -> Diagnosis {
        let mut device = DeviceDescription::new(0, "NVIDIA H100 MIG 1g.10gb");
        device.properties = [("computeMajor", 9), ("computeMinor", 0), ("totalGlobalMem", 10_600_000_000)]
            .map(|(key, value)| (key.into(), value))
            .into();
        let types = ActivityTypes::of(&[ActivityType::ConcurrentKernel, ActivityType::CudaSync]);
        let collector = CollectorDiagnosis {
            name: "cupti",
            verdict,
            is_selected: true,
            types,
            records: ActivityTypes::from_type(ActivityType::ConcurrentKernel),
            library: Some("/lib/libcupti.so.13".into()),
            versions: vec![("cupti_version".to_owned(), "130001".to_owned())],
            devices: Vec::new(),
            reason: (verdict == Verdict::Unavailable)
                .then(|| Unavailable::new(Why::Busy, "another one has it", "stop that one")),
            notes: vec!["a note".to_owned()],
            advice: vec!["word ".repeat(60)],
            started: true,
            proven: Some(true),
            attempts: vec![Attempt::new("libcuda.so.1, by the loader", "opened")],
        };
        let mut driver = DriverDiagnosis::new("NVIDIA");
        driver.facts.push(("cuda", "13.0".to_owned()));
        driver.devices.push((device, Some("GPU-1".to_owned())));
        Diagnosis {
            machine: vec![("kernel", "Linux 6.1".to_owned())],
            clock: ClockDiagnosis { source: "tsc", error_ns: 40, notes: Vec::new() },
            configuration: ConfigurationDiagnosis {
                from_env: "returns no layer".to_owned(),
                set: vec![("GZIP_LEVEL", "3".to_owned(), "environment".to_owned())],
                selected: types,
                not_recorded: ActivityTypes::EMPTY,
                error: None,
                warnings: Vec::new(),
            },
            drivers: vec![driver],
            collectors: vec![collector],
        }
    }

    #[test]
    fn text_says_all_of_it_in_lines_of_80_columns() {
        let text = sample(Verdict::Degraded).to_string() + &sample(Verdict::Unavailable).to_string();
        let lines: Vec<_> = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
        for line in [
            "Collector cupti: degraded",
            "Collector cupti: unavailable",
            "because another one has it",
            "to do stop that one",
            "library /lib/libcupti.so.13",
            "cupti_version 130001",
            "records kernel",
            "cannot record cuda_sync",
            "tried started, and records arrived",
            "searched libcuda.so.1, by the loader: opened",
            "clock tsc, at most 40 ns from CLOCK_REALTIME",
            "set GZIP_LEVEL=3 (environment)",
        ] {
            assert!(lines.iter().any(|known| known == line), "{line}\nis not in\n{text}");
        }
        let gpu = "NVIDIA H100 MIG 1g.10gb, compute capability 9.0, 9.8 GiB, GPU-1, a part";
        assert!(lines.join(" ").contains(gpu), "{text}");
        assert!(text.lines().all(|line| line.len() <= 80 && line.trim_end() == line), "{text}");
    }

    #[test]
    fn parts_of_gpus_are_recognised_by_name() {
        for (name, told) in [
            ("NVIDIA A100-SXM4-40GB MIG 1g.5gb", Some("a part of a GPU (MIG)")),
            ("GRID T4-8C", Some("a share of a GPU (vGPU)")),
            ("NVIDIA A40-8Q", Some("a share of a GPU (vGPU)")),
            ("NVIDIA A100-PCIE-40GB", None),
            ("NVIDIA H200", None),
            ("Quadro RTX-A", None),
        ] {
            assert_eq!(partial_gpu_remark(name), told, "{name}");
        }
    }

    #[test]
    fn json_has_the_same_findings() {
        let json: Value = serde_json::from_str(&sample(Verdict::Unavailable).to_json()).unwrap();
        assert_eq!(json["well"], false);
        assert_eq!(json["devices"][0]["properties"]["computeMajor"], 9);
        let collector = &json["collectors"][0];
        assert_eq!((&collector["verdict"], &collector["reason"]["why"]), (&json!("unavailable"), &json!("Busy")));
        assert_eq!((&collector["records"], &collector["does_not_record"]), (&json!(["kernel"]), &json!(["cuda_sync"])));
        assert_eq!(
            json["configuration"]["set"][0],
            json!({ "key": "GZIP_LEVEL", "value": "3", "from": "environment" })
        );
    }

    #[test]
    fn all_is_well_if_selected_collectors_are_ready() {
        assert!(sample(Verdict::Ready).is_well());
        assert!(!sample(Verdict::Degraded).is_well() && !sample(Verdict::Unavailable).is_well());
        let mut unasked = sample(Verdict::Unavailable);
        unasked.collectors[0].is_selected = false;
        assert!(unasked.is_well() && !unasked.to_string().contains("to do"), "{unasked}");
        unasked.configuration.error = Some("wrong".to_owned());
        assert!(!unasked.is_well());
    }
}
