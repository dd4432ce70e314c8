//! The text of an external request, parsed but not yet checked against bounds.

use super::super::Config;
use super::super::keys::{Key, ReloadPolicy};
use super::super::sections::output::Output;
use super::super::value::Value;
use super::parse::parse_settings;
use super::settings::{ConfigSource, SourceSettings};
use kineto_model::activity::{ActivityType, ActivityTypes};
use std::path::PathBuf;
use std::time::Duration;

/// A parsed request; missing keys have libkineto's defaults.
#[derive(Clone, Debug, Default)]
pub(crate) struct ParsedRequest {
    /// Whether the request is not to be performed.
    pub(crate) is_declined: bool,
    /// Whether it only cancels the other requests.
    pub(crate) cancels: bool,
    pub(crate) duration: Duration,
    /// The number of iterations; 0 for a recording by time.
    pub(crate) iterations: u64,
    /// How long collectors run before the start, if set.
    pub(crate) warmup: Option<Duration>,
    pub(crate) warmup_iterations: u64,
    /// The start since the Unix epoch; `None` for as soon as possible.
    pub(crate) start: Option<Duration>,
    pub(crate) start_iteration: Option<u64>,
    pub(crate) roundup: Option<u64>,
    pub(crate) log_file: Option<PathBuf>,
    /// Empty for none.
    pub(crate) trace_id: String,
    pub(crate) group_trace_id: String,
    /// The duration of a memory profile, if requested instead of a trace.
    pub(crate) memory_profile: Option<Duration>,
    pub(crate) gpu_buffer_mebibytes: u64,
    /// Warnings about keys without an effect here.
    pub(crate) warnings: Vec<String>,
    /// Set if the request wants what the program has recorded so long, instead of a new recording.
    pub(crate) last: Option<Duration>,
    settings: SourceSettings,
}

impl ParsedRequest {
    /// Parses a request.
    ///
    /// # Errors
    /// The problems of the first invalid lines; a partly valid request is rejected as a whole.
    pub(crate) fn parse(text: &str) -> Result<ParsedRequest, String> {
        /// Further invalid lines of a malformed request add no information.
        const SHOWN: usize = 3;
        let mut reading = parse_settings(text);
        if !reading.errors.is_empty() {
            reading.errors.truncate(SHOWN);
            return Err(reading.errors.join("; "));
        }
        let duration = Duration::from_millis(500);
        let mut asked = ParsedRequest { duration, warnings: reading.warnings, ..ParsedRequest::default() };
        let (mut profiles_memory, mut memory_duration) = (false, Duration::from_secs(1));
        for (key, value) in reading.settings.iter() {
            match (key, value) {
                (Key::ProfileMemory, Value::Bool(on)) => profiles_memory = *on,
                (Key::ProfileMemoryDuration, _) => memory_duration = Duration::from_millis(value.as_number()),
                _ if asked.apply_request_key(key, value) || asked.keep_recording_key(key, value) => {}
                _ => asked.warnings.push(format!("{} is not for requests and is ignored", key.spec().name)),
            }
        }
        asked.memory_profile = profiles_memory.then_some(memory_duration);
        Ok(asked)
    }

    /// Applies a key about time, duration or file; returns `false` for other keys.
    fn apply_request_key(&mut self, key: Key, value: &Value) -> bool {
        let number = value.as_number();
        let milliseconds = Duration::from_millis(number);
        match (key, value) {
            (Key::ActivitiesEnabled, Value::Bool(on)) => self.is_declined = !on,
            (Key::Cancel, Value::Bool(on)) => self.cancels = *on,
            (Key::DurationSecs, _) => self.duration = value.as_seconds(),
            (Key::DurationMsecs, _) => self.duration = milliseconds,
            (Key::Iterations, _) => self.iterations = number,
            (Key::WarmupSecs, _) => self.warmup = Some(value.as_seconds()),
            (Key::WarmupIterations, _) => self.warmup_iterations = number,
            (Key::StartTime, _) => self.start = Some(milliseconds).filter(|at| !at.is_zero()),
            (Key::StartIteration, _) => self.start_iteration = Some(number),
            (Key::StartRoundup, _) => self.roundup = Some(number),
            (Key::Last, _) => self.last = Some(milliseconds).filter(|last| !last.is_zero()),
            (Key::LogFile, Value::Output(Output::PerProcess(path))) => self.log_file = Some(path.clone()),
            (Key::TraceId, Value::Text(id)) => self.trace_id.clone_from(id),
            (Key::GroupTraceId, Value::Text(id)) => self.group_trace_id.clone_from(id),
            _ => return false,
        }
        true
    }

