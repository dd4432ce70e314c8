//! Tests of the request state machine.

use super::*;
use crate::config::{Config, PlaceholderValues, Timetable};
use crate::ondemand::source::Incoming;
use std::path::PathBuf;
use std::time::{Duration, UNIX_EPOCH};

/// A machine with a simulated clock and iteration counter.
struct Bench {
    machine: RequestMachine,
    moment: ClockReading,
    program: ProgramState,
}

fn bench() -> Bench {
    let moment = ClockReading { now: Instant::now(), wall: SystemTime::now(), iteration: None, begins: false };
    Bench { machine: RequestMachine::default(), moment, program: ProgramState::default() }
}

impl Bench {
    fn admit(&mut self, text: &str) -> Admission {
        self.admit_into(text, None)
    }

    fn admit_into(&mut self, text: &str, output: Option<&str>) -> Admission {
        let output = output.map(PathBuf::from);
        let incoming = Incoming { text: text.to_owned(), by: "a test".to_owned(), output, answer: None };
        let parts =
            PlaceholderValues { pid: 7, time: Some(self.moment.wall), ..Config::default().placeholder_values() };
        let request = Request::from_incoming(&incoming, &Config::default().ondemand, &parts).unwrap();
        self.machine.admit_request(request, &self.moment)
    }

    fn later(&mut self, milliseconds: u64) {
        self.moment.now += Duration::from_millis(milliseconds);
        self.moment.wall += Duration::from_millis(milliseconds);
    }

    fn at(&mut self, iteration: u64) {
        (self.moment.iteration, self.moment.begins) = (Some(iteration), true);
    }

    /// Performs the due actions at once, except for files; returns them as text.
    fn actions(&mut self) -> Vec<String> {
        let Bench { machine, moment, program } = self;
        let action = || machine.advance(moment, program).inspect(|action| confirm(machine, action, moment));
        std::iter::from_fn(action).map(|action| said(&action)).collect()
    }

    fn start_in(&self, milliseconds: i128) -> String {
        let now = self.moment.wall.duration_since(UNIX_EPOCH).unwrap().as_millis();
        format!("PROFILE_START_TIME={}", now.cast_signed() + milliseconds)
    }
}

/// Reports the result of an action.
fn confirm(machine: &mut RequestMachine, action: &RequestAction, moment: &ClockReading) {
    match action {
        RequestAction::Start(job) => assert!(machine.mark_begun(job.id, moment)),
        RequestAction::Cancel(job, _) => machine.mark_ended(job.id),
        _ => {}
    }
}

fn said(action: &RequestAction) -> String {
    match action {
        RequestAction::Prepare(job) => format!("prepare {}", job.id),
        RequestAction::Start(job) => format!("start {}", job.id),
        RequestAction::Stop(job, None) => format!("stop {}", job.id),
        RequestAction::Stop(job, Some(why)) => format!("stop {}: {why}", job.id),
        RequestAction::Cancel(job, why) => format!("cancel {}: {why}", job.id),
        RequestAction::Refuse(_, why) => format!("refuse: {why}"),
        RequestAction::CancelWaiting(_, why) => format!("cancel: {why}"),
    }
}

#[test]
#[cfg_attr(miri, ignore = "asks the operating system")]
fn timed_trace_begins_at_once_and_lasts_its_duration() {
    let mut bench = bench();
    assert!(!bench.machine.is_busy());
    assert_eq!(bench.admit("ACTIVITIES_DURATION_MSECS=700"), Admission::Accepted);
    assert!(bench.machine.is_busy());
    assert_eq!(bench.actions(), ["prepare 1", "start 1"]);
    assert_eq!(bench.machine.next_due_time(&bench.moment), Some(bench.moment.now + Duration::from_millis(700)));
    bench.later(699);
    assert_eq!(bench.actions(), [""; 0]);
    bench.later(1);
    assert_eq!(bench.actions(), ["stop 1"]);
    assert!(
        bench.machine.is_busy() && bench.machine.is_underway() && bench.machine.next_due_time(&bench.moment).is_none()
    );
    bench.machine.mark_ended(2);
    assert!(bench.machine.is_busy());
    bench.machine.mark_ended(1);
    assert!(!bench.machine.is_busy());
}

