//! Recordings configured by the environment, without a daemon or code in the program.

use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use support::CLOCK_VARIABLE;
use support::daemon::Stub;
use support::harness::Test;
use support::program::{Program, TestFolders, Trace};

pub(crate) const TESTS: &[Test] = &[
    ("everything_is_recorded_after_the_start_delay", everything_is_recorded_after_the_start_delay),
    ("duration_records_from_the_start_of_the_program", duration_records_from_the_start_of_the_program),
    ("windows_have_numbered_files_and_start_by_the_period", windows_have_numbered_files_and_start_by_the_period),
    ("windows_continue_without_a_count", windows_continue_without_a_count),
    ("panicking_sink_loses_one_window", panicking_sink_loses_one_window),
    ("windows_can_be_set_by_the_configuration_file", windows_can_be_set_by_the_configuration_file),
    ("window_waits_for_its_start_iteration", window_waits_for_its_start_iteration),
    ("window_is_written_when_the_program_ends_in_it", window_is_written_when_the_program_ends_in_it),
    ("program_that_ends_before_the_start_reports_it", program_that_ends_before_the_start_reports_it),
    ("programs_recording_goes_before_windows", programs_recording_goes_before_windows),
    ("programs_schedule_goes_before_windows", programs_schedule_goes_before_windows),
    ("windows_and_the_daemon_take_turns", windows_and_the_daemon_take_turns),
    ("contradictory_variables_are_an_error", contradictory_variables_are_an_error),
    ("forked_child_has_no_windows", forked_child_has_no_windows),
    ("program_without_output_writes_libkinetos_file", program_without_output_writes_libkinetos_file),
];

/// Starts a program that only these variables configure to record, into `a.json`, where requests cannot write.
fn start(place: &TestFolders, scenario: &str, env: &[(&str, &str)]) -> Program {
    let (sockets, output) = (place.sockets(), place.trace("a.json"));
    let none = [("KINETO_USE_DAEMON", ""), ("KINETO_CONFIG", "")];
    let paths = [
        ("KINETO_ONDEMAND_TRACE_DIR", sockets.to_str().unwrap()),
        ("KINETO_ACTIVITIES_LOG_FILE", output.to_str().unwrap()),
    ];
    place.start_with(scenario, &[&none[..], &paths, env].concat())
}

/// Returns the file of a program, or of one of its windows.
fn file(place: &TestFolders, program: &Program, window: &str) -> PathBuf {
    place.trace(&format!("a_{}{window}.json", program.pid()))
}

/// Returns nanoseconds since 1970.
fn now() -> i64 {
    i64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos()).unwrap()
}

/// Tolerance in nanoseconds: a start is in whole milliseconds, by a clock that may be adjusted.
const WALL: i64 = 10_000_000;

// Shows the key START_DELAY_MS.
fn everything_is_recorded_after_the_start_delay() {
    let (place, before) = (TestFolders::new(), now());
    let program = start(&place, "works at once", &[("KINETO_START_DELAY_MS", "300")]);
    program.wait_for("recording started (requested by the configuration");
    let path = file(&place, &program, "");
    let (said, _) = program.end();
    assert!(said.contains("everything until the program ends into") && !said.contains("ended early"), "{said}");
    let trace = Trace::wait_for(&path);
    assert!(trace.window().0 >= before + 300_000_000 - WALL, "{} after {before}", trace.window().0);
    assert!(trace.slices("first").is_empty());
    assert_eq!(trace.json["tracing_kineto"]["config"]["from"]["START_DELAY_MS"], "environment");
    assert_eq!(place.traces().len(), 1);
}