    /// Returns whether a request's text cancels the other requests.
    pub(crate) fn is_cancel(text: &str) -> bool {
        ParsedRequest::parse(text).is_ok_and(|asked| asked.cancels)
    }

    /// Returns its trace id and the id of its group; empty for none.
    pub(crate) fn ids(&self) -> (&str, &str) {
        (&self.trace_id, &self.group_trace_id)
    }

    /// Returns whether it selects activity types.
    pub(crate) fn names_types(&self) -> bool {
        self.settings.iter().any(|(key, _)| matches!(key, Key::ActivityTypes | Key::Activities))
    }

    /// Keeps a setting of the recording; returns `false` if the key is not for requests.
    fn keep_recording_key(&mut self, key: Key, value: &Value) -> bool {
        // Stacks depend on the program too.
        let is_of_a_recording = key.spec().reload == ReloadPolicy::Next || key.family() == Key::WithStack;
        if key == Key::MaxGpuBufferSize {
            self.gpu_buffer_mebibytes = value.as_number();
        }
        if is_of_a_recording {
            self.settings.set(key, value.clone());
        }
        is_of_a_recording
    }
}

impl Config {
    /// Returns the settings of a requested recording: the request's, else the layer's own. Decisions about single spans are
    /// always the layer's.
    pub(crate) fn of_request(&self, asked: &ParsedRequest, output: PathBuf) -> Config {
        let mut config = self.clone();
        if asked.names_types() {
            config.activities = ActivityTypes::EMPTY;
        }
        asked.settings.iter().for_each(|(key, value)| key.apply(value, &mut config));
        config.flags.profile_memory |= self.flags.profile_memory;
        config.activities = config.gpu.allowed_types(config.activities.or_default());
        if config.collectives {
            config.activities = config.activities.with(ActivityType::CollectiveComm);
        }
        let id = |id: &String| Some(id.clone()).filter(|id| !id.is_empty());
        config.trace_id = id(&asked.trace_id).or(config.trace_id);
        config.group_trace_id = id(&asked.group_trace_id).unwrap_or(config.group_trace_id);
        config.output = Output::Exact(output);
        config.merged = self.merged.overridden_by(ConfigSource::Request, &asked.settings);
        config
    }
}

#[cfg(test)]
#[cfg(feature = "ondemand")]
mod tests {
    use super::*;
    use crate::config::RecordingFlags;

    /// The daemon's text for `dyno gputrace --log-file /tmp/a.json`.
    const TEXT: &str = "\n    ACTIVITIES_LOG_FILE=/tmp/a.json\nPROFILE_START_TIME=0\nACTIVITIES_DURATION_MSECS=700\n\
                        PROFILE_REPORT_INPUT_SHAPES=false\nPROFILE_WITH_STACK=false\nPROFILE_WITH_FLOPS=false\n\
                        PROFILE_WITH_MODULES=true\n    REQUEST_TRACE_ID=17129871298712987129\n";

    #[test]
    fn daemon_request_is_parsed() {
        let asked = ParsedRequest::parse(TEXT).unwrap();
        assert!(!asked.is_declined && asked.warnings.is_empty() && asked.start.is_none(), "{asked:?}");
        assert_eq!((asked.duration, asked.iterations), (Duration::from_millis(700), 0));
        assert_eq!(asked.log_file, Some("/tmp/a.json".into()));
        assert_eq!(asked.trace_id, "17129871298712987129");
        assert_eq!((asked.memory_profile, asked.warmup), (None, None));
    }