#[test]
#[cfg_attr(miri, ignore = "asks the operating system")]
fn summary_has_the_state_and_the_waiting_requests() {
    let mut bench = bench();
    let summary = |bench: &Bench| {
        let (state, request, waiting) = bench.machine.state_summary();
        (state, request.is_some(), waiting)
    };
    assert_eq!(summary(&bench), ("idle", false, 0));
    let text = bench.start_in(10_000) + "\nACTIVITIES_DURATION_MSECS=100";
    bench.admit(&text);
    assert_eq!(summary(&bench), ("idle", false, 1));
    bench.later(6_000);
    assert_eq!(bench.actions(), ["prepare 1"]);
    assert_eq!(summary(&bench), ("preparing", true, 0));
    bench.later(4_000);
    assert_eq!(bench.actions(), ["start 1"]);
    assert_eq!(summary(&bench), ("recording", true, 0));
    bench.later(100);
    assert_eq!(bench.actions(), ["stop 1"]);
    assert_eq!(summary(&bench), ("writing", true, 0));
    bench.machine.mark_ended(1);
    assert_eq!(summary(&bench), ("idle", false, 0));
}

// Shows the key PROFILE_START_TIME.
#[test]
#[cfg_attr(miri, ignore = "asks the operating system")]
fn warmup_precedes_the_start_time_or_is_shortened() {
    for (ahead, warm_in) in [(10_000, 5_000), (3_000, 0), (0, 0)] {
        let mut bench = bench();
        let text = bench.start_in(ahead);
        assert_eq!(bench.admit(&text), Admission::Accepted);
        let warm_in = Duration::from_millis(warm_in);
        let due = bench.machine.next_due_time(&bench.moment).unwrap().saturating_duration_since(bench.moment.now);
        // The start time is rounded down to milliseconds.
        assert!(due <= warm_in && warm_in - due <= Duration::from_millis(1), "{ahead}: {due:?}");
        bench.later(u64::try_from(warm_in.as_millis()).unwrap());
        let expected: &[&str] = if ahead == 0 { &["prepare 1", "start 1"] } else { &["prepare 1"] };
        assert_eq!(bench.actions(), expected);
        bench.later(5_000);
        assert_eq!(bench.actions().last().map(String::as_str), Some(if ahead == 0 { "stop 1" } else { "start 1" }));
    }
}

#[test]
#[cfg_attr(miri, ignore = "asks the operating system")]
fn recording_begins_ahead_of_its_start_time() {
    let mut bench = bench();
    let text = format!("{}\nACTIVITIES_DURATION_MSECS=700\nACTIVITIES_WARMUP_PERIOD_SECS=0", bench.start_in(2_000));
    bench.admit(&text);
    bench.later(1_940);
    assert_eq!(bench.actions(), [""; 0]);
    bench.later(20);
    assert_eq!(bench.actions(), ["prepare 1", "start 1"]);
    let ahead = bench.machine.next_due_time(&bench.moment).unwrap() - bench.moment.now;
    assert!(ahead <= Duration::from_millis(740) && ahead > Duration::from_millis(738), "{ahead:?}");
    // A recording that ends before its start time is empty.
    let early = bench.machine.end_all_requests(&bench.moment);
    assert_eq!(early.iter().map(said).collect::<Vec<_>>(), ["cancel 1: the program ends"]);
}

#[test]
#[cfg_attr(miri, ignore = "asks the operating system")]
fn start_time_follows_a_clock_that_is_set() {
    let mut bench = bench();
    let text = bench.start_in(60_000);
    bench.admit(&text);
    bench.moment.wall += Duration::from_secs(50);
    let due = bench.machine.next_due_time(&bench.moment).unwrap() - bench.moment.now;
    assert!(due <= Duration::from_secs(5) && due > Duration::from_millis(4_998), "{due:?}");
    bench.moment.wall -= Duration::from_secs(100);
    let due = bench.machine.next_due_time(&bench.moment).unwrap() - bench.moment.now;
    assert!(due > Duration::from_secs(104), "{due:?}");
    bench.moment.wall += Duration::from_secs(200);
    assert_eq!(bench.actions(), ["refuse: its start time passed 90.0 s ago; name a later one"]);
    let text = bench.start_in(60_000);
    bench.admit(&text);
    bench.moment.wall -= Duration::from_secs(86_400);
    bench.moment.now += Duration::from_secs(3_700);
    assert_eq!(bench.actions(), ["refuse: the clock was set back, and its start time is too far ahead; send it again"]);
}