fn duration_records_from_the_start_of_the_program() {
    let place = TestFolders::new();
    let program = start(&place, "works at once", &[("KINETO_ACTIVITIES_DURATION_MSECS", "1000")]);
    program.wait_for("written to");
    let trace = Trace::wait_for(&file(&place, &program, ""));
    assert_eq!(trace.slices("first").len(), 1);
    assert!(!trace.slices("work").is_empty());
    println!("of 1000 ms, {} ms", trace.window().1 / 1_000_000);
    assert!(trace.window().1 >= 1_000_000_000 - WALL, "{:?}", trace.window());
    // Later work is in no file.
    let (said, _) = program.end();
    assert!(!said.contains("ended early") && !said.contains("WARNING"), "{said}");
    assert_eq!(place.traces().len(), 1);
}

// Shows the key START_PERIOD_MS.
fn windows_have_numbered_files_and_start_by_the_period() {
    let (place, before) = (TestFolders::new(), now());
    let env = [
        ("KINETO_START_DELAY_MS", "50"),
        ("KINETO_ACTIVITIES_DURATION_MSECS", "100"),
        ("KINETO_START_PERIOD_MS", "400"),
        ("KINETO_START_WINDOWS", "3"),
    ];
    let (clock, file_of_clock) = place.clock();
    let program = start(&place, "works at once", &[&env[..], &[(CLOCK_VARIABLE, &file_of_clock)]].concat());
    let paths = [".1", ".2", ".3"].map(|window| file(&place, &program, window));
    let starts = clock.run(|| paths.each_ref().map(|path| Trace::wait_for(path).window().0 - before - 50_000_000));
    println!("starts, in ms: {:?}", starts.map(|start| start / 1_000_000));
    for (start, planned) in starts.into_iter().zip([0, 400_000_000, 800_000_000]) {
        assert!(start >= planned - WALL, "{starts:?}");
    }
    // Long enough for a fourth window.
    clock.advance(Duration::from_millis(500));
    let (said, _) = clock.run(|| program.end());
    assert!(said.contains("triggered by the configuration (window 3): 100ms") && !said.contains("window 4"), "{said}");
    assert_eq!(place.traces().len(), 3);
}

// Shows the key START_WINDOWS.
fn windows_continue_without_a_count() {
    let place = TestFolders::new();
    let env = [("KINETO_ACTIVITIES_DURATION_MSECS", "10"), ("KINETO_START_PERIOD_MS", "50")];
    let program = start(&place, "serve", &env);
    Trace::wait_for(&file(&place, &program, ".1"));
    // On a slow machine, windows that are due while another one waits are refused.
    let window = |name: &String| name.strip_suffix(".json")?.rsplit_once('.')?.1.parse::<u64>().ok();
    program.wait_until(|| place.traces().iter().filter_map(window).max().filter(|last| *last >= 5));
    program.end();
}

fn panicking_sink_loses_one_window() {
    let place = TestFolders::new();
    let env = [
        ("KINETO_ACTIVITIES_DURATION_MSECS", "10"),
        ("KINETO_START_PERIOD_MS", "50"),
        ("KINETO_ACTIVITIES_LOG_FILE", "broken://place/a.json"),
    ];
    let program = start(&place, "has a broken sink", &env);
    program.wait_for_times("the program's writer panicked", 3);
    program.wait_for("window 4");
    program.end();
}

fn windows_can_be_set_by_the_configuration_file() {
    let place = TestFolders::new();
    let config = place.sockets().join("kineto.conf");
    std::fs::write(&config, "START_DELAY_MS=50\nACTIVITIES_DURATION_SECS=1\n").unwrap();
    let env = [("KINETO_CONFIG", config.to_str().unwrap()), ("KINETO_ACTIVITIES_DURATION_MSECS", "20")];
    let program = start(&place, "works at once", &env);
    let trace = Trace::wait_for(&file(&place, &program, ""));
    let from = &trace.json["tracing_kineto"]["config"]["from"];
    assert_eq!((&from["START_DELAY_MS"], &from["ACTIVITIES_DURATION_MSECS"]), (&"file".into(), &"environment".into()));
    program.wait_for("triggered by the configuration: 20ms into");
    program.end();
}

