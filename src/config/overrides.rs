//! What the program itself asks for, which goes before all other sources.

use std::path::PathBuf;
use std::time::Duration;

use tracing_core::LevelFilter;
use tracing_subscriber::filter::Targets;

use super::async_spans::AsyncSpans;
use super::distributed::DistributedInfo;
use super::keys::Key;
use super::mode::Modes;
use super::output::Output;
use super::overflow::Overflow;
use super::settings::{Fault, Reading};
use super::value::{Kind, Value};
use crate::diag::Severity;
use kineto_trace::activity::ActivityTypes;

/// What the builder was told; `None` leaves a setting to the other sources.
#[derive(Clone, Debug, Default)]
pub(crate) struct Overrides {
    pub(crate) mode: Option<Modes>,
    pub(crate) itt_domain: Option<String>,
    pub(crate) activities: Option<ActivityTypes>,
    pub(crate) output: Option<Output>,
    pub(crate) filter: Option<Targets>,
    pub(crate) with_args: Option<bool>,
    pub(crate) with_target: Option<bool>,
    pub(crate) with_location: Option<bool>,
    pub(crate) record_shapes: Option<bool>,
    pub(crate) with_memory: Option<bool>,
    pub(crate) with_flops: Option<bool>,
    pub(crate) with_modules: Option<bool>,
    pub(crate) overload_names: Option<bool>,
    pub(crate) fwd_bwd: Option<bool>,
    pub(crate) collectives: Option<bool>,
    pub(crate) with_stack: Option<bool>,
    pub(crate) stack_frames: Option<usize>,
    pub(crate) stack_filter: Option<Targets>,
    pub(crate) performance_events: Option<Vec<String>>,
    pub(crate) deny_fields: Option<Vec<String>>,
    pub(crate) events: Option<LevelFilter>,
    pub(crate) async_spans: Option<AsyncSpans>,
    pub(crate) buffer_limit_bytes: Option<u64>,
    pub(crate) field_limit_bytes: Option<usize>,
    pub(crate) overflow: Option<Overflow>,
    pub(crate) flush_timeout: Option<Duration>,
    pub(crate) record_from_start: Option<bool>,
    pub(crate) fields_while_idle: Option<bool>,
    pub(crate) flush_on_signals: Option<bool>,
    pub(crate) gzip_level: Option<u32>,
    pub(crate) execution_trace: Option<bool>,
    pub(crate) graph_trace: Option<bool>,
    pub(crate) plugins: Option<PathBuf>,
    pub(crate) profiler_range: Option<bool>,
    pub(crate) nvtx_ranges: Option<bool>,
    pub(crate) device_memory: Option<bool>,
    pub(crate) log_level: Option<Severity>,
    pub(crate) distributed: Option<DistributedInfo>,
    pub(crate) config_file: Option<PathBuf>,
    pub(crate) trigger_folder: Option<PathBuf>,
    /// Faults of the environment are errors.
    pub(crate) is_env_strict: bool,
}

impl Overrides {
    /// Says the same in keys; values that a file could not hold are faults here too.
    pub(super) fn read(&self) -> Reading {
        let mut reading = Reading::default();
        for (key, value) in self.values() {
            match fault(key, &value) {
                Some(fault) => reading.faults.push(fault),
                None => reading.settings.set(key, value),
            }
        }
        reading
    }

    /// Returns what is set, by key.
    pub(crate) fn values(&self) -> impl Iterator<Item = (Key, Value)> {
        let flag = |key: Key, flag: Option<bool>| (key, flag.map(Value::Bool));
        let int = |key: Key, value: Option<i64>| (key, value.map(Value::Int));
        // A number too large for i64 is too large for its key.
        let count = |count: Option<usize>| count.map(|count| i64::try_from(count).unwrap_or(i64::MAX));
        let targets = |targets: &Option<Targets>| targets.clone().map(|targets| Value::Filter(Box::new(targets)));
        let path = |path: &Option<PathBuf>| path.as_ref().map(|path| Value::Text(path.display().to_string()));
        let values = [
            (Key::ConfigFile, path(&self.config_file)),
            (Key::PluginFolder, path(&self.plugins)),
            (Key::TriggerFolder, path(&self.trigger_folder)),
            (Key::IttDomain, self.itt_domain.clone().map(Value::Text)),
            (Key::Mode, self.mode.map(Value::Modes)),
            (Key::ActivityTypes, self.activities.map(Value::Activities)),
            (Key::LogFile, self.output.clone().map(Value::Output)),
            (Key::Filter, targets(&self.filter)),
            flag(Key::WithArgs, self.with_args),
            flag(Key::WithTarget, self.with_target),
            flag(Key::WithLocation, self.with_location),
            flag(Key::InputShapes, self.record_shapes),
            flag(Key::ProfileProfileMemory, self.with_memory),
            flag(Key::WithFlops, self.with_flops),
            flag(Key::WithModules, self.with_modules),
            flag(Key::OverloadNames, self.overload_names),
            flag(Key::FwdBwd, self.fwd_bwd),
            flag(Key::Collectives, self.collectives),
            flag(Key::WithStack, self.with_stack),
            int(Key::StackFrames, count(self.stack_frames)),
            (Key::StackFilter, targets(&self.stack_filter)),
            (Key::PerformanceEvents, self.performance_events.clone().map(Value::List)),
            (Key::DenyFields, self.deny_fields.clone().map(Value::List)),
            (Key::Events, self.events.map(Value::Events)),
            (Key::AsyncSpans, self.async_spans.map(Value::AsyncSpans)),
            (Key::BufferLimit, self.buffer_limit_bytes.map(Value::Bytes)),
            int(Key::FieldLimit, count(self.field_limit_bytes)),
            (Key::Overflow, self.overflow.map(Value::Overflow)),
            (Key::FlushTimeout, self.flush_timeout.map(Value::Time)),
            flag(Key::RecordFromStart, self.record_from_start),
            flag(Key::FieldsWhileIdle, self.fields_while_idle),
            flag(Key::FlushOnSignals, self.flush_on_signals),
            int(Key::GzipLevel, self.gzip_level.map(i64::from)),
            flag(Key::ExecutionTrace, self.execution_trace),
            flag(Key::GraphTrace, self.graph_trace),
            flag(Key::ProfilerRange, self.profiler_range),
            flag(Key::NvtxRanges, self.nvtx_ranges),
            flag(Key::DeviceMemory, self.device_memory),
            (Key::LogLevel, self.log_level.map(Value::Severity)),
        ];
        values.into_iter().filter_map(|(key, value)| Some((key, value?)))
    }
}

