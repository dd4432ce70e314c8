//! Files of requests: time, iterations, common starts, names, memory profiles.

use std::os::linux::net::SocketAddrExt;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use support::daemon::{Daemon, Stub, is_available};
use support::harness::Test;
use support::program::{Program, TestFolders, Trace};

pub(crate) const TESTS: &[Test] = &[
    ("request_records_for_a_duration", request_records_for_a_duration),
    #[cfg(feature = "gzip")]
    ("built_layer_serves_requests", built_layer_serves_requests),
    ("result_names_missing_devices_when_types_are_named", result_names_missing_devices_when_types_are_named),
    ("request_records_iterations", request_records_iterations),
    ("iteration_request_records_by_time_without_iterations", iteration_request_records_by_time_without_iterations),
    ("two_processes_start_together", || start_together(2)),
    ("sixteen_processes_start_together", || start_together(16)),
    ("request_records_a_memory_profile", request_records_a_memory_profile),
    ("request_selects_the_contents_of_the_file", request_selects_the_contents_of_the_file),
    ("result_reports_lost_slices_first", result_reports_lost_slices_first),
    ("abstract_socket_serves_requests", abstract_socket_serves_requests),
];

/// Returns dyno's text for a trace of 200 ms.
fn for_a_time(place: &TestFolders, name: &str) -> String {
    place.text_for(
        name,
        "PROFILE_START_TIME=0\nACTIVITIES_DURATION_MSECS=200\nPROFILE_REPORT_INPUT_SHAPES=false\n\
         PROFILE_WITH_STACK=false\nPROFILE_WITH_FLOPS=false\nPROFILE_WITH_MODULES=false",
    )
}

// Shows the keys REQUEST_TRACE_ID, ACTIVITIES_DURATION_MSECS.
fn request_records_for_a_duration() {
    if !is_available() {
        return;
    }
    let place = TestFolders::new();
    let daemon = Daemon::start(&place.sockets(), &[]);
    let program = place.start("serve");
    let answer = daemon.trigger_all(&for_a_time(&place, "a.json"), &[program.pid()]);
    let asked = Instant::now();
    assert_eq!(answer["activityProfilersTriggered"][0], program.pid());
    let trace = Trace::wait_for(&place.trace_of(&program, "a.json"));
    println!("from the trigger to the file: {} ms, of which 200 are recorded", asked.elapsed().as_millis());
    let (_, length) = trace.window();
    // The two times are from different clocks.
    assert!(length >= 190_000_000, "{length}");
    assert!(!trace.slices("work").is_empty());
    let id = trace.json["trace_id"].as_str().unwrap();
    assert!(id.parse::<u64>().is_ok(), "{id}");
    assert_eq!(trace.json["tracing_kineto"]["config"]["from"]["ACTIVITIES_DURATION_MSECS"], serde_json::Value::Null);
    assert_eq!(place.traces().len(), 1);
    program.wait_for("written");
    let (said, _) = program.end();
    for word in
        ["registered with the dynolog daemon", "triggered by dynolog (pid ", "recording started", "written, trace "]
    {
        assert!(said.contains(word), "no {word:?} in {said}");
    }
    assert!(said.contains(id) && !said.contains("WARNING"), "{said}");
    // Its socket has been removed.
    assert_eq!(std::fs::read_dir(place.sockets()).unwrap().count(), 1);
}

#[cfg(feature = "gzip")]
fn built_layer_serves_requests() {
    if !is_available() {
        return;
    }
    let place = TestFolders::new();
    let daemon = Daemon::start(&place.sockets(), &[]);
    let program = place.start("builds");
    for name in ["a.json", "b.json.gz"] {
        daemon.trigger_all(&for_a_time(&place, name), &[program.pid()]);
        let path = place.trace_of(&program, name);
        program.wait_for(&format!("to {}", path.display()));
    }
    program.end();
}

fn result_names_missing_devices_when_types_are_named() {
    let place = TestFolders::new();
    let stub = Stub::start(&place.sockets());
    let program = place.start("builds");
    for (name, more, told) in [("a.json", "", 0), ("b.json", "ACTIVITY_TYPES=cpu_op,kernel", 1), ("c.json", "", 1)] {
        let text = place.text_for(name, &format!("ACTIVITIES_DURATION_MSECS=50\n{more}"));
        stub.answer(&stub.poll_for_a_trace(), &text);
        let path = place.trace_of(&program, name);
        program.wait_for(&format!("written to {}", path.display()));
        // It is disabled.
        assert_eq!(program.stderr().matches("\n  cupti: ").count(), told, "{name}: {}", program.stderr());
        let collectors = &Trace::wait_for(&path).json["tracing_kineto"]["collectors"];
        assert!(collectors["cupti"]["unavailable"].is_string(), "{collectors}");
    }
    program.end();
}