fn window_waits_for_its_start_iteration() {
    let place = TestFolders::new();
    let env = [("KINETO_ACTIVITIES_ITERATIONS", "3"), ("KINETO_PROFILE_START_ITERATION", "5")];
    let program = start(&place, "steps", &env);
    let trace = Trace::wait_for(&file(&place, &program, ""));
    let numbers: Vec<_> = trace.slices("iteration").iter().map(|row| row["args"]["n"].as_u64().unwrap()).collect();
    assert_eq!(numbers, [5, 6, 7]);
    program.end();
    // Does not, if the program counts no iterations.
    let program = start(&place, "serve", &env);
    program.wait_for("triggered by the configuration: 3 iterations into");
    let (said, _) = program.end();
    assert!(said.contains("the request by the configuration was cancelled: the program ends"), "{said}");
    assert_eq!(place.traces().len(), 1);
}

fn window_is_written_when_the_program_ends_in_it() {
    let place = TestFolders::new();
    for scenario in ["works at once", "exits"] {
        let program = start(&place, scenario, &[("KINETO_ACTIVITIES_DURATION_SECS", "600")]);
        program.wait_for("recording started");
        let path = file(&place, &program, "");
        let (said, _) = program.end();
        assert!(said.contains("(ended early: the program ends)"), "{said}");
        assert!(!Trace::wait_for(&path).slices("work").is_empty());
    }
    let env = [("KINETO_ACTIVITIES_DURATION_SECS", "600")];
    let program = start(&place, "works at once", &env);
    program.wait_for("has worked");
    assert!(std::process::Command::new("kill").arg(program.pid().to_string()).status().unwrap().success());
    assert!(!Trace::wait_for(&file(&place, &program, "")).slices("work").is_empty());
}

fn program_that_ends_before_the_start_reports_it() {
    let place = TestFolders::new();
    let program = start(&place, "idle", &[("KINETO_START_DELAY_MS", "600000")]);
    let (said, _) = program.end();
    assert!(said.contains("nothing was recorded: the program ends within the 600s of START_DELAY_MS"), "{said}");
    // This request has been handed over by then.
    let program = start(&place, "serve", &[("KINETO_START_DELAY_MS", "5900")]);
    program.wait_for("triggered by the configuration");
    let (said, _) = program.end();
    assert!(said.contains("was cancelled: the program ends"), "{said}");
    assert_eq!(place.traces().len(), 0);
}

fn programs_recording_goes_before_windows() {
    let place = TestFolders::new();
    let env = [("KINETO_ACTIVITIES_DURATION_MSECS", "50"), ("KINETO_START_PERIOD_MS", "200")];
    let mut program = start(&place, "commanded", &env);
    program.wait_for("written to");
    program.send("start");
    program.wait_for("was refused: the program is recording itself");
    program.send("stop");
    program.wait_for("done: stop");
    let before = place.traces().len();
    program.wait_until(|| (place.traces().len() > before).then_some(()));
    let (_, out) = program.end();
    assert!(out.contains(" slices of its own"), "{out}");
    // The program's start discards a running window.
    let mut program = start(&place, "commanded", &[("KINETO_ACTIVITIES_DURATION_SECS", "600")]);
    program.wait_for("recording started");
    program.send("start");
    program.wait_for("was cancelled: the program started its own recording");
    program.send("stop");
    program.end();
}

fn programs_schedule_goes_before_windows() {
    let place = TestFolders::new();
    let program = start(&place, "scheduled", &[("KINETO_ACTIVITIES_DURATION_MSECS", "20")]);
    program.wait_for("are ignored: the program records by a schedule; unset them, or remove the schedule");
    let (said, _) = program.end();
    assert!(!said.contains("triggered") && place.traces().is_empty(), "{said}");
}