    #[test]
    fn bad_line_rejects_the_request_unknown_key_warns() {
        let error =
            ParsedRequest::parse("ACTIVITIES_LOG_FILE=/tmp/a.json\nwhat\nACTIVITIES_DURATION_MSECS=-1\n").unwrap_err();
        assert!(error.starts_with("line 2: expected KEY=value; line 3: "), "{error}");
        let text = "FUTURE=1\nBUFFER_LIMIT_MB=9\nACTIVITIES_DURATION_SECS=2\nXPUPTI_PROFILER_DEVICES=0,1";
        let asked = ParsedRequest::parse(text).unwrap();
        let warned = ["line 1: unknown key FUTURE", "BUFFER_LIMIT_MB is not for requests and is ignored"];
        assert_eq!((asked.warnings, asked.duration), (warned.map(str::to_owned).to_vec(), Duration::from_secs(2)));
    }

    // Shows the key PROFILE_MEMORY_DURATION_MSECS.
    #[test]
    fn memory_profile_has_its_own_duration() {
        let asked = ParsedRequest::parse("PROFILE_MEMORY_DURATION_MSECS=30\nPROFILE_MEMORY=true").unwrap();
        assert_eq!(asked.memory_profile, Some(Duration::from_millis(30)));
        assert_eq!(ParsedRequest::parse("PROFILE_MEMORY_DURATION_MSECS=30").unwrap().memory_profile, None);
    }

    #[test]
    fn request_overrides_the_layers_settings() {
        let mut layer = Config::default();
        (layer.with_location, layer.gzip_level, layer.trace_id) = (true, 7, Some("own".to_owned()));
        let text =
            "ACTIVITY_TYPES=kernel\nPROFILE_WITH_MODULES=1\nPROFILE_PROFILE_MEMORY=1\nPROFILE_WITH_STACK=1\nFWD_BWD=0";
        let asked = ParsedRequest::parse(text).unwrap();
        let config = layer.of_request(&asked, "/tmp/a_1.json".into());
        assert!(asked.warnings.is_empty() && layer.fwd_bwd && !config.fwd_bwd, "{:?}", asked.warnings);
        assert_eq!(config.activities, ActivityType::ConcurrentKernel.into());
        let flags = RecordingFlags { profile_memory: true, with_stack: true, with_modules: true, ..config.flags };
        assert!(config.flags == flags && config.with_location && !config.flags.record_shapes);
        assert_eq!((config.gzip_level, config.trace_id.as_deref()), (7, Some("own")));
        assert_eq!(config.output.expanded_path(&config.placeholder_values()), Some("/tmp/a_1.json".into()));
        let json: serde_json::Value = serde_json::from_str(&config.effective_json()).unwrap();
        assert_eq!((&json["ACTIVITY_TYPES"], &json["from"]["ACTIVITY_TYPES"]), (&"kernel".into(), &"request".into()));
        let asked = ParsedRequest::parse("REQUEST_TRACE_ID=5\nREQUEST_GROUP_TRACE_ID=6").unwrap();
        let config = layer.of_request(&asked, "/tmp/a".into());
        assert_eq!((config.trace_id.as_deref(), config.group_trace_id.as_str()), (Some("5"), "6"));
        assert_eq!(config.activities, layer.activities);
    }

    #[cfg(feature = "metrics")]
    #[test]
    fn request_may_ask_for_metrics() {
        let layer = Config::default();
        let sampled =
            "ACTIVITY_TYPES=hardware_counters\nCUPTI_PM_SAMPLING_METRICS=a.avg, b.sum\nCUPTI_PM_SAMPLING_DEVICE_ID=1";
        let config = layer.of_request(&ParsedRequest::parse(sampled).unwrap(), "/tmp/a".into());
        assert_eq!(config.gpu.options.list("CUPTI_PM_SAMPLING_METRICS"), ["a.avg", "b.sum"]);
        assert_eq!(config.activities, ActivityType::HardwareCounters.into());
    }
}