// Shows the keys ACTIVITIES_ITERATIONS, PROFILE_START_ITERATION_ROUNDUP.
fn request_records_iterations() {
    if !is_available() {
        return;
    }
    let place = TestFolders::new();
    let daemon = Daemon::start(&place.sockets(), &[]);
    let program = place.start("steps");
    program.wait_for("counts its iterations");
    let more = "PROFILE_START_ITERATION=0\nPROFILE_START_ITERATION_ROUNDUP=50\nACTIVITIES_ITERATIONS=3";
    daemon.trigger_all(&place.text_for("i.json", more), &[program.pid()]);
    let trace = Trace::wait_for(&place.trace_of(&program, "i.json"));
    let numbers: Vec<_> = trace.slices("iteration").iter().map(|row| row["args"]["n"].as_u64().unwrap()).collect();
    assert!(numbers[0].is_multiple_of(50) && numbers[0] > 0, "{numbers:?}");
    assert_eq!(numbers, [numbers[0], numbers[0] + 1, numbers[0] + 2]);
    let cut = trace.slices("iteration").iter().any(|row| row["args"].get("clipped").is_some());
    assert!(!cut && trace.slices("work").len() == 3);
    program.end();
}

fn iteration_request_records_by_time_without_iterations() {
    if !is_available() {
        return;
    }
    let place = TestFolders::new();
    let daemon = Daemon::start(&place.sockets(), &[]);
    let program = place.start("serve");
    let more = "PROFILE_START_ITERATION=0\nACTIVITIES_ITERATIONS=3\nACTIVITIES_DURATION_MSECS=100";
    daemon.trigger_all(&place.text_for("i.json", more), &[program.pid()]);
    let trace = Trace::wait_for(&place.trace_of(&program, "i.json"));
    assert!(trace.window().1 >= 90_000_000);
    let (said, _) = program.end();
    assert!(said.contains("is traced by time: it asks for iterations, but the program counts none"), "{said}");
}

fn start_together(count: usize) {
    if !is_available() {
        return;
    }
    let place = TestFolders::new();
    let daemon = Daemon::start(&place.sockets(), &[]);
    let env = [("KINETO_ON_DEMAND_CONFIG_UPDATE_INTERVAL_SECS", "1")];
    let programs: Vec<_> = (0..count).map(|_| place.start_with("serve", &env)).collect();
    let pids: Vec<_> = programs.iter().map(Program::pid).collect();
    // Registered, so the next poll is at most some seconds away.
    programs.iter().for_each(|program| program.wait_for("registered"));
    let start = SystemTime::now().duration_since(UNIX_EPOCH).unwrap() + Duration::from_secs(4);
    let start = start.as_millis() as i64;
    let more = format!("PROFILE_START_TIME={start}\nACTIVITIES_DURATION_MSECS=100");
    daemon.trigger_all(&place.text_for("s.json", &more), &pids);
    let (mut starts, mut lengths, mut late) = (Vec::new(), Vec::new(), 0);
    for program in programs {
        let trace = Trace::wait_for(&place.trace_of(&program, "s.json"));
        let (from, length) = (trace.window().0 - start * 1_000_000, trace.window().1);
        program.wait_for("written");
        let (said, _) = program.end();
        // A process that was too late reports it, and records for the full duration from then on.
        let is_late = said.contains("s late");
        // A delay of less than a millisecond is not reported.
        let is_delayed = from > 0 && length > 99_000_000 && (is_late || from < 1_000_000);
        let is_in_time = from.abs() < 1_000_000 && (length - 100_000_000).abs() < 1_000_000;
        assert!(is_delayed || is_in_time, "{from} {length} {said}");
        // Of the spans before the start, only fields are kept.
        let (first, work) = (trace.recording_start(), trace.slices("work"));
        // A span that began before the recording has no fields.
        let is_whole = |row: &serde_json::Value| row["args"]["n"] == 1 || row["args"]["clipped"] == true;
        assert!(work.iter().all(|row| is_whole(row) && row["ts"].as_f64().unwrap() >= first), "{work:?}");
        assert!(work.iter().filter(|row| row["args"].get("clipped").is_some()).count() <= 1, "{work:?}");
        starts.push(from);
        lengths.push(length);
        late += u32::from(is_late);
    }
    let range = |of: &[i64]| [of.iter().min(), of.iter().max()].map(|ns| *ns.unwrap() as f64 / 1e6);
    println!(
        "{count} processes: from {:?} ms behind the requested time, for {:?} ms; {late} report that they are late",
        range(&starts),
        range(&lengths)
    );
    assert_eq!(place.traces().len(), count);
}