fn windows_and_the_daemon_take_turns() {
    let place = TestFolders::new();
    let stub = Stub::start(&place.sockets());
    let traces = place.trace("");
    let env = [
        ("KINETO_USE_DAEMON", "1"),
        ("KINETO_ONDEMAND_TRACE_DIR", traces.to_str().unwrap()),
        ("KINETO_ACTIVITIES_DURATION_MSECS", "1000"),
    ];
    let program = start(&place, "works at once", &env);
    let poll = stub.poll();
    // During a window, a request stays with the daemon.
    assert_eq!(poll.wanted(), 0);
    stub.answer(&poll, "");
    // A request has its own defaults and bounds.
    stub.answer(&stub.poll_for_a_trace(), &place.text_for("b.json", ""));
    let request = Trace::wait_for(&place.trace_of(&program, "b.json"));
    let window = Trace::wait_for(&file(&place, &program, ""));
    assert!(request.window().0 >= window.window().0 + window.window().1 - WALL);
    assert_eq!(window.slices("first").len(), 1);
    stub.answer(&stub.poll_for_a_trace(), "ACTIVITIES_DURATION_SECS=3601");
    program.wait_for("the duration must be between 1 ms and 3600s");
    let (said, _) = program.end();
    assert!(said.contains(": 500ms into") && said.contains("triggered by the configuration: 1s"), "{said}");
}

fn contradictory_variables_are_an_error() {
    let place = TestFolders::new();
    for (env, message) in [
        (&[("KINETO_START_PERIOD_MS", "9")][..], "START_PERIOD_MS needs ACTIVITIES_DURATION_MSECS"),
        (&[("KINETO_START_WINDOWS", "9")], "START_WINDOWS needs START_PERIOD_MS"),
        (&[("KINETO_START_WINDOWS", "0")], "`KINETO_START_WINDOWS=0`: expected a whole number from 1 to"),
        (&[("KINETO_START_DELAY_MS", "-1")], "`KINETO_START_DELAY_MS=-1`: expected ms, a whole number from 0"),
        (&[("KINETO_ACTIVITIES_DURATION_SECS", "0")], "a duration of 0"),
        (
            &[("KINETO_START_PERIOD_MS", "9"), ("KINETO_ACTIVITIES_DURATION_MSECS", "10")],
            "is shorter than a window of 10ms",
        ),
        (
            &[
                ("KINETO_ACTIVITIES_ITERATIONS", "1"),
                ("KINETO_PROFILE_START_ITERATION", "1"),
                ("KINETO_START_DELAY_MS", "1"),
            ],
            "remove one of the two groups",
        ),
    ] {
        let (said, _) = start(&place, "fails", env).end();
        assert!(said.contains(message), "{env:?}: {said}");
    }
    // One variable of a pair alone is ignored with a message.
    let program = start(&place, "works at once", &[("KINETO_ACTIVITIES_ITERATIONS", "1")]);
    program.wait_for("ACTIVITIES_ITERATIONS changes nothing without PROFILE_START_ITERATION");
    program.wait_for("has worked");
    let path = file(&place, &program, "");
    program.end();
    assert!(path.is_file());
}

fn forked_child_has_no_windows() {
    let place = TestFolders::new();
    let env = [("KINETO_ACTIVITIES_DURATION_MSECS", "5"), ("KINETO_START_PERIOD_MS", "300")];
    let program = start(&place, "forks", &env);
    program.wait_for("the child has ended with 7");
    for window in [".1", ".2"] {
        Trace::wait_for(&file(&place, &program, window));
    }
    let own = format!("a_{}.", program.pid());
    program.end();
    assert!(place.traces().iter().all(|name| name.starts_with(&own)), "{:?}", place.traces());
}

fn program_without_output_writes_libkinetos_file() {
    let place = TestFolders::new();
    let program = start(&place, "keeps", &[("KINETO_ACTIVITIES_DURATION_MSECS", "20")]);
    let path = PathBuf::from(format!("/tmp/libkineto_activities_{}.json", program.pid()));
    program.wait_for(&format!("written to {}", path.display()));
    std::fs::remove_file(&path).unwrap();
    program.end();
    assert!(place.traces().is_empty());
}