#[test]
#[cfg_attr(miri, ignore = "asks the operating system")]
fn cancelled_start_is_not_reported_as_begun() {
    let mut bench = bench();
    bench.admit("");
    let actions: Vec<_> = (0..2).filter_map(|_| bench.machine.advance(&bench.moment, &bench.program)).collect();
    assert_eq!(actions.iter().map(said).collect::<Vec<_>>(), ["prepare 1", "start 1"]);
    assert_eq!(bench.machine.in_session(), None);
    let close = bench.machine.end_all_requests(&bench.moment);
    assert_eq!(close.iter().map(said).collect::<Vec<_>>(), ["cancel 1: the program ends"]);
    // Only the caller that cancelled it reports its end.
    assert!(
        !bench.machine.mark_begun(1, &bench.moment) && !bench.machine.mark_failed(1) && bench.machine.is_underway()
    );
    confirm(&mut bench.machine, &close[0], &bench.moment);
    assert!(!bench.machine.is_busy());
}

#[test]
#[cfg_attr(miri, ignore = "asks the operating system")]
fn failed_request_is_reported_once() {
    for steps in [1, 2] {
        let mut bench = bench();
        bench.admit("");
        let actions = (0..steps).filter_map(|_| bench.machine.advance(&bench.moment, &bench.program)).count();
        assert_eq!(actions, steps);
        assert!(!bench.machine.mark_failed(2) && bench.machine.mark_failed(1) && !bench.machine.mark_failed(1));
        assert!(!bench.machine.is_busy());
    }
}

#[test]
#[cfg_attr(miri, ignore = "asks the operating system")]
fn start_that_has_just_passed_begins_at_once() {
    let mut bench = bench();
    let text = bench.start_in(-2_000);
    assert_eq!(bench.admit(&text), Admission::Accepted);
    let Some(RequestAction::Prepare(job)) = bench.machine.advance(&bench.moment, &bench.program) else {
        panic!("not prepared")
    };
    assert!(job.plan.lateness(&bench.moment) >= Duration::from_secs(2));
    assert_eq!(bench.actions(), ["start 1"]);
    bench.later(500);
    assert_eq!(bench.actions(), ["stop 1"]);
}

const ITERATIONS: &str = "PROFILE_START_ITERATION=0\nPROFILE_START_ITERATION_ROUNDUP=20\n\
     ACTIVITIES_ITERATIONS=3\nACTIVITIES_DURATION_MSECS=80";

#[test]
#[cfg_attr(miri, ignore = "asks the operating system")]
fn iterations_are_counted_from_a_round_one_on() {
    let mut bench = bench();
    bench.at(41);
    assert_eq!(bench.admit(ITERATIONS), Admission::Accepted);
    assert_eq!((bench.actions(), bench.machine.next_due_iteration()), (vec![], Some(50)));
    bench.at(50);
    assert_eq!((bench.actions(), bench.machine.next_due_iteration()), (vec!["prepare 1".to_owned()], Some(60)));
    bench.later(1_000_000);
    bench.at(59);
    assert_eq!(bench.actions(), [""; 0]);
    bench.at(60);
    assert_eq!((bench.actions(), bench.machine.next_due_iteration()), (vec!["start 1".to_owned()], Some(63)));
    bench.at(62);
    assert_eq!(bench.actions(), [""; 0]);
    bench.at(63);
    assert_eq!((bench.actions(), bench.machine.next_due_iteration()), (vec!["stop 1".to_owned()], None));
}

#[test]
#[cfg_attr(miri, ignore = "asks the operating system")]
fn iterations_are_recorded_whole() {
    let mut bench = bench();
    bench.at(41);
    bench.admit(ITERATIONS);
    assert!(bench.machine.has_time(59) && !bench.machine.has_time(60));
    // Within an iteration collectors begin, and a recording does not.
    bench.at(60);
    bench.moment.begins = false;
    assert_eq!(bench.actions(), ["prepare 1"]);
    assert!(!bench.machine.has_time(59));
    // Iteration 60 has begun without it; the other ranks that are late, too, begin with the next round one.
    bench.at(61);
    assert_eq!(bench.actions(), [""; 0]);
    bench.at(80);
    assert_eq!(bench.actions(), ["start 1"]);
    bench.at(82);
    assert_eq!(bench.actions(), [""; 0]);
    // Another thread that sees the last iteration could be delayed, and the program would record more of them.
    bench.at(83);
    bench.moment.begins = false;
    assert_eq!(bench.actions(), [""; 0]);
    bench.moment.begins = true;
    assert_eq!(bench.actions(), ["stop 1"]);
}

