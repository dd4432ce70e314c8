//! Every key of the configuration has an owner: code that acts on it, and a test that shows what it does.

use std::collections::BTreeSet;

use crate::rules::Source;

/// The keys of libkineto (`Config.cpp`, `XpuptiScopeProfilerConfig.cpp`).
pub(crate) const LIBKINETO: [&str; 37] = [
    "ACTIVITIES_ENABLED",
    "ACTIVITY_TYPES",
    "ACTIVITIES_DURATION_SECS",
    "ACTIVITIES_DURATION_MSECS",
    "ACTIVITIES_ITERATIONS",
    "ACTIVITIES_WARMUP_PERIOD_SECS",
    "ACTIVITIES_WARMUP_ITERATIONS",
    "ACTIVITIES_MAX_GPU_BUFFER_SIZE_MB",
    "ACTIVITIES_LOG_FILE",
    "ACTIVITIES_DISPLAY_CUDA_SYNC_WAIT_EVENTS",
    "CUPTI_PER_THREAD_BUFFER_ENABLED",
    "CUPTI_PM_SAMPLING_METRICS",
    "CUPTI_PM_SAMPLING_DEVICE_ID",
    "PROFILE_MEMORY",
    "PROFILE_MEMORY_DURATION_MSECS",
    "ROCTRACER_MAX_EVENTS",
    "CLIENT_INTERFACE_ENABLE_OP_INPUTS_COLLECTION",
    "PROFILE_REPORT_INPUT_SHAPES",
    "PROFILE_PROFILE_MEMORY",
    "PYTHON_STACK_TRACE",
    "PROFILE_WITH_STACK",
    "PROFILE_WITH_FLOPS",
    "PROFILE_WITH_MODULES",
    "PROFILE_START_TIME",
    "PROFILE_START_ITERATION",
    "PROFILE_START_ITERATION_ROUNDUP",
    "REQUEST_TRACE_ID",
    "REQUEST_GROUP_TRACE_ID",
    "ENABLE_IPC_FABRIC",
    "ON_DEMAND_CONFIG_UPDATE_INTERVAL_SECS",
    "VERBOSE_LOG_LEVEL",
    "VERBOSE_LOG_MODULES",
    "CUSTOM_CONFIG",
    "XPUPTI_PROFILER_METRICS",
    "XPUPTI_PROFILER_ENABLE_PER_KERNEL",
    "XPUPTI_PROFILER_MAX_SCOPES",
    "XPUPTI_PROFILER_DEVICES",
];

/// Who acts on a key.
pub(crate) struct Owner {
    pub(crate) key: &'static str,
    /// A file of `src`.
    pub(crate) file: &'static str,
    /// The name of the key's value in the configuration and in that file; the key itself if it is an option of a collector.
    pub(crate) name: &'static str,
    /// The test of it, named as in docs/dev/torch-parity.md.
    pub(crate) test: &'static str,
}

/// The files that read keys, and do nothing with them.
const READERS: [&str; 8] = [
    "config/keys.rs",
    "config/sources/parse.rs",
    "config/sources/request.rs",
    "config/sources/settings.rs",
    "config/value.rs",
    "config/sources/overrides.rs",
    "config/sections/gpu.rs",
    "config/sections/slice_extras.rs",
];

const fn owner(key: &'static str, file: &'static str, name: &'static str, test: &'static str) -> Owner {
    Owner { key, file, name, test }
}

/// What each collector is asked for, which others do as they can.
const ASKED: &str = "sessions/keys.rs::selection_follows_the_keys";

