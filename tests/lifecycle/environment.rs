//! `from_env()`, from the variables to the file.

use crate::play::{play_with, report, work};
use crate::{Scenario, Test};
use std::path::Path;
use tracing_kineto::KinetoLayer;
use tracing_subscriber::prelude::*;

pub(crate) const SCENARIOS: &[Scenario] = &[("from_env", from_env)];

pub(crate) const TESTS: &[Test] = &[
    ("nothing_in_the_environment_means_no_layer_and_no_thread", || {
        for env in [&[][..], &[("KINETO_ENABLED", "0"), ("KINETO_ACTIVITIES_LOG_FILE", "{}/x.json")]] {
            let played = play_with("from_env", env).succeeded();
            assert_eq!(played.report(), "off, threads: 1\n");
            assert_eq!((played.files(), played.stderr.as_str()), (vec!["report".to_owned()], ""));
        }
    }),
    ("a_log_file_switches_it_on_and_gets_the_process_id", || {
        let played = play_with("from_env", &[("KINETO_ACTIVITIES_LOG_FILE", "{}/env.pt.trace.json")]).succeeded();
        let name = format!("env_{}.pt.trace.json", played.pid);
        assert_eq!(played.files(), [name.as_str(), "report"]);
        assert!(played.report().starts_with("on"));
        assert_eq!(played.file(&name).slices("work"), 1);
    }),
    ("a_configuration_file_switches_it_on_too", || {
        let config = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/lifecycle/kineto.conf");
        let env = [
            ("KINETO_CONFIG", config),
            ("KINETO_ACTIVITIES_LOG_FILE", "{}/c.json"),
            ("RANK", "3"),
            ("WORLD_SIZE", "4"),
        ];
        let played = play_with("from_env", &env).succeeded();
        let file = played.file(&format!("c_{}.json", played.pid));
        assert_eq!((file.slices("work"), file.json["distributedInfo"]["rank"].as_u64()), (0, Some(3)));
        assert!(
            played.stderr.contains("left out by its filter, or by the selected activity types or scopes"),
            "{}",
            played.stderr
        );
    }),
    ("the_filter_and_the_job_reach_the_file", || {
        let env = [
            ("KINETO_ENABLED", "1"),
            ("KINETO_ACTIVITIES_LOG_FILE", "{}/f.json"),
            ("KINETO_FILTER", "nobody=info"),
            ("PT_PROFILER_JOB_NAME", "job \"1\""),
        ];
        let played = play_with("from_env", &env).succeeded();
        let file = played.file(&format!("f_{}.json", played.pid));
        assert_eq!((file.slices("work"), file.json["PT_PROFILER_JOB_NAME"].as_str()), (0, Some("job \"1\"")));
    }),
    ("a_value_that_cannot_be_used_is_an_error_that_names_its_variable", || {
        for (name, value) in [
            ("KINETO_ENABLED", "maybe"),
            ("KINETO_ACTIVITY_TYPES", "cpu_op,nothing_of_the_kind"),
            ("KINETO_GZIP_LEVEL", "12"),
            ("KINETO_CONFIG", "/nowhere/kineto.conf"),
        ] {
            let env = [("KINETO_ACTIVITIES_LOG_FILE", "{}/x.json"), ("KINETO_TYPO", "1"), (name, value)];
            let played = play_with("from_env", &env).succeeded();
            let report = played.report();
            assert!(report.starts_with("error: ") && report.contains(name), "{name}: {report}");
            // What else is wrong is said all the same, unless there was no need to read any further.
            assert!(name == "KINETO_ENABLED" || played.stderr.contains("unknown variable KINETO_TYPO"), "{name}");
            assert_eq!(played.files(), ["report"], "{name}");
        }
    }),
    ("counters_that_are_not_sampled_are_told", || {
        for key in ["KINETO_CUPTI_PM_SAMPLING_METRICS", "KINETO_CUPTI_PM_SAMPLING_DEVICE_ID"] {
            let env = [("KINETO_ACTIVITIES_LOG_FILE", "{}/x.json"), (key, "0")];
            let said = play_with("from_env", &env).succeeded().stderr;
            let told = "CUPTI_PM_SAMPLING_METRICS and CUPTI_PM_SAMPLING_DEVICE_ID change nothing";
            assert_eq!(said.matches(told).count(), 1, "{key}: {said}");
        }
    }),
    ("the_log_level_silences_messages", || {
        let quiet =
            [("KINETO_ACTIVITIES_LOG_FILE", "{}/x.json"), ("KINETO_FILTER", "nobody=info"), ("KINETO_LOG_LEVEL", "3")];
        assert_eq!(play_with("from_env", &quiet).succeeded().stderr, "");
    }),
];

fn from_env(folder: &Path) {
    let (layer, _guard) = match KinetoLayer::from_env() {
        Ok(made) => made,
        Err(error) => return report(folder, &format!("error: {error}")),
    };
    let threads = std::fs::read_dir("/proc/self/task").map_or(1, Iterator::count);
    report(folder, &format!("{}, threads: {threads}", if layer.is_some() { "on" } else { "off" }));
    tracing_subscriber::registry().with(layer).init();
    work();
}