#[test]
#[cfg_attr(miri, ignore = "asks the operating system")]
fn duration_counts_from_the_actual_begin() {
    let mut bench = bench();
    bench.admit("ACTIVITIES_DURATION_MSECS=700");
    let actions: Vec<_> = (0..2).filter_map(|_| bench.machine.advance(&bench.moment, &bench.program)).collect();
    assert!(matches!(actions[1], RequestAction::Start(_)) && bench.machine.is_underway() && bench.actions().is_empty());
    bench.later(30);
    assert!(!bench.machine.mark_begun(2, &bench.moment) && bench.machine.mark_begun(1, &bench.moment));
    assert_eq!(bench.machine.next_due_time(&bench.moment), Some(bench.moment.now + Duration::from_millis(700)));
}

#[test]
#[cfg_attr(miri, ignore = "asks the operating system")]
fn program_without_iterations_is_traced_by_time() {
    let mut bench = bench();
    assert_eq!(bench.admit(ITERATIONS), Admission::Accepted);
    assert_eq!(bench.actions(), ["prepare 1", "start 1"]);
    bench.later(80);
    assert_eq!(bench.actions(), ["stop 1"]);
}

#[test]
#[cfg_attr(miri, ignore = "asks the operating system")]
fn waits_for_iterations_expire() {
    let mut waits = bench();
    waits.at(1);
    waits.admit(ITERATIONS);
    waits.later(3_600_001);
    // Collectors begin at iteration 10.
    assert_eq!(waits.actions(), ["refuse: the program did not reach iteration 20 in time; name an earlier one"]);
    let mut warms = bench();
    warms.at(15);
    warms.admit(ITERATIONS);
    assert_eq!(warms.actions(), ["prepare 1"]);
    warms.later(3_600_001);
    assert_eq!(warms.actions(), ["cancel 1: the program did not reach iteration 20 in time; name an earlier one"]);
    let mut collects = bench();
    collects.at(19);
    collects.admit(ITERATIONS);
    collects.at(20);
    assert_eq!(collects.actions(), ["prepare 1", "start 1"]);
    collects.later(3_600_000);
    assert_eq!(collects.actions(), ["stop 1: it took longer than 3600s; raise KINETO_ONDEMAND_MAX_DURATION_SECS"]);
}

#[test]
#[cfg_attr(miri, ignore = "asks the operating system")]
fn second_request_is_queued_and_a_third_refused() {
    let mut bench = bench();
    assert_eq!(bench.admit(""), Admission::Accepted);
    bench.actions();
    assert_eq!(bench.admit(""), Admission::Pending);
    assert_eq!(
        bench.admit(""),
        Admission::Refused("another request is waiting already; try again when it has begun".to_owned())
    );
    bench.later(500);
    assert_eq!(bench.actions(), ["stop 1"]);
    bench.machine.mark_ended(1);
    assert!(bench.machine.is_busy());
    assert_eq!(bench.actions(), ["prepare 2", "start 2"]);
}

#[test]
#[cfg_attr(miri, ignore = "asks the operating system")]
fn queued_request_expires() {
    let mut bench = bench();
    bench.admit("ACTIVITIES_DURATION_SECS=60");
    bench.actions();
    let text = bench.start_in(1_000);
    assert_eq!(bench.admit(&text), Admission::Pending);
    bench.later(60_000);
    assert_eq!(bench.actions(), ["stop 1"]);
    bench.machine.mark_ended(1);
    assert_eq!(bench.actions(), ["refuse: its start time passed 59.0 s ago; name a later one"]);
    assert!(!bench.machine.is_busy());
}

#[test]
#[cfg_attr(miri, ignore = "asks the operating system")]
fn nothing_begins_while_the_program_records() {
    let mut bench = bench();
    bench.program.busy = Some("the program records");
    bench.admit("");
    assert_eq!(bench.actions(), ["refuse: the program records"]);
    let text = bench.start_in(9_000);
    bench.admit(&text);
    assert_eq!(bench.actions(), [""; 0]);
    bench.program.busy = None;
    bench.later(9_000);
    assert_eq!(bench.actions(), ["prepare 1", "start 1"]);
}