#[rustfmt::skip]
pub(crate) const OWNERS: &[Owner] = &[
    owner("KINETO_ENABLED", "builder/mod.rs", "activation", "src/config/sources/env.rs::enabled_variable_decides"),
    owner("KINETO_CONFIG", "config/sources/file.rs", "ConfigFile", "lifecycle/environment.rs::configuration_file_enables_a_layer"),
    owner("MODE", "session/recording/mod.rs", "mode", "sessions/observers.rs::empty_trace_has_a_reason_when_the_mode_excludes_kineto"),
    owner("ITT_DOMAIN", "builder/mod.rs", "itt_domain", "cuda/itt.rs::spans_are_tasks"),
    owner("ACTIVITY_TYPES", "session/recording/mod.rs", "activities", "ondemand/base.rs::next_request_follows_the_file"),
    owner("ACTIVITIES", "builder/mod.rs", "activities", ASKED),
    owner("ACTIVITIES_LOG_FILE", "session/mod.rs", "output", "lifecycle/environment.rs::log_file_variable_enables_a_layer_and_gets_the_pid"),
    owner("FILTER", "builder/mod.rs", "filter", "lifecycle/environment.rs::filter_and_job_reach_the_file"),
    owner("WITH_ARGS", "callsite.rs", "with_args", "spans/fields.rs::values_are_not_written_without_args"),
    owner("WITH_TARGET", "trace/walk.rs", "with_target", "spans/names_and_kinds.rs::targets_and_locations_are_shown_when_enabled"),
    owner("WITH_LOCATION", "trace/walk.rs", "with_location", "ondemand/base.rs::next_request_follows_the_file"),
    owner("PROFILE_WITH_MODULES", "trace/mod.rs", "with_modules", "files/related.rs::operations_are_in_the_modules_of_enclosing_spans"),
    owner("CAPTURE_OVERLOAD_NAMES", "trace/mod.rs", "overload_names", "files/related.rs::overloads_follow_names_when_enabled"),
    owner("FWD_BWD", "trace/mod.rs", "fwd_bwd", "files/related.rs::arrows_can_be_disabled_and_follow_post_processing"),
    owner("TORCH_PROFILER_ENABLE_COLLECTIVE_PROFILING", "config/mod.rs", "collectives", "sessions/collectives.rs::collectives_have_their_own_type_when_enabled"),
    owner("DENY_FIELDS", "builder/mod.rs", "deny_fields", "spans/fields.rs::denied_fields_are_never_written"),
    owner("EVENTS", "callsite.rs", "events", "spans/events.rs::events_up_to_the_level_are_instants"),
    owner("ASYNC_SPANS", "trace/walk.rs", "async_spans", "spans/asyncs.rs::async_modes_select_polls_and_tracks"),
    owner("BUFFER_LIMIT_MB", "builder/mod.rs", "buffer_limit_bytes", "spans/limits.rs::slices_beyond_the_limit_are_counted_exactly"),
    owner("OVERFLOW", "builder/mod.rs", "overflow", "spans/keep_newest.rs::newest_spans_are_kept_and_the_others_counted"),
    owner("SPILL_DIR", "session/spill.rs", "spill_folder", "sessions/spill.rs::disk_trouble_is_counted_and_ends"),
    owner("SPLIT", "session/spill.rs", "split", "sessions/split.rs::parts_end_exactly_with_steps_while_threads_record"),
    owner("SHM_DIR", "session/recording/live.rs", "shm_folder", "lifecycle/live.rs::killed_process_loses_no_record"),
    owner("DUMP_ON", "builder/mod.rs", "dumps", "lifecycle/dumps.rs::dumps_are_configured_by_the_environment"),
    owner("DUMP_AFTER", "session/triggers.rs", "after", "sessions/triggers.rs::slow_span_triggers_a_dump_of_what_was_around_it"),
    owner("DUMP_INTERVAL", "session/triggers.rs", "interval", "sessions/triggers.rs::triggers_join_a_waiting_dump_and_are_skipped_after_it"),
    owner("DUMP_FILES", "session/retention.rs", "files_max", "sessions/triggers.rs::old_dumps_are_removed"),
    owner("DUMP_FILES_MB", "session/retention.rs", "bytes_max", "src/session/retention.rs::oldest_dumps_are_removed_beyond_the_limits"),
    owner("DUMP_FILES_AGE", "session/retention.rs", "age_max", "src/session/retention.rs::oldest_dumps_are_removed_beyond_the_limits"),
    owner("FILE_LIMIT_MB", "trace/execution.rs", "file_limit", "sessions/dumps.rs::files_are_closed_at_their_limit"),
    owner("WRITE_AT_END", "session/dumps.rs", "why_unwritten_at_end", "lifecycle/dumps.rs::end_without_a_named_file_writes_only_dumps"),
    owner("PROFILE_LAST_MSECS", "ondemand/runner.rs", "last", "ondemand/newest.rs::request_gets_what_was_recorded_last"),
    owner("KEEP", "session/recording/mod.rs", "keep", "spans/keep_newest.rs::trace_reaches_back_as_far_as_set"),
    owner("FIELD_LIMIT_BYTES", "builder/mod.rs", "field_limit_bytes", "spans/fields.rs::texts_stay_whole_when_the_limit_exceeds_a_chunk"),
    owner("FLUSH_TIMEOUT_MSECS", "session/settings.rs", "flush_timeout", "sessions/event_timers.rs::stop_waits_no_longer_than_its_timeout_for_the_device"),
    owner("RECORD_FROM_START", "builder/mod.rs", "record_from_start", "spans/other_layers.rs::idle_layer_hides_nothing_from_others"),
    owner("FIELDS_WHILE_IDLE", "layer/mod.rs", "fields_while_idle", "sessions/windows.rs::spans_made_while_idle_have_no_fields_and_are_counted"),
    owner("FLUSH_ON_SIGNALS", "builder/mod.rs", "flush_on_signals", "lifecycle/signals.rs::signal_leaves_nothing_when_flushing_is_off"),
    owner("GZIP_LEVEL", "trace/mod.rs", "gzip_level", "sessions/keys.rs::gzip_level_follows_the_key"),
    owner("ENABLE_PYTORCH_EXECUTION_TRACE", "trace/execution.rs", "execution_trace", "files/execution_trace.rs::guard_writes_the_execution_trace_next_to_the_trace"),
    owner("HOST_NAME", "session/recording/mod.rs", "host_name", "ondemand/base.rs::next_request_follows_the_file"),
    owner("REQUEST_TRACE_ID", "session/recording/mod.rs", "trace_id", "ondemand/traces.rs::request_records_for_a_duration"),
    owner("REQUEST_GROUP_TRACE_ID", "session/recording/mod.rs", "group_trace_id", "src/session/tests.rs::each_recording_has_its_own_trace_id"),
    owner("LOG_LEVEL", "config/change.rs", "log_level", "ondemand/base.rs::immediate_keys_take_effect_at_once"),
    owner("LOG_FORMAT", "config/change.rs", "log_format", "lifecycle/environment.rs::log_format_selects_the_form_of_messages"),
    owner("VERBOSE_LOG_LEVEL", "config/change.rs", "log_level", "ondemand/base.rs::verbose_messages_follow_the_modules_in_the_file"),
    owner("VERBOSE_LOG_MODULES", "config/change.rs", "verbose_log_modules", "ondemand/base.rs::verbose_messages_follow_the_modules_in_the_file"),
    owner("ACTIVITIES_MAX_GPU_BUFFER_SIZE_MB", "crates/kineto-devices/src/cupti/start.rs", "buffer_bytes", "cuda/collector.rs::memory_is_bounded_and_losses_are_counted"),
    owner("ACTIVITIES_DISPLAY_CUDA_SYNC_WAIT_EVENTS", "trace/mod.rs", "wait_events", "cuda/processes.rs::stream_waits_can_be_disabled"),
    owner("CUPTI_PER_THREAD_BUFFER_ENABLED", "crates/kineto-devices/src/cupti/start.rs", "CUPTI_PER_THREAD_BUFFER_ENABLED", ASKED),
    owner("CUPTI_EXCLUSIVE", "crates/kineto-devices/src/cupti/start.rs", "CUPTI_EXCLUSIVE", "cuda/sharing.rs::first_of_two_profilers_excludes_the_other"),
    owner("CUPTI_ALL_FIELDS", "crates/kineto-devices/src/cupti/start.rs", "CUPTI_ALL_FIELDS", "cuda/sharing.rs::selected_fields_give_the_same_records"),
    owner("CUPTI_HARDWARE_TIMES", "crates/kineto-devices/src/cupti/start.rs", "CUPTI_HARDWARE_TIMES", "cuda/sharing.rs::hardware_times_are_noted_where_they_are_refused"),
    owner("CUDA_GRAPH_TRACE", "crates/kineto-devices/src/cupti/start.rs", "CUDA_GRAPH_TRACE", "cuda/sessions.rs::graph_can_be_one_row"),
    owner("CUDA_PROFILER_RANGE", "session/recording/mod.rs", "profiler_range", "cuda/pauses.rs::nothing_is_recorded_outside_of_profiler_ranges"),
    owner("NVTX_RANGES", "crates/kineto-devices/src/cupti/start.rs", "NVTX_RANGES", "cuda/nvtx_ranges.rs::nvtx_ranges_are_absent_by_default"),
    owner("DEVICE_TELEMETRY_HZ", "crates/kineto-devices/src/telemetry/mod.rs", "DEVICE_TELEMETRY_HZ", "cuda/telemetry.rs::key_samples_by_the_environment"),
    owner("DISABLE_CUPTI", "crates/kineto-devices/src/vendor.rs", "DISABLE_CUPTI", "cuda/processes.rs::cupti_can_be_disabled"),
    owner("TEARDOWN_CUPTI", "crates/kineto-devices/src/cupti/start.rs", "TEARDOWN_CUPTI", "cuda/processes.rs::libcupti_can_be_released_after_each_recording"),
    owner("KINETO_CUPTI_PATH", "crates/kineto-devices/src/cupti/search.rs", "KINETO_CUPTI_PATH", "crates/kineto-cli/tests/doctor.rs::library_newer_than_the_driver_must_be_named"),
    owner("DISABLE_ROCM", "crates/kineto-devices/src/vendor.rs", "DISABLE_ROCM", "rocm/recording.rs::rocm_can_be_disabled"),
    owner("ROCTRACER_MAX_EVENTS", "crates/kineto-devices/src/rocm/mod.rs", "ROCTRACER_MAX_EVENTS", "rocm/either.rs::rows_are_limited_by_the_key"),
    owner("KINETO_ROCPROFILER_PATH", "crates/kineto-devices/src/rocm/sdk/mod.rs", "KINETO_ROCPROFILER_PATH", "crates/kineto-devices/src/rocm/search.rs::search_tries_places_in_order"),
    owner("KINETO_ROCTRACER_PATH", "crates/kineto-devices/src/rocm/tracer/start.rs", "KINETO_ROCTRACER_PATH", "crates/kineto-devices/src/rocm/search.rs::search_tries_places_in_order"),
    owner("DISABLE_XPU", "crates/kineto-devices/src/vendor.rs", "DISABLE_XPU", "xpu/versions.rs::xpu_can_be_disabled"),
    owner("KINETO_PTI_PATH", "crates/kineto-devices/src/xpu/search.rs", "KINETO_PTI_PATH", "crates/kineto-devices/src/xpu/search.rs::search_tries_places_in_order"),
    owner("XPUPTI_PROFILER_METRICS", "crates/kineto-devices/src/xpu/scope.rs", "XPUPTI_PROFILER_METRICS", "xpu/recording.rs::metrics_of_kernels_are_rows_and_counters"),
    owner("XPUPTI_PROFILER_ENABLE_PER_KERNEL", "crates/kineto-devices/src/xpu/scope.rs", "XPUPTI_PROFILER_ENABLE_PER_KERNEL", ASKED),
    owner("XPUPTI_PROFILER_MAX_SCOPES", "crates/kineto-devices/src/xpu/scope.rs", "XPUPTI_PROFILER_MAX_SCOPES", ASKED),
    owner("XPUPTI_PROFILER_DEVICES", "crates/kineto-devices/src/xpu/scope.rs", "XPUPTI_PROFILER_DEVICES", ASKED),
    owner("KINETO_PLUGIN_LIB_DIR_PATH", "builder/devices.rs", "plugin_folder", "accelerators/plugins.rs::file_that_is_not_a_plugin_is_named_with_the_reason"),
    owner("DISABLE_PLUGINS", "builder/devices.rs", "plugins", "crates/kineto-cli/tests/doctor.rs::plugins_are_listed_with_types_or_reasons"),
    owner("PROFILE_PROFILE_MEMORY", "session/observer.rs", "profile_memory", "ondemand/traces.rs::request_records_a_memory_profile"),
    owner("PROFILE_WITH_STACK", "builder/mod.rs", "with_stack", "spans/stacks_and_counters.rs::slice_has_the_stack_of_its_enter"),
    owner("PYTHON_STACK_TRACE", "builder/mod.rs", "with_stack", "src/config/keys.rs::torch_and_libkineto_key_set_with_stack"),
    owner("STACK_FRAMES", "builder/mod.rs", "stack_frames", "spans/stacks_and_counters.rs::stack_depth_is_limited_by_the_option"),
    owner("STACK_FILTER", "builder/mod.rs", "stack_filter", "spans/stacks_and_counters.rs::stack_filter_selects_spans"),
    owner("PERFORMANCE_EVENTS", "builder/mod.rs", "performance_events", "spans/stacks_and_counters.rs::slice_counts_include_nested_slices"),
    owner("PROFILE_DEVICE_MEMORY", "crates/kineto-devices/src/cupti/start.rs", "device_memory", "cuda/memory.rs::allocations_are_in_the_trace_with_each_version"),
    owner("ACTIVITIES_ENABLED", "ondemand/request.rs", "is_enabled", "src/ondemand/request.rs::every_number_has_bounds"),
    owner("ACTIVITIES_DURATION_SECS", "ondemand/request.rs", "duration", "src/ondemand/request.rs::every_number_has_bounds"),
    owner("ACTIVITIES_DURATION_MSECS", "ondemand/request.rs", "duration", "ondemand/traces.rs::request_records_for_a_duration"),
    owner("ACTIVITIES_ITERATIONS", "ondemand/request.rs", "iterations", "ondemand/traces.rs::request_records_iterations"),
    owner("ACTIVITIES_WARMUP_PERIOD_SECS", "ondemand/request.rs", "warmup", "src/ondemand/request.rs::warmup_is_read_in_seconds_or_iterations"),
    owner("ACTIVITIES_WARMUP_ITERATIONS", "ondemand/request.rs", "warmup_iterations", "src/ondemand/request.rs::warmup_is_read_in_seconds_or_iterations"),
    owner("CUPTI_PM_SAMPLING_METRICS", "crates/kineto-devices/src/cupti/pm/settings.rs", "CUPTI_PM_SAMPLING_METRICS", "cuda/pm_sampling.rs::planted_samples_of_two_devices_come_back"),
    owner("CUPTI_PM_SAMPLING_DEVICE_ID", "crates/kineto-devices/src/cupti/pm/settings.rs", "CUPTI_PM_SAMPLING_DEVICE_ID", "cuda/pm_sampling.rs::builder_selects_metrics_devices_and_interval"),
    owner("CUPTI_PM_SAMPLING_INTERVAL_US", "crates/kineto-devices/src/cupti/pm/settings.rs", "CUPTI_PM_SAMPLING_INTERVAL_US", "cuda/pm_sampling.rs::builder_selects_metrics_devices_and_interval"),
    owner("CUPTI_PROFILER_METRICS", "crates/kineto-devices/src/cupti/range/settings.rs", "CUPTI_PROFILER_METRICS", "cuda/range_metrics.rs::each_launch_has_a_row_with_planted_values"),
    owner("CUPTI_PROFILER_ENABLE_PER_KERNEL", "crates/kineto-devices/src/cupti/range/settings.rs", "CUPTI_PROFILER_ENABLE_PER_KERNEL", "cuda/annotation_metrics.rs::each_annotation_has_a_row_with_planted_values"),
    owner("CUPTI_PROFILER_MAX_RANGES", "crates/kineto-devices/src/cupti/range/settings.rs", "CUPTI_PROFILER_MAX_RANGES", "cuda/range_metrics.rs::limit_leaves_later_launches_unmeasured"),
    owner("PROFILE_MEMORY", "ondemand/request.rs", "memory_profile", "ondemand/traces.rs::request_records_a_memory_profile"),
    owner("PROFILE_MEMORY_DURATION_MSECS", "ondemand/request.rs", "memory_profile", "src/config/sources/request.rs::memory_profile_has_its_own_duration"),
    owner("CLIENT_INTERFACE_ENABLE_OP_INPUTS_COLLECTION", "session/observer.rs", "RecordingFlags", "sessions/session_observers.rs::prepared_flags_match_torchs_keys_in_the_header"),
    owner("PROFILE_REPORT_INPUT_SHAPES", "session/observer.rs", "RecordingFlags", "sessions/session_observers.rs::prepared_flags_match_torchs_keys_in_the_header"),
    owner("PROFILE_WITH_FLOPS", "session/observer.rs", "RecordingFlags", "sessions/session_observers.rs::prepared_flags_match_torchs_keys_in_the_header"),
    owner("PROFILE_START_TIME", "ondemand/request.rs", "start", "src/ondemand/machine/tests.rs::warmup_precedes_the_start_time_or_is_shortened"),
    owner("PROFILE_START_ITERATION", "ondemand/request.rs", "start_iteration", "src/ondemand/request.rs::iterations_need_a_start_iteration"),
    owner("PROFILE_START_ITERATION_ROUNDUP", "ondemand/request.rs", "roundup", "ondemand/traces.rs::request_records_iterations"),
    owner("ENABLE_IPC_FABRIC", "ondemand/dynolog/mod.rs", "polls_daemon", "ondemand/base.rs::client_stops_and_starts_by_the_file"),
    owner("ON_DEMAND_CONFIG_UPDATE_INTERVAL_SECS", "ondemand/dynolog/mod.rs", "poll_interval", "ondemand/base.rs::immediate_keys_take_effect_at_once"),
    owner("CUSTOM_CONFIG", "session/recording/collectors.rs", "custom_config", ASKED),
    owner("KINETO_USE_DAEMON", "ondemand/mod.rs", "needs_daemon_client", "ondemand/ends.rs::no_thread_is_started_without_the_variable"),
    owner("KINETO_ONDEMAND_TRACE_DIR", "ondemand/request.rs", "trace_folder", "ondemand/hostile.rs::paths_that_lead_elsewhere_are_refused"),
    owner("KINETO_ONDEMAND_MAX_DURATION_SECS", "ondemand/request.rs", "max_duration", "ondemand/ahead.rs::bounds_follow_the_configuration"),
    owner("KINETO_ONDEMAND_MAX_AHEAD_SECS", "ondemand/request.rs", "max_start_delay", "ondemand/ahead.rs::bounds_follow_the_configuration"),
    owner("CANCEL", "ondemand/trigger.rs", "is_cancel", "ondemand/ahead.rs::cancel_takes_back_queued_and_running_requests"),
    owner("KINETO_ONDEMAND_FILES", "session/retention.rs", "files_max", "ondemand/files.rs::oldest_files_of_requests_are_removed"),
    owner("KINETO_ONDEMAND_FILES_AGE", "session/retention.rs", "age_max", "src/ondemand/place.rs::oldest_requests_are_removed_beyond_the_limits"),
    owner("KINETO_ONDEMAND_FILES_MB", "session/retention.rs", "bytes_max", "src/ondemand/place.rs::oldest_requests_are_removed_beyond_the_limits"),
    owner("KINETO_TRACE_FILE_MODE", "ondemand/place.rs", "file_mode", "ondemand/files.rs::files_of_requests_are_private"),
    owner("KINETO_IPC_SOCKET_DIR", "ondemand/dynolog/mod.rs", "socket_folder", "ondemand/traces.rs::abstract_socket_serves_requests"),
    owner("KINETO_DAEMON_UID", "ondemand/dynolog/mod.rs", "trusted_uid", "src/ondemand/dynolog/fabric.rs::only_trusted_users_are_accepted"),
    owner("KINETO_TRIGGER_DIR", "ondemand/mod.rs", "trigger_folder", "ondemand/trigger.rs::empty_file_is_a_request"),
    owner("START_DELAY_MS", "ondemand/alarm.rs", "delay", "ondemand/timetable.rs::everything_is_recorded_after_the_start_delay"),
    owner("START_PERIOD_MS", "ondemand/alarm.rs", "is_numbered", "ondemand/timetable.rs::windows_have_numbered_files_and_start_by_the_period"),
    owner("START_WINDOWS", "ondemand/alarm.rs", "is_numbered", "ondemand/timetable.rs::windows_continue_without_a_count"),
    owner("SLURM_JOB_ID", "ondemand/dynolog/mod.rs", "slurm_job_id", "ondemand/daemons.rs::polls_have_the_daemons_format"),
];

