//! `from_env()`: from the variables to the file.

use super::play::{play_with, report, work};
use super::{Scenario, Test};
use std::path::Path;
use tracing_kineto::{Error, KinetoGuard, KinetoLayer};
use tracing_subscriber::prelude::*;

pub(crate) const SCENARIOS: &[Scenario] = &[
    ("from_env", |folder| record_by_env(folder, KinetoLayer::from_env())),
    ("from_env_twice", |folder| {
        let made = || KinetoLayer::from_env().unwrap();
        let ((first, _one), (second, _two), (_third, _three)) = (made(), made(), made());
        tracing_subscriber::registry().with(first).with(second).init();
        work();
        report(folder, "on");
    }),
    ("try_from_env", |folder| record_by_env(folder, KinetoLayer::try_from_env())),
];

pub(crate) const TESTS: &[Test] = &[
    ("empty_environment_makes_no_layer_and_no_thread", || {
        for env in [&[][..], &[("KINETO_ENABLED", "0"), ("KINETO_ACTIVITIES_LOG_FILE", "{}/x.json")]] {
            let played = play_with("from_env", env).succeeded();
            assert_eq!(played.report(), "off, threads: 1\n");
            assert_eq!((played.files(), played.stderr.as_str()), (vec!["report".to_owned()], ""));
        }
    }),
    // Shows the key ACTIVITIES_LOG_FILE.
    ("log_file_variable_enables_a_layer_and_gets_the_pid", || {
        let played = play_with("from_env", &[("KINETO_ACTIVITIES_LOG_FILE", "{}/env.pt.trace.json")]).succeeded();
        let name = format!("env_{}.pt.trace.json", played.pid);
        assert_eq!(played.files(), [name.as_str(), "report"]);
        assert!(played.report().starts_with("on"));
        assert_eq!(played.file(&name).slices("work"), 1);
    }),
    ("second_layer_writes_a_separate_file", || {
        // No name equals one of the first layer's cycles, such as x_<pid>.2.json.
        for (output, second) in [("x.json", "x_2_{pid}.json"), ("x_{pid}.json", "x_{pid}_2.json"), ("{pid}", "{pid}_2")]
        {
            let first = if output == "x.json" { "x_{pid}.json" } else { output };
            let output = format!("{{}}/{output}");
            let played = play_with("from_env_twice", &[("KINETO_ACTIVITIES_LOG_FILE", &output)]).succeeded();
            let names = [first, second].map(|name| name.replace("{pid}", &played.pid.to_string()));
            let mut expected = vec!["report".to_owned()];
            expected.extend(names.clone());
            expected.sort();
            assert_eq!(played.files(), expected);
            assert!(names.iter().all(|name| played.file(name).slices("work") == 1));
            assert_eq!(played.stderr.matches("belongs to another layer").count(), 2, "{}", played.stderr);
        }
    }),
    ("settings_that_change_nothing_are_reported", || {
        for (name, value) in [("KINETO_FILTER", "app=info"), ("KINETO_GZIP_LEVEL", "3"), ("KINETO_WITH_ARGS", "false")]
        {
            let played = play_with("from_env", &[(name, value)]).succeeded();
            assert_eq!(played.report(), "off, threads: 1\n");
            let expected = format!("{name} is set, but nothing is recorded; set KINETO_ENABLED=1 as well");
            let found = (played.stderr.lines().count(), played.stderr.contains(&expected));
            assert_eq!(found, (1, true), "{}", played.stderr);
        }
        for env in [
            &[("KINETO_FILTER", "app=info"), ("KINETO_ENABLED", "0")][..],
            &[("KINETO_LOG_LEVEL", "0"), ("KINETO_DISABLE_CUPTI", "1"), ("KINETO_CUPTI_PATH", "/opt")],
            &[("KINETO_IPC_SOCKET_DIR", "/run"), ("KINETO_FILTER", "")],
        ] {
            assert_eq!(play_with("from_env", env).succeeded().stderr, "", "{env:?}");
        }
    }),
    ("number_with_a_unit_is_reported_with_a_fix", || {
        for (name, value, advice) in [
            (
                "KINETO_ACTIVITIES_DURATION_MSECS",
                "5s",
                "write 5000 for 5s; it is ignored (default: to the program's end",
            ),
            ("KINETO_ACTIVITIES_DURATION_SECS", "2 min", "write 120 for 2 min"),
            ("KINETO_START_DELAY_MS", "1.5s", "write 1500 for 1.5s"),
            ("KINETO_BUFFER_LIMIT_MB", "2GB", "write 2048 for 2GB"),
            ("KINETO_FLUSH_TIMEOUT_MSECS", "250 ms", "write 250 for 250 ms; it is ignored (default: 5000)"),
        ] {
            let env = [("KINETO_ACTIVITIES_LOG_FILE", "{}/x.json"), (name, value)];
            let played = play_with("from_env", &env).succeeded();
            assert!(played.stderr.contains(advice), "{}", played.stderr);
        }
    }),
    // Shows the key KINETO_CONFIG.
    ("configuration_file_enables_a_layer", || {
        let config = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/programs/lifecycle/kineto.conf");
        let env = [
            ("KINETO_CONFIG", config),
            ("KINETO_ACTIVITIES_LOG_FILE", "{}/c.json"),
            ("RANK", "3"),
            ("WORLD_SIZE", "4"),
        ];
        let played = play_with("from_env", &env).succeeded();
        let file = played.file(&format!("c_{}.json", played.pid));
        assert_eq!((file.slices("work"), file.json["distributedInfo"]["rank"].as_u64()), (0, Some(3)));
    }),
    // Shows the key FILTER.
    ("filter_and_job_reach_the_file", || {
        let env = [
            ("KINETO_ENABLED", "1"),
            ("KINETO_ACTIVITIES_LOG_FILE", "{}/f.json"),
            ("KINETO_FILTER", "annotated=info"),
            ("PT_PROFILER_JOB_NAME", "job \"1\""),
        ];
        let played = play_with("from_env", &env).succeeded();
        let file = played.file(&format!("f_{}.json", played.pid));
        assert_eq!((file.slices("work"), file.json["PT_PROFILER_JOB_NAME"].as_str()), (0, Some("job \"1\"")));
    }),
    ("env_fault_warns_and_records_unless_strict", || {
        for (name, value) in [
            ("KINETO_ENABLED", "maybe"),
            ("KINETO_FILTER", "app=loud"),
            ("KINETO_ACTIVITY_TYPES", "cpu_op,nothing_of_the_kind"),
            ("KINETO_GZIP_LEVEL", "twelve"),
            ("KINETO_OVERFLOW", "keep_oldest"),
            ("KINETO_PERFORMANCE_EVENTS", "nothing-of-the-kind"),
        ] {
            let env = [("KINETO_ACTIVITIES_LOG_FILE", "{}/x.json"), ("KINETO_TYPO", "1"), (name, value)];
            let played = play_with("from_env", &env).succeeded();
            let what = if name == "KINETO_ACTIVITY_TYPES" { "nothing_of_the_kind" } else { value };
            let found = played.stderr.lines().filter(|line| line.contains(what)).count();
            assert_eq!(found, 1, "{name}: {}", played.stderr);
            assert_eq!(played.stderr.matches("unknown variable KINETO_TYPO").count(), 1, "{name}: {}", played.stderr);
            assert_eq!(played.file(&format!("x_{}.json", played.pid)).slices("work"), 1, "{name}");
            let played = play_with("try_from_env", &env).succeeded();
            let report = played.report();
            assert!(report.starts_with("error: ") && report.contains(what), "{name}: {report}");
            assert_eq!(played.files(), ["report"], "{name}");
        }
    }),
    ("unusable_env_path_falls_back_to_the_default", || {
        for (path, why) in [("{}/missing/x.json", "create the folder"), ("{}/x.zip", "is not supported")] {
            let env = [("KINETO_ACTIVITIES_LOG_FILE", path)];
            let played = play_with("from_env", &env).succeeded();
            let default = format!("/tmp/libkineto_activities_{}.json", played.pid);
            assert!(played.stderr.contains(why), "{}", played.stderr);
            assert!(played.stderr.contains(&format!("traces go to {default}")), "{}", played.stderr);
            let file = super::play::File::read(default.as_ref());
            std::fs::remove_file(&default).unwrap();
            assert_eq!(file.slices("work"), 1);
            let played = play_with("try_from_env", &env).succeeded();
            assert!(played.report().contains(why), "{}", played.report());
        }
    }),
    ("env_path_with_an_unknown_extension_gets_json_and_the_pid", || {
        for (path, name) in [("{}/x.txt", "x_PID.txt"), ("{}/x", "x_PID")] {
            for scenario in ["from_env", "try_from_env"] {
                let played = play_with(scenario, &[("KINETO_ACTIVITIES_LOG_FILE", path)]).succeeded();
                let name = name.replace("PID", &played.pid.to_string());
                assert_eq!(played.file(&name).slices("work"), 1, "{path}");
                assert_eq!(played.stderr.matches("has an unknown extension").count(), 1, "{}", played.stderr);
            }
        }
    }),
    ("unusable_named_config_file_is_an_error", || {
        let played = play_with("from_env", &[("KINETO_CONFIG", "/nowhere/kineto.conf")]).succeeded();
        assert!(played.report().starts_with("error: ") && played.report().contains("KINETO_CONFIG"));
    }),
    ("misspelt_variables_are_reported_when_disabled", || {
        for (variable, meant) in [("KINETO_ENABLE", "KINETO_ENABLED"), ("KINETO_ACTIVITES", "KINETO_ACTIVITIES")] {
            let played = play_with("from_env", &[(variable, "1")]).succeeded();
            assert_eq!(played.report(), "off, threads: 1\n");
            let expected = format!("unknown variable {variable}; did you mean {meant}?");
            assert_eq!(
                (played.stderr.lines().count(), played.stderr.matches(&expected).count()),
                (1, 1),
                "{}",
                played.stderr
            );
        }
    }),
    ("sampling_without_metrics_is_reported", || {
        for key in ["KINETO_CUPTI_PM_SAMPLING_INTERVAL_US", "KINETO_CUPTI_PM_SAMPLING_DEVICE_ID"] {
            let env = [("KINETO_ACTIVITIES_LOG_FILE", "{}/x.json"), (key, "1")];
            let output = play_with("from_env", &env).succeeded().stderr;
            let expected = if cfg!(feature = "metrics") {
                "CUPTI_PM_SAMPLING_DEVICE_ID and CUPTI_PM_SAMPLING_INTERVAL_US have no effect without metrics"
            } else {
                "needs tracing-kineto's feature `metrics`, which is off; it is ignored"
            };
            assert_eq!(output.matches(expected).count(), 1, "{key}: {output}");
        }
    }),
    ("written_file_is_reported_in_one_line_unless_silenced", || {
        let played = play_with("from_env", &[("KINETO_ACTIVITIES_LOG_FILE", "{}/x.json")]).succeeded();
        let lines: Vec<_> = played.stderr.lines().collect();
        assert!(lines.len() == 1 && lines[0].ends_with(&format!("/x_{}.json: 2 slices", played.pid)), "{lines:?}");
        let env = [("KINETO_ACTIVITIES_LOG_FILE", "{}/x.json"), ("KINETO_LOG_LEVEL", "error")];
        let played = play_with("from_env", &env).succeeded();
        assert_eq!((played.stderr.as_str(), played.files().len()), ("", 2));
    }),
    // Shows the key LOG_FORMAT.
    ("log_format_selects_the_form_of_messages", || {
        let output = |format: &str| {
            let env = [("KINETO_ACTIVITIES_LOG_FILE", "{}/x.json"), ("KINETO_LOG_FORMAT", format)];
            play_with("from_env", &env).succeeded().stderr
        };
        assert!(output("text").contains("Z  INFO tracing-kineto: wrote /"));
        assert!(output("libkineto").starts_with("STAGE:"));
        let json: serde_json::Value = serde_json::from_str(&output("json")).unwrap();
        assert!(json["message"].as_str().is_some_and(|text| text.starts_with("wrote /")), "{json}");
    }),
    ("log_level_silences_messages", || {
        let quiet = [
            ("KINETO_ACTIVITIES_LOG_FILE", "{}/x.json"),
            ("KINETO_FILTER", "no_target=info"),
            ("KINETO_LOG_LEVEL", "3"),
        ];
        assert_eq!(play_with("from_env", &quiet).succeeded().stderr, "");
    }),
];

fn record_by_env(folder: &Path, made: Result<(Option<KinetoLayer>, KinetoGuard), Error>) {
    let (layer, _guard) = match made {
        Ok(made) => made,
        Err(error) => return report(folder, &format!("error: {error}")),
    };
    let threads = std::fs::read_dir("/proc/self/task").map_or(1, Iterator::count);
    report(folder, &format!("{}, threads: {threads}", if layer.is_some() { "on" } else { "off" }));
    tracing_subscriber::registry().with(layer).init();
    work();
    tracing::info_span!(target: "annotated", "annotated", kineto.kind = "user_annotation").in_scope(|| ());
}