#[test]
#[cfg_attr(miri, ignore = "asks the operating system")]
fn stopped_collector_cancels_or_ends_a_request() {
    let mut bench = bench();
    let text = bench.start_in(4_000);
    bench.admit(&text);
    assert_eq!(bench.actions(), ["prepare 1"]);
    bench.program.stopped = Some("cupti: full".to_owned());
    assert_eq!(bench.actions(), ["cancel 1: a collector stopped before the start: cupti: full"]);
    bench.program.stopped = None;
    bench.admit("");
    assert_eq!(bench.actions(), ["prepare 2", "start 2"]);
    bench.program.stopped = Some("cupti: full".to_owned());
    assert_eq!(bench.actions(), ["stop 2: a collector stopped: cupti: full"]);
}

#[test]
#[cfg_attr(miri, ignore = "asks the operating system")]
fn program_evicts_the_current_request() {
    let mut bench = bench();
    bench.admit("");
    assert_eq!(bench.machine.in_session(), None);
    bench.actions();
    assert_eq!(bench.machine.in_session(), Some(1));
    let cancel = bench.machine.cancel_current("why").unwrap();
    assert_eq!(said(&cancel), "cancel 1: why");
    // Nothing else begins before the cancellation is confirmed.
    assert_eq!(bench.admit(""), Admission::Pending);
    assert!(bench.actions().is_empty() && bench.machine.cancel_current("why").is_none());
    confirm(&mut bench.machine, &cancel, &bench.moment);
    assert_eq!(bench.actions(), ["prepare 2", "start 2"]);
    bench.later(500);
    assert_eq!(bench.actions(), ["stop 2"]);
    bench.machine.mark_ended(2);
    assert!(!bench.machine.is_busy() && bench.machine.cancel_current("why").is_none());
}

#[test]
#[cfg_attr(miri, ignore = "asks the operating system")]
fn requests_ahead_let_others_go_first_and_are_bounded() {
    let mut bench = bench();
    let far = bench.start_in(3_000_000);
    for _ in 1..RequestMachine::MOST_AHEAD {
        assert_eq!(bench.admit(&far), Admission::Accepted);
        assert!(!bench.machine.is_busy());
    }
    assert_eq!((bench.admit("ACTIVITIES_DURATION_MSECS=7"), bench.machine.is_busy()), (Admission::Accepted, true));
    assert_eq!(bench.actions(), ["prepare 1", "start 1"]);
    bench.later(7);
    assert_eq!(bench.actions(), ["stop 1"]);
    bench.machine.mark_ended(1);
    assert_eq!((bench.admit(&far), bench.machine.is_busy()), (Admission::Accepted, true));
    assert_eq!(
        bench.admit(&far),
        Admission::Refused("4 requests wait for their start already; cancel them with CANCEL=true".to_owned())
    );
    // One whose time passes while another runs is refused then.
    bench.moment.iteration = None;
    bench.later(2_990_000);
    assert_eq!(bench.actions(), [""; 0]);
    bench.later(6_000);
    assert_eq!(bench.actions(), ["prepare 2"]);
    bench.later(30_000);
    assert_eq!(bench.actions().iter().filter(|action| action.starts_with("refuse: its start time passed")).count(), 3);
    let text = bench.start_in(9_000);
    bench.admit(&text);
    let cancelled = bench.machine.cancel_requests("why");
    assert!(cancelled.iter().any(|action| said(action) == "cancel: why"), "{cancelled:?}");
}

#[test]
#[cfg_attr(miri, ignore = "asks the operating system")]
fn close_writes_the_recording_and_cancels_the_rest() {
    let close = |bench: &mut Bench| bench.machine.end_all_requests(&bench.moment).iter().map(said).collect::<Vec<_>>();
    let mut collects = bench();
    collects.admit("");
    collects.actions();
    collects.admit("");
    assert_eq!(close(&mut collects), ["cancel: the program ends", "stop 1: the program ends"]);
    assert!(collects.machine.is_underway() && close(&mut collects).is_empty());
    let mut warms = bench();
    let text = warms.start_in(4_000);
    warms.admit(&text);
    warms.actions();
    assert_eq!(close(&mut warms), ["cancel 1: the program ends"]);
    let mut waits = bench();
    let text = waits.start_in(9_000);
    waits.admit(&text);
    assert_eq!(close(&mut waits), ["cancel: the program ends"]);
    assert_eq!(close(&mut bench()), [""; 0]);
}