/// The keys in the table of switches: rows that name one switch and say what its values are.
pub(crate) fn keys_of(table: &str) -> BTreeSet<String> {
    let cells = table.lines().filter_map(|line| line.strip_prefix("| `")).filter_map(|row| row.split_once("` | "));
    let keys = cells.filter(|(_, rest)| rest.split(" | ").nth(1).is_some_and(|value| !value.trim().is_empty()));
    keys.map(|(key, _)| key.to_owned()).collect()
}

/// What is wrong with a list of owners for these keys.
pub(crate) fn unowned(keys: &BTreeSet<String>, owners: &[Owner]) -> Vec<String> {
    let owned: BTreeSet<_> = owners.iter().map(|owner| owner.key.to_owned()).collect();
    let without = keys.difference(&owned).map(|key| format!("{key} has no owner"));
    let gone = owned.difference(keys).map(|key| format!("{key} has an owner, and is no key"));
    let twice = (owned.len() != owners.len()).then(|| "a key has two owners".to_owned());
    without.chain(gone).chain(twice).collect()
}

/// Returns the faults of an owner: a reader of keys acts on none, and another file must name the key's value. Keys of collectors
/// are options: their names are literals in the collector, and the configuration passes them on.
pub(crate) fn faults(owner: &Owner, sources: &[Source]) -> Vec<String> {
    let Owner { key, file, name, .. } = owner;
    if key == name {
        let is_read = sources.iter().any(|source| source.file == *file && source.quotes(key));
        return (!is_read).then(|| format!("src/{file} does not read the option {key}")).into_iter().collect();
    }
    let says = |source: &Source| source.names(name);
    let acts = sources.iter().any(|source| source.file == *file && says(source)) && !READERS.contains(file);
    let is_read = sources.iter().any(|source| source.top_module() == "config" && says(source));
    let nobody = (!acts).then(|| format!("src/{file} does not act on `{name}`, the value of {key}"));
    let unread = (!is_read).then(|| format!("the configuration has no `{name}` for {key}"));
    nobody.into_iter().chain(unread).collect()
}
