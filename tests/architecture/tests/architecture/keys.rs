//! Every key of the configuration has code that uses its value, and a test that shows what it does.

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

/// Returns the rows of the table of keys, as `(name, target)`: the target is what follows `=>`.
pub(crate) fn rows(table: &str) -> Vec<(String, String)> {
    let body = table.split_once("\nkeys! {\n").and_then(|(_, rest)| rest.split_once("\n}\n")).unwrap_or_default().0;
    let rows = body.split(";\n").filter_map(|row| {
        let (spec, target) = row.rsplit_once("=> ")?;
        let name = spec.split('"').nth(1)?;
        Some((name.to_owned(), target.to_owned()))
    });
    rows.collect()
}

/// Returns the methods that the table of settings names, such as `output` and `Dumps::on`.
pub(crate) fn methods(reference: &str) -> impl Iterator<Item = &str> {
    let cells = reference.lines().filter_map(|row| row.strip_prefix("| `")?.split(" | ").nth(1)?.strip_prefix('`'));
    cells.filter_map(|cell| Some(cell.split_once('(')?.0))
}

/// Returns whether these sources have a public method of that name.
pub(crate) fn is_method(name: &str, sources: &str) -> bool {
    let (owner, method) = name.split_once("::").unwrap_or(("KinetoLayerBuilder", name));
    let blocks = sources.split("\nimpl ").filter_map(|block| block.strip_prefix(owner)?.strip_prefix(" {\n"));
    let heads = [format!("    pub fn {method}("), format!("    pub fn {method}<")];
    blocks.filter_map(|block| block.split("\n}\n").next()).any(|block| heads.iter().any(|head| block.contains(head)))
}

/// Returns the names of the keys that tests show, by their comments `// Shows the key NAME.` or `// Shows the keys ONE, TWO.`.
pub(crate) fn shown_keys(text: &str) -> impl Iterator<Item = &str> {
    let lists = text.lines().filter_map(|line| line.trim_start().strip_prefix("// Shows the key")?.strip_suffix('.'));
    lists.flat_map(|list| list.trim_start_matches('s').split(',').map(str::trim))
}

/// Returns why no code uses the value of a key: none outside of the table reads its field, or its option by name.
pub(crate) fn unused(name: &str, target: &str, sources: &[Source]) -> Option<String> {
    let mut others = sources.iter().filter(|source| source.file != "config/keys.rs");
    let target = target.trim_start_matches('(');
    if target.starts_with("nothing") || target.starts_with("in ") {
        return None;
    }
    if target.starts_with("option") {
        let is_read = others.any(|source| source.quotes(name));
        return (!is_read).then(|| format!("no collector reads the option {name}"));
    }
    let path = target.rsplit_once("| config.").map_or(target, |(_, path)| path);
    let path = path.split(|c: char| c != '.' && c != '_' && !c.is_alphanumeric()).next().unwrap_or_default();
    let field = path.rsplit('.').next().unwrap_or_default();
    let is_read = others.any(|source| source.reads_field(field));
    (!is_read).then(|| format!("no code reads `{field}`, the value of {name}"))
}
