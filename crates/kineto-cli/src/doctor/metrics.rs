//! `kineto doctor --metrics`: the hardware counters that GPUs can sample, and measure of kernels and annotations.

use crate::print_text;
use kineto_base::text::count_with_noun;
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::process::ExitCode;
use tracing_kineto::Doctor;
use tracing_kineto::integration::GpuMetrics;

/// Prints the metrics of each GPU, or the passes of those that are named. Fails unless they can be sampled everywhere, or
/// measured of kernels.
pub(super) fn print_metrics(doctor: &Doctor, names: &str, as_json: bool) -> ExitCode {
    let names: Vec<_> =
        names.split(',').map(str::trim).filter(|name| !name.is_empty()).map(ToOwned::to_owned).collect();
    let (text, json, is_well) = match doctor.metrics(&names) {
        Ok(gpus) => {
            let is_of_use =
                |gpu: &GpuMetrics| matches!(gpu.passes, None | Some(Ok(1))) || matches!(gpu.range_passes, Some(Ok(_)));
            let is_well = gpus.iter().all(|gpu| gpu.metrics.is_ok() && is_of_use(gpu));
            let text = gpus.iter().map(|gpu| describe(gpu, &names)).collect::<Vec<_>>().join("\n");
            (text, json!({ "gpus": gpus.iter().map(to_json).collect::<Vec<_>>() }), is_well)
        }
        Err(reason) => (format!("no GPU can be sampled: {reason}\n"), json!({ "error": reason.to_string() }), false),
    };
    print_text(&if as_json { format!("{json}\n") } else { text });
    if is_well { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Returns a GPU's metrics as text: all of them, or those that are named.
fn describe(gpu: &GpuMetrics, names: &[String]) -> String {
    let mut text = format!("{}: {} {}\n", gpu.device.label, gpu.device.name, gpu.chip);
    let metrics = match &gpu.metrics {
        Ok(metrics) => metrics,
        Err(reason) => return format!("{text}  cannot be sampled: {reason}\n"),
    };
    let is_named =
        |base: &str| names.iter().any(|name| name.strip_prefix(base).is_some_and(|rest| rest.starts_with('.')));
    let shown: Vec<_> = metrics.iter().filter(|metric| names.is_empty() || is_named(&metric.name)).collect();
    let width = shown.iter().map(|metric| metric.name.len()).max().unwrap_or(0);
    // Writing to a string does not fail.
    for metric in shown {
        let unit = if metric.unit.is_empty() { String::new() } else { format!(" [{}]", metric.unit) };
        let only = match (metric.is_sampled, metric.is_measured) {
            (false, _) => ", of kernels and annotations only",
            (_, false) => ", for sampling only",
            _ => "",
        };
        let _ = writeln!(text, "  {:<width$}  {:<10}  {}{unit}{only}", metric.name, metric.kind, metric.description);
    }
    let _ = match &gpu.passes {
        None => {
            let count = count_with_noun(metrics.len() as u64, "metric");
            writeln!(text, "  {count}; a name ends with a rollup, such as .avg, .max, .min or .sum")
        }
        Some(Ok(1)) => writeln!(text, "  they take 1 pass: they can be sampled together"),
        Some(Ok(passes)) => writeln!(text, "  they take {passes} passes, and PM sampling has one: name fewer metrics"),
        Some(Err(reason)) => writeln!(text, "  they cannot be sampled: {reason}"),
    };
    let fitting = || gpu.one_pass.join(", ");
    let _ = match &gpu.range_passes {
        None => Ok(()),
        Some(Ok(1)) => writeln!(text, "  for kernels and annotations they take 1 pass"),
        Some(Ok(passes)) => {
            writeln!(
                text,
                "  for kernels they take {passes} passes; an annotation has one, in which fit: {}",
                fitting()
            )
        }
        Some(Err(reason)) => writeln!(text, "  kernels and annotations cannot be measured: {reason}"),
    };
    text
}

fn to_json(gpu: &GpuMetrics) -> Value {
    let metrics = gpu.metrics.as_ref().map(|metrics| {
        let entry = |metric: &tracing_kineto::integration::MetricDescription| {
            let (name, kind) = (&metric.name, metric.kind);
            let (sampled, measured) = (metric.is_sampled, metric.is_measured);
            json!({
                "name": name, "kind": kind, "unit": metric.unit, "description": metric.description,
                "sampled": sampled, "measured": measured,
            })
        };
        metrics.iter().map(entry).collect::<Vec<_>>()
    });
    let mut about = json!({ "gpu": gpu.device.id, "name": gpu.device.name, "chip": gpu.chip });
    if let Some(about) = about.as_object_mut() {
        match metrics {
            Ok(metrics) => about.insert("metrics".to_owned(), metrics.into()),
            Err(reason) => about.insert("error".to_owned(), reason.to_string().into()),
        };
        match &gpu.passes {
            Some(Ok(passes)) => _ = about.insert("passes".to_owned(), (*passes).into()),
            Some(Err(reason)) => _ = about.insert("refused".to_owned(), reason.to_string().into()),
            None => {}
        }
        if let Some(Ok(passes)) = &gpu.range_passes {
            about.insert("range_passes".to_owned(), (*passes).into());
            about.insert("one_pass".to_owned(), json!(gpu.one_pass));
        }
    }
    about
}
