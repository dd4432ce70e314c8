//! The settings of PM sampling.

use super::super::metric_shapes::MAX_METRICS;
use crate::{Options, Unavailable, Why};

/// The settings of a recording.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PmSettings {
    /// The metrics, such as `sm__cycles_active.avg`, each once.
    pub(super) metrics: Vec<String>,
    /// The numbers of the devices to sample; empty for all.
    pub(super) devices: Vec<i32>,
    pub(super) interval_ns: u64,
}

const DEFAULT_INTERVAL_US: i64 = 1000;

impl PmSettings {
    /// Reads the settings.
    ///
    /// # Errors
    /// Why they cannot be used.
    pub(super) fn read(options: &Options) -> Result<PmSettings, Unavailable> {
        let invalid = |message: String, advice: &str| Unavailable::new(Why::Unsupported, message, advice);
        let mut metrics: Vec<String> = Vec::new();
        for name in options.list("CUPTI_PM_SAMPLING_METRICS") {
            if !metrics.contains(name) {
                metrics.push(name.clone());
            }
        }
        if metrics.is_empty() {
            let advice = "set CUPTI_PM_SAMPLING_METRICS";
            return Err(Unavailable::new(Why::Disabled, "no metric is selected for PM sampling", advice));
        }
        if metrics.len() > MAX_METRICS {
            let message = format!("CUPTI_PM_SAMPLING_METRICS names {} metrics", metrics.len());
            return Err(invalid(message, "name at most 127"));
        }
        let number = |text: &String| text.parse::<i32>().map_err(|_| text.clone());
        let devices: Result<Vec<_>, _> = options.list("CUPTI_PM_SAMPLING_DEVICE_ID").iter().map(number).collect();
        let devices = devices.map_err(|text| {
            invalid(format!("CUPTI_PM_SAMPLING_DEVICE_ID: `{text}` is no number of a GPU"), "name numbers such as 0,1")
        })?;
        // kineto's default.
        let devices = if devices == [-1] { Vec::new() } else { devices };
        let interval = options.number("CUPTI_PM_SAMPLING_INTERVAL_US").unwrap_or(DEFAULT_INTERVAL_US);
        let interval_ns = u64::try_from(interval).unwrap_or(0).max(1).saturating_mul(1000);
        Ok(PmSettings { metrics, devices, interval_ns })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(metrics: &[&str], devices: &[&str], interval: Option<i64>) -> Result<PmSettings, Unavailable> {
        let mut options = Options::default();
        let list = |texts: &[&str]| texts.iter().map(ToString::to_string).collect::<Vec<_>>();
        options.set("CUPTI_PM_SAMPLING_METRICS", list(metrics));
        options.set("CUPTI_PM_SAMPLING_DEVICE_ID", list(devices));
        interval.into_iter().for_each(|interval| options.set("CUPTI_PM_SAMPLING_INTERVAL_US", interval));
        PmSettings::read(&options)
    }

    #[test]
    fn settings_have_defaults_and_no_repetition() {
        let settings = read(&["b.avg", "a.sum", "b.avg"], &[], None).unwrap();
        assert_eq!(
            (settings.metrics, settings.devices.len(), settings.interval_ns),
            (vec!["b.avg".to_owned(), "a.sum".to_owned()], 0, 1_000_000)
        );
        let settings = read(&["a.avg"], &["1", "0"], Some(50)).unwrap();
        assert_eq!((settings.devices, settings.interval_ns), (vec![1, 0], 50_000));
        assert!(read(&["a.avg"], &["-1"], None).unwrap().devices.is_empty());
    }

    #[test]
    fn unusable_settings_have_a_reason() {
        assert_eq!(read(&[], &[], None).unwrap_err().why(), Why::Disabled);
        assert!(read(&["a.avg"], &["one"], None).unwrap_err().message().contains("`one` is no number"));
        let many: Vec<_> = (0..=MAX_METRICS).map(|nth| format!("m{nth}.avg")).collect();
        let many: Vec<_> = many.iter().map(String::as_str).collect();
        assert!(read(&many, &[], None).unwrap_err().message().contains("names 128 metrics"));
    }
}