#[test]
#[cfg_attr(miri, ignore = "asks the operating system")]
fn own_configuration_waits_for_iterations_without_bounds() {
    let mut bench = bench();
    let text = "PROFILE_START_ITERATION=3\nACTIVITIES_ITERATIONS=2\nACTIVITIES_DURATION_MSECS=80";
    assert_eq!(bench.admit_into(text, Some("/x/a.json")), Admission::Accepted);
    // Nothing is counted yet, and the start is near.
    assert_eq!((bench.actions(), bench.machine.next_due_iteration()), (vec!["prepare 1".to_owned()], Some(3)));
    bench.later(7_200_000);
    for (iteration, actions) in [(1, &[][..]), (2, &[]), (3, &["start 1"]), (4, &[]), (5, &["stop 1"])] {
        bench.at(iteration);
        assert_eq!(bench.actions(), actions, "{iteration}");
    }
    bench.machine.mark_ended(1);
    let forever = format!("ACTIVITIES_DURATION_SECS={}", Timetable::FOREVER.as_secs());
    assert_eq!(bench.admit_into(&forever, Some("/x/a.json")), Admission::Accepted);
    assert_eq!(bench.actions(), ["prepare 2", "start 2"]);
    bench.later(7_200_000);
    assert_eq!(bench.actions(), [""; 0]);
    // It was meant to last until the end, so it is not early.
    assert_eq!(bench.machine.end_all_requests(&bench.moment).iter().map(said).collect::<Vec<_>>(), ["stop 2"]);
}

#[test]
#[cfg_attr(miri, ignore = "asks the operating system")]
fn own_request_starts_on_time_when_the_clock_is_set() {
    let hour = Duration::from_secs(3600);
    for is_forward in [false, true] {
        let mut bench = bench();
        let text = bench.start_in(2_000) + "\nACTIVITIES_DURATION_MSECS=100";
        assert_eq!(bench.admit_into(&text, Some("/x/own.json")), Admission::Accepted);
        assert_eq!(bench.actions(), ["prepare 1"]);
        let wall = bench.moment.wall;
        bench.moment.wall = if is_forward { wall + hour } else { wall - hour };
        bench.later(1_900);
        assert_eq!(bench.actions(), [""; 0], "{is_forward}");
        let start = bench.machine.next_due_time(&bench.moment).unwrap();
        bench.moment.now = start;
        assert_eq!(bench.actions(), ["start 1"], "{is_forward}");
        bench.later(100);
        assert_eq!(bench.actions(), ["stop 1"], "{is_forward}");
    }
}

#[test]
#[cfg_attr(miri, ignore = "asks the operating system")]
fn request_that_is_sent_again_is_refused() {
    let mut bench = bench();
    let ahead = bench.start_in(20_000);
    let refused =
        |admission: Admission| matches!(admission, Admission::Refused(why) if why.contains("REQUEST_TRACE_ID"));
    assert_eq!(bench.admit(&format!("{ahead}\nREQUEST_TRACE_ID=ahead")), Admission::Accepted);
    assert!(refused(bench.admit(&format!("{ahead}\nREQUEST_TRACE_ID=ahead"))));
    let text = "ACTIVITIES_DURATION_MSECS=100\nREQUEST_TRACE_ID=9";
    assert_eq!(bench.admit(text), Admission::Accepted);
    assert_eq!(bench.actions(), ["prepare 1", "start 1"]);
    assert!(refused(bench.admit(text)));
    bench.later(100);
    assert_eq!(bench.actions(), ["stop 1"]);
    assert!(refused(bench.admit(text)), "it is being written");
    assert_eq!(bench.admit("REQUEST_TRACE_ID=10"), Admission::Pending);
    assert!(refused(bench.admit("REQUEST_TRACE_ID=10")));
    bench.machine.mark_ended(1);
    assert_eq!(bench.actions(), ["prepare 2", "start 2"]);
    assert_eq!(bench.admit(text), Admission::Pending, "it has ended");
}
