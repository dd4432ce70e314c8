//! Tests of the table of keys.

use super::*;
use std::collections::BTreeSet;

// Shows the key PYTHON_STACK_TRACE.
#[test]
fn torch_and_libkineto_key_set_with_stack() {
    for key in [Key::WithStack, Key::PythonStackTrace] {
        let mut config = Config::default();
        key.apply(&Value::Bool(true), &mut config);
        assert!(config.flags.with_stack, "{key:?}");
    }
}

#[test]
fn defaults_can_be_parsed() {
    for key in Key::ALL {
        if let Literal(text) = key.spec().default {
            let value = key.spec().kind.parse(text);
            assert_eq!(value.map(|value| value.to_string()).as_deref(), Ok(text), "{key:?}");
        }
    }
}

#[test]
fn names_and_variables_are_unique() {
    let names: BTreeSet<_> = Key::ALL.iter().map(|key| key.spec().name).collect();
    let variables: BTreeSet<_> = Key::ALL.iter().map(|key| key.env_variable()).collect();
    assert_eq!((names.len(), variables.len()), (Key::ALL.len(), Key::ALL.len()));
    assert!(!names.iter().any(|name| is_removed(name)));
    assert_eq!(Key::LogLevel.env_variable(), "KINETO_LOG_LEVEL");
    assert_eq!(Key::SlurmJob.env_variable(), "SLURM_JOB_ID");
}

#[test]
fn families_reload_consistently() {
    for key in Key::ALL {
        assert_eq!(key.spec().reload, key.family().spec().reload, "{key:?}");
    }
}

#[test]
fn keys_of_one_vendor_need_its_feature() {
    let needs = |feature: &str| {
        let of = |key: &&Key| key.spec().features.iter().any(|(needed, _)| *needed == feature);
        Key::ALL.iter().filter(of).map(|key| key.spec().name).collect::<Vec<_>>()
    };
    let named = |words: &[&str]| {
        let names = Key::ALL.iter().map(|key| key.spec().name).filter(|name| !name.starts_with("DISABLE_"));
        names.filter(|name| words.iter().any(|word| name.contains(word))).collect::<Vec<_>>()
    };
    assert_eq!(needs("devices"), named(&["MAX_GPU_BUFFER", "SYNC_WAIT", "TELEMETRY"]));
    let metrics = ["CUPTI_PM_SAMPLING", "CUPTI_PROFILER"];
    assert_eq!(needs("metrics"), named(&metrics));
    let mut cuda = named(&["CUPTI", "CUDA", "NVTX", "DEVICE_MEMORY"]);
    cuda.retain(|name| !metrics.iter().any(|word| name.contains(word)));
    // AMD's and plugins' devices also wait for events.
    cuda.retain(|name| *name != Key::CudaSyncWaitEvents.spec().name);
    assert_eq!(needs("cuda"), cuda);
    assert_eq!(needs("rocm"), named(&["ROCTRACER_MAX", "ROCPROFILER"]));
    assert_eq!(needs("roctracer"), named(&["ROCTRACER_PATH"]));
    assert_eq!(needs("xpu"), named(&["XPU", "_PTI_"]));
    assert_eq!(needs("plugins"), named(&["PLUGIN_LIB"]));
    // Keys about times, allowed requesters, and the contents of requests.
    let times = ["START_", "DURATION", "ITERATION", "WARMUP"];
    let sources = ["DAEMON", "ONDEMAND", "ON_DEMAND", "IPC_", "TRIGGER", "TRACE_FILE_MODE"];
    let requests = ["ACTIVITIES_ENABLED", "CANCEL", "PROFILE_MEMORY", "PROFILE_LAST"];
    let mut ondemand = named(&[times.as_slice(), &sources, &requests].concat());
    ondemand.retain(|name| *name != Key::ProfileProfileMemory.spec().name);
    assert_eq!(needs("ondemand"), ondemand);
}

#[test]
fn misspelt_keys_get_a_hint() {
    assert_eq!(unknown_key_hint("activity_types"), "; did you mean ACTIVITY_TYPES?");
    assert_eq!(unknown_key_hint("KINETO_ACTIVITY_TYPES"), "; did you mean ACTIVITY_TYPES?");
    assert_eq!(unknown_key_hint("KINETO_USE_DAEMON"), "; it is read from the environment alone");
    assert_eq!(unknown_key_hint("GZIP_LEVL"), "; did you mean GZIP_LEVEL?");
    assert_eq!(unknown_key_hint("ANYTHING"), "");
}