// Shows the keys PROFILE_PROFILE_MEMORY, PROFILE_MEMORY.
fn request_records_a_memory_profile() {
    if !is_available() {
        return;
    }
    let place = TestFolders::new();
    let daemon = Daemon::start(&place.sockets(), &[]);
    let program = place.start("allocates");
    let more = "PROFILE_PROFILE_MEMORY=true\nPROFILE_MEMORY=true\nPROFILE_MEMORY_DURATION_MSECS=100";
    daemon.trigger_all(&place.text_for("m.raw.json", more), &[program.pid()]);
    let path = place.trace_of(&program, "m.raw.json");
    let profile = Trace::wait_for(&path).json;
    assert!(!profile.as_array().unwrap().is_empty(), "{profile}");
    // The session is free again, and a trace can include allocations.
    for (name, flag, has_some) in
        [("a.json", "", false), ("b.json", "\nPROFILE_PROFILE_MEMORY=true", true), ("c.json", "", false)]
    {
        daemon.trigger_all(&format!("{}{flag}", for_a_time(&place, name)), &[program.pid()]);
        let trace = Trace::wait_for(&place.trace_of(&program, name));
        assert_eq!(trace.rows().iter().any(|row| row["name"] == "[memory]"), has_some, "{name}");
    }
    program.end();
}

fn request_selects_the_contents_of_the_file() {
    if !is_available() {
        return;
    }
    let place = TestFolders::new();
    let daemon = Daemon::start(&place.sockets(), &[]);
    let env = [("RANK", "3"), ("WORLD_SIZE", "8")];
    let program = place.start_with("serve", &env);
    let more = "ACTIVITIES_DURATION_MSECS=50\nREQUEST_GROUP_TRACE_ID=a \"group\"\nPROFILE_WITH_MODULES=true\n\
                PROFILE_WITH_STACK=true\nACTIVITY_TYPES=cpu_op,kernel";
    daemon.trigger_all(&place.text_for("a.json", more), &[program.pid()]);
    let trace = Trace::wait_for(&place.trace_of(&program, "a.json"));
    assert_eq!((&trace.json["group_trace_id"], &trace.json["with_modules"]), (&"a \"group\"".into(), &1.into()));
    assert_eq!(
        (&trace.json["distributedInfo"]["rank"], &trace.json["distributedInfo"]["world_size"]),
        (&3.into(), &8.into())
    );
    let config = &trace.json["tracing_kineto"]["config"];
    assert_eq!(config["from"]["ACTIVITY_TYPES"], "request");
    assert!(!trace.slices("work").is_empty());
    let more = "ACTIVITIES_DURATION_MSECS=50\nACTIVITY_TYPES=kernel";
    daemon.trigger_all(&place.text_for("k.json", more), &[program.pid()]);
    assert!(Trace::wait_for(&place.trace_of(&program, "k.json")).slices("work").is_empty());
    let (said, _) = program.end();
    assert!(said.contains("PROFILE_WITH_STACK has no effect"), "{said}");
}

// Shows the key KINETO_IPC_SOCKET_DIR.
/// Runs in a separate network namespace, whose abstract socket names other daemons cannot use.
fn abstract_socket_serves_requests() {
    const UNSHARE: [&str; 2] = ["--net", "--map-root-user"];
    let can = std::process::Command::new("unshare").args(UNSHARE).arg("true").output();
    if !can.is_ok_and(|output| output.status.success()) {
        println!("skipped: cannot make a network namespace here");
        return;
    }
    let mut own = std::process::Command::new("unshare");
    own.args(UNSHARE).arg(std::env::current_exe().unwrap()).args(["--play", "abstract"]);
    assert!(own.status().unwrap().success());
}

/// Runs the test inside its network namespace.
pub(crate) fn run_in_network_namespace() {
    let place = TestFolders::new();
    let stub = Stub::start_abstract();
    let program = place.start_with("serve", &[("KINETO_IPC_SOCKET_DIR", "")]);
    let poll = stub.poll_for_a_trace();
    assert!(
        poll.from.as_abstract_name().is_some_and(|name| name.starts_with(b"dynoconfigclient") && name.ends_with(b"\0"))
    );
    stub.answer(&poll, &place.text_for("a.json", "ACTIVITIES_DURATION_MSECS=20"));
    Trace::wait_for(&place.trace_of(&program, "a.json"));
    program.end();
}

fn result_reports_lost_slices_first() {
    let place = TestFolders::new();
    let stub = Stub::start(&place.sockets());
    let program = place.start_with("hurries", &[("KINETO_BUFFER_LIMIT_MB", "1")]);
    program.wait_for("counts its iterations");
    // By iterations, which have more spans than 1 MiB holds on any machine.
    let text = place.text_for("a.json", "ACTIVITIES_ITERATIONS=100\nPROFILE_START_ITERATION=0");
    stub.answer(&stub.poll_for_a_trace(), &text);
    program.wait_for(" slices: ");
    let (said, _) = program.end();
    let end = said.lines().find(|line| line.contains("request ended: ")).unwrap();
    assert!(end.contains("WARN") && end.contains(", without "), "{said}");
}