fn fault(key: Key, value: &Value) -> Option<Fault> {
    let spec = key.spec();
    let fits = match (value, &spec.kind) {
        (Value::Int(value), Kind::Int(range)) => range.contains(value),
        (Value::Bytes(bytes), _) => *bytes > 0,
        (Value::Modes(modes), _) => modes.go_together(),
        (Value::Output(Output::Exact(path)), _) => !path.as_os_str().is_empty(),
        _ => return None,
    };
    let expected = match value {
        Value::Bytes(_) => "expected at least 1 byte".to_owned(),
        _ => format!("expected {}", spec.kind),
    };
    let method = spec.builder.split('(').next().unwrap_or(spec.name);
    (!fits).then(|| Fault::new(None, &format!("{method}({value})"), expected))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_builder_is_held_to_the_ranges_of_the_keys() {
        let overrides = Overrides {
            gzip_level: Some(10),
            field_limit_bytes: Some(0),
            buffer_limit_bytes: Some(0),
            output: Some(Output::Exact("".into())),
            with_args: Some(false),
            ..Overrides::default()
        };
        let reading = overrides.read();
        let faults: Vec<_> = reading.faults.iter().map(ToString::to_string).collect();
        assert_eq!(
            faults,
            [
                "`output()`: expected a path",
                "`buffer_limit_bytes(0)`: expected at least 1 byte",
                "`field_limit_bytes(0)`: expected a whole number from 1 to 1073741824",
                "`gzip_level(10)`: expected a whole number from 0 to 9",
            ]
        );
        assert!(reading.settings.get(Key::WithArgs).is_some());
    }

    #[test]
    fn each_key_with_a_builder_method_can_be_overridden() {
        let overrides = Overrides {
            mode: Some(Modes::default()),
            itt_domain: Some("x".into()),
            activities: Some(ActivityTypes::ALL),
            output: Some(Output::Nowhere),
            filter: Some(Targets::new()),
            with_args: Some(true),
            with_target: Some(true),
            with_location: Some(true),
            record_shapes: Some(true),
            with_memory: Some(true),
            with_flops: Some(true),
            with_modules: Some(true),
            overload_names: Some(true),
            fwd_bwd: Some(true),
            collectives: Some(true),
            with_stack: Some(true),
            stack_frames: Some(1),
            stack_filter: Some(Targets::new()),
            performance_events: Some(vec![]),
            deny_fields: Some(vec![]),
            events: Some(LevelFilter::INFO),
            async_spans: Some(AsyncSpans::Both),
            buffer_limit_bytes: Some(1),
            field_limit_bytes: Some(1),
            overflow: Some(Overflow::Stop),
            flush_timeout: Some(Duration::from_micros(1)),
            record_from_start: Some(true),
            fields_while_idle: Some(true),
            flush_on_signals: Some(true),
            gzip_level: Some(0),
            execution_trace: Some(true),
            graph_trace: Some(true),
            plugins: Some("x".into()),
            profiler_range: Some(true),
            nvtx_ranges: Some(true),
            device_memory: Some(true),
            log_level: Some(Severity::Info),
            distributed: None,
            config_file: Some("x".into()),
            trigger_folder: Some("x".into()),
            is_env_strict: false,
        };
        let reading = overrides.read();
        assert!(reading.faults.is_empty(), "{reading:?}");
        for key in Key::ALL.iter().filter(|key| !key.spec().builder.is_empty()) {
            // The groups are types too for the builder.
            assert!(*key == Key::Activities || reading.settings.get(*key).is_some(), "{key:?}");
        }
    }
}
