//! Tests of `machine.rs`.

use super::*;
use crate::config::{Config, NameParts, OnDemand, Timetable};
use crate::ondemand::source::Incoming;
use std::path::PathBuf;
use std::time::{Duration, UNIX_EPOCH};

/// A machine, and a clock and a counter of its own.
struct Bench {
    machine: Machine,
    moment: Moment,
    host: Host,
}

fn bench() -> Bench {
    let moment = Moment { now: Instant::now(), wall: SystemTime::now(), iteration: None, begins: false };
    Bench { machine: Machine::default(), moment, host: Host::default() }
}

impl Bench {
    fn offer(&mut self, text: &str) -> Offer {
        self.offer_into(text, None)
    }

    fn offer_into(&mut self, text: &str, output: Option<&str>) -> Offer {
        let output = output.map(PathBuf::from);
        let incoming = Incoming { text: text.to_owned(), by: "a test".to_owned(), output, answer: None };
        let parts = NameParts { pid: 7, time: self.moment.wall, ..Config::default().name_parts() };
        let request = Request::read(&incoming, &OnDemand::default(), &parts).unwrap();
        self.machine.offer(request, &self.moment)
    }

    fn later(&mut self, milliseconds: u64) {
        self.moment.now += Duration::from_millis(milliseconds);
        self.moment.wall += Duration::from_millis(milliseconds);
    }

    fn at(&mut self, iteration: u64) {
        (self.moment.iteration, self.moment.begins) = (Some(iteration), true);
    }

    /// What is done now, in words; but for files, it takes no time.
    fn acts(&mut self) -> Vec<String> {
        let Bench { machine, moment, host } = self;
        let act = || machine.advance(moment, host).inspect(|act| confirm(machine, act, moment));
        std::iter::from_fn(act).map(|act| said(&act)).collect()
    }

    fn start_in(&self, milliseconds: i128) -> String {
        let now = self.moment.wall.duration_since(UNIX_EPOCH).unwrap().as_millis();
        format!("PROFILE_START_TIME={}", now.cast_signed() + milliseconds)
    }
}

/// Says that what was to be done is done.
fn confirm(machine: &mut Machine, act: &Act, moment: &Moment) {
    match act {
        Act::Start(job) => assert!(machine.begun(job.ticket, moment)),
        Act::Cancel(job, _) => machine.ended(job.ticket),
        _ => {}
    }
}

fn said(act: &Act) -> String {
    match act {
        Act::Prepare(job) => format!("prepare {}", job.ticket),
        Act::Start(job) => format!("start {}", job.ticket),
        Act::Stop(job, None) => format!("stop {}", job.ticket),
        Act::Stop(job, Some(why)) => format!("stop {}: {why}", job.ticket),
        Act::Cancel(job, why) => format!("cancel {}: {why}", job.ticket),
        Act::Refuse(_, why) => format!("refuse: {why}"),
        Act::CancelWaiting(_, why) => format!("cancel: {why}"),
    }
}

#[test]
#[cfg_attr(miri, ignore = "asks the operating system")]
fn a_trace_for_a_time_begins_at_once_and_takes_that_long() {
    let mut bench = bench();
    assert!(!bench.machine.is_busy());
    assert_eq!(bench.offer("ACTIVITIES_DURATION_MSECS=700"), Offer::Accepted);
    assert!(bench.machine.is_busy());
    assert_eq!(bench.acts(), ["prepare 1", "start 1"]);
    assert_eq!(bench.machine.due(&bench.moment), Some(bench.moment.now + Duration::from_millis(700)));
    bench.later(699);
    assert_eq!(bench.acts(), [""; 0]);
    bench.later(1);
    assert_eq!(bench.acts(), ["stop 1"]);
    assert!(bench.machine.is_busy() && bench.machine.is_underway() && bench.machine.due(&bench.moment).is_none());
    bench.machine.ended(2);
    assert!(bench.machine.is_busy());
    bench.machine.ended(1);
    assert!(!bench.machine.is_busy());
}

#[test]
#[cfg_attr(miri, ignore = "asks the operating system")]
fn the_start_is_when_it_is_said_and_the_warm_up_as_long_as_is_left() {
    for (ahead, warm_in) in [(10_000, 5_000), (3_000, 0), (0, 0)] {
        let mut bench = bench();
        let text = bench.start_in(ahead);
        assert_eq!(bench.offer(&text), Offer::Accepted);
        let warm_in = Duration::from_millis(warm_in);
        let due = bench.machine.due(&bench.moment).unwrap().saturating_duration_since(bench.moment.now);
        // What is said in milliseconds is up to one before.
        assert!(due <= warm_in && warm_in - due <= Duration::from_millis(1), "{ahead}: {due:?}");
        bench.later(u64::try_from(warm_in.as_millis()).unwrap());
        let expected: &[&str] = if ahead == 0 { &["prepare 1", "start 1"] } else { &["prepare 1"] };
        assert_eq!(bench.acts(), expected);
        bench.later(5_000);
        assert_eq!(bench.acts().last().map(String::as_str), Some(if ahead == 0 { "stop 1" } else { "start 1" }));
    }
}

#[test]
#[cfg_attr(miri, ignore = "asks the operating system")]
fn records_are_made_ahead_of_a_time_that_was_said_and_end_behind_it() {
    let mut bench = bench();
    let text = format!("{}\nACTIVITIES_DURATION_MSECS=700\nACTIVITIES_WARMUP_PERIOD_SECS=0", bench.start_in(2_000));
    bench.offer(&text);
    bench.later(1_940);
    assert_eq!(bench.acts(), [""; 0]);
    bench.later(20);
    assert_eq!(bench.acts(), ["prepare 1", "start 1"]);
    let ahead = bench.machine.due(&bench.moment).unwrap() - bench.moment.now;
    assert!(ahead <= Duration::from_millis(740) && ahead > Duration::from_millis(738), "{ahead:?}");
    // What ends before that time has nothing to show.
    let early = bench.machine.close(&bench.moment);
    assert_eq!(early.iter().map(said).collect::<Vec<_>>(), ["cancel 1: the program ends"]);
}

#[test]
#[cfg_attr(miri, ignore = "asks the operating system")]
fn the_time_that_was_said_is_the_clocks_even_if_that_is_set() {
    let mut bench = bench();
    let text = bench.start_in(60_000);
    bench.offer(&text);
    bench.moment.wall += Duration::from_secs(50);
    let due = bench.machine.due(&bench.moment).unwrap() - bench.moment.now;
    assert!(due <= Duration::from_secs(5) && due > Duration::from_millis(4_998), "{due:?}");
    bench.moment.wall -= Duration::from_secs(100);
    let due = bench.machine.due(&bench.moment).unwrap() - bench.moment.now;
    assert!(due > Duration::from_secs(104), "{due:?}");
    bench.moment.wall += Duration::from_secs(200);
    assert_eq!(bench.acts(), ["refuse: its start time passed 90.0 s ago"]);
    let text = bench.start_in(60_000);
    bench.offer(&text);
    bench.moment.wall -= Duration::from_secs(86_400);
    bench.moment.now += Duration::from_secs(3_700);
    assert_eq!(bench.acts(), ["refuse: the clock was set back, and its start time is too far ahead"]);
}

#[test]
#[cfg_attr(miri, ignore = "asks the operating system")]
fn a_start_that_is_taken_back_meanwhile_is_none() {
    let mut bench = bench();
    bench.offer("");
    let acts: Vec<_> = (0..2).filter_map(|_| bench.machine.advance(&bench.moment, &bench.host)).collect();
    assert_eq!(acts.iter().map(said).collect::<Vec<_>>(), ["prepare 1", "start 1"]);
    assert_eq!(bench.machine.in_session(), None);
    let close = bench.machine.close(&bench.moment);
    assert_eq!(close.iter().map(said).collect::<Vec<_>>(), ["cancel 1: the program ends"]);
    // Be it begun or not: who takes it back is who says so, and that only he has done it.
    assert!(!bench.machine.begun(1, &bench.moment) && !bench.machine.failed(1) && bench.machine.is_underway());
    confirm(&mut bench.machine, &close[0], &bench.moment);
    assert!(!bench.machine.is_busy());
}

#[test]
#[cfg_attr(miri, ignore = "asks the operating system")]
fn what_cannot_begin_makes_room_and_that_is_news_once() {
    for steps in [1, 2] {
        let mut bench = bench();
        bench.offer("");
        let acts = (0..steps).filter_map(|_| bench.machine.advance(&bench.moment, &bench.host)).count();
        assert_eq!(acts, steps);
        assert!(!bench.machine.failed(2) && bench.machine.failed(1) && !bench.machine.failed(1));
        assert!(!bench.machine.is_busy());
    }
}

#[test]
#[cfg_attr(miri, ignore = "asks the operating system")]
fn a_start_that_has_just_passed_is_made_up_for() {
    let mut bench = bench();
    let text = bench.start_in(-2_000);
    assert_eq!(bench.offer(&text), Offer::Accepted);
    let Some(Act::Prepare(job)) = bench.machine.advance(&bench.moment, &bench.host) else { panic!("not prepared") };
    assert!(job.plan.lateness(&bench.moment) >= Duration::from_secs(2));
    assert_eq!(bench.acts(), ["start 1"]);
    bench.later(500);
    assert_eq!(bench.acts(), ["stop 1"]);
}

const ITERATIONS: &str = "PROFILE_START_ITERATION=0\nPROFILE_START_ITERATION_ROUNDUP=20\n\
     ACTIVITIES_ITERATIONS=3\nACTIVITIES_DURATION_MSECS=80";

#[test]
#[cfg_attr(miri, ignore = "asks the operating system")]
fn iterations_are_counted_from_a_round_one_on() {
    let mut bench = bench();
    bench.at(41);
    assert_eq!(bench.offer(ITERATIONS), Offer::Accepted);
    assert_eq!((bench.acts(), bench.machine.watched()), (vec![], Some(50)));
    bench.at(50);
    assert_eq!((bench.acts(), bench.machine.watched()), (vec!["prepare 1".to_owned()], Some(60)));
    bench.later(1_000_000);
    bench.at(59);
    assert_eq!(bench.acts(), [""; 0]);
    bench.at(60);
    assert_eq!((bench.acts(), bench.machine.watched()), (vec!["start 1".to_owned()], Some(63)));
    bench.at(62);
    assert_eq!(bench.acts(), [""; 0]);
    bench.at(63);
    assert_eq!((bench.acts(), bench.machine.watched()), (vec!["stop 1".to_owned()], None));
}

#[test]
#[cfg_attr(miri, ignore = "asks the operating system")]
fn iterations_are_whole_however_late_somebody_looks() {
    let mut bench = bench();
    bench.at(41);
    bench.offer(ITERATIONS);
    assert!(bench.machine.has_time(59) && !bench.machine.has_time(60));
    // Within an iteration collectors begin, and a recording does not.
    bench.at(60);
    bench.moment.begins = false;
    assert_eq!(bench.acts(), ["prepare 1"]);
    assert!(!bench.machine.has_time(59));
    bench.at(61);
    assert_eq!(bench.acts(), ["start 1"]);
    bench.at(63);
    assert_eq!(bench.acts(), [""; 0]);
    // Another thread that sees the last iteration could be delayed, and the program would record more of them.
    bench.at(64);
    bench.moment.begins = false;
    assert_eq!(bench.acts(), [""; 0]);
    bench.moment.begins = true;
    assert_eq!(bench.acts(), ["stop 1"]);
}

#[test]
#[cfg_attr(miri, ignore = "asks the operating system")]
fn a_time_begins_when_the_recording_has_begun() {
    let mut bench = bench();
    bench.offer("ACTIVITIES_DURATION_MSECS=700");
    let acts: Vec<_> = (0..2).filter_map(|_| bench.machine.advance(&bench.moment, &bench.host)).collect();
    assert!(matches!(acts[1], Act::Start(_)) && bench.machine.is_underway() && bench.acts().is_empty());
    bench.later(30);
    assert!(!bench.machine.begun(2, &bench.moment) && bench.machine.begun(1, &bench.moment));
    assert_eq!(bench.machine.due(&bench.moment), Some(bench.moment.now + Duration::from_millis(700)));
}

#[test]
#[cfg_attr(miri, ignore = "asks the operating system")]
fn who_counts_no_iterations_is_traced_for_a_time() {
    let mut bench = bench();
    assert_eq!(bench.offer(ITERATIONS), Offer::Accepted);
    assert_eq!(bench.acts(), ["prepare 1", "start 1"]);
    bench.later(80);
    assert_eq!(bench.acts(), ["stop 1"]);
}

#[test]
#[cfg_attr(miri, ignore = "asks the operating system")]
fn iterations_that_do_not_come_are_not_waited_for_for_ever() {
    let mut waits = bench();
    waits.at(1);
    waits.offer(ITERATIONS);
    waits.later(3_600_001);
    // From the tenth on collectors run.
    assert_eq!(waits.acts(), ["refuse: the program has not come to iteration 20 in time"]);
    let mut warms = bench();
    warms.at(15);
    warms.offer(ITERATIONS);
    assert_eq!(warms.acts(), ["prepare 1"]);
    warms.later(3_600_001);
    assert_eq!(warms.acts(), ["cancel 1: the program has not come to iteration 20 in time"]);
    let mut collects = bench();
    collects.at(19);
    collects.offer(ITERATIONS);
    collects.at(20);
    assert_eq!(collects.acts(), ["prepare 1", "start 1"]);
    collects.later(3_600_000);
    assert_eq!(collects.acts(), ["stop 1: it took longer than 3600s"]);
}

#[test]
#[cfg_attr(miri, ignore = "asks the operating system")]
fn one_request_waits_for_the_end_of_another_and_a_third_is_refused() {
    let mut bench = bench();
    assert_eq!(bench.offer(""), Offer::Accepted);
    bench.acts();
    assert_eq!(bench.offer(""), Offer::Pending);
    assert_eq!(bench.offer(""), Offer::Refused("another request is waiting already".to_owned()));
    bench.later(500);
    assert_eq!(bench.acts(), ["stop 1"]);
    bench.machine.ended(1);
    assert!(bench.machine.is_busy());
    assert_eq!(bench.acts(), ["prepare 2", "start 2"]);
}

#[test]
#[cfg_attr(miri, ignore = "asks the operating system")]
fn what_waits_too_long_expires() {
    let mut bench = bench();
    bench.offer("ACTIVITIES_DURATION_SECS=60");
    bench.acts();
    let text = bench.start_in(1_000);
    assert_eq!(bench.offer(&text), Offer::Pending);
    bench.later(60_000);
    assert_eq!(bench.acts(), ["stop 1"]);
    bench.machine.ended(1);
    assert_eq!(bench.acts(), ["refuse: its start time passed 59.0 s ago"]);
    assert!(!bench.machine.is_busy());
}

#[test]
#[cfg_attr(miri, ignore = "asks the operating system")]
fn while_the_program_records_nothing_begins() {
    let mut bench = bench();
    bench.host.busy = Some("the program records");
    bench.offer("");
    assert_eq!(bench.acts(), ["refuse: the program records"]);
    let text = bench.start_in(9_000);
    bench.offer(&text);
    assert_eq!(bench.acts(), [""; 0]);
    bench.host.busy = None;
    bench.later(9_000);
    assert_eq!(bench.acts(), ["prepare 1", "start 1"]);
}

#[test]
#[cfg_attr(miri, ignore = "asks the operating system")]
fn a_collector_that_stops_cancels_a_warm_up_and_ends_a_recording() {
    let mut bench = bench();
    let text = bench.start_in(4_000);
    bench.offer(&text);
    assert_eq!(bench.acts(), ["prepare 1"]);
    bench.host.stopped = Some("cupti: full".to_owned());
    assert_eq!(bench.acts(), ["cancel 1: a collector stopped before the start: cupti: full"]);
    bench.host.stopped = None;
    bench.offer("");
    assert_eq!(bench.acts(), ["prepare 2", "start 2"]);
    bench.host.stopped = Some("cupti: full".to_owned());
    assert_eq!(bench.acts(), ["stop 2: a collector stopped: cupti: full"]);
}

#[test]
#[cfg_attr(miri, ignore = "asks the operating system")]
fn the_program_may_take_the_session_and_what_went_on_is_over() {
    let mut bench = bench();
    bench.offer("");
    assert_eq!(bench.machine.in_session(), None);
    bench.acts();
    assert_eq!(bench.machine.in_session(), Some(1));
    let cancel = bench.machine.cancel("why").unwrap();
    assert_eq!(said(&cancel), "cancel 1: why");
    // Nothing else begins before that is done.
    assert_eq!(bench.offer(""), Offer::Pending);
    assert!(bench.acts().is_empty() && bench.machine.cancel("why").is_none());
    confirm(&mut bench.machine, &cancel, &bench.moment);
    assert_eq!(bench.acts(), ["prepare 2", "start 2"]);
    bench.later(500);
    assert_eq!(bench.acts(), ["stop 2"]);
    bench.machine.ended(2);
    assert!(!bench.machine.is_busy() && bench.machine.cancel("why").is_none());
}

#[test]
#[cfg_attr(miri, ignore = "asks the operating system")]
fn requests_ahead_let_others_go_first_and_are_bounded() {
    let mut bench = bench();
    let far = bench.start_in(3_000_000);
    for _ in 1..Machine::MOST_AHEAD {
        assert_eq!(bench.offer(&far), Offer::Accepted);
        assert!(!bench.machine.is_busy());
    }
    assert_eq!((bench.offer("ACTIVITIES_DURATION_MSECS=7"), bench.machine.is_busy()), (Offer::Accepted, true));
    assert_eq!(bench.acts(), ["prepare 1", "start 1"]);
    bench.later(7);
    assert_eq!(bench.acts(), ["stop 1"]);
    bench.machine.ended(1);
    assert_eq!((bench.offer(&far), bench.machine.is_busy()), (Offer::Accepted, true));
    assert_eq!(bench.offer(&far), Offer::Refused("4 requests wait for their start already".to_owned()));
    // One whose time passes while another runs is refused then.
    bench.moment.iteration = None;
    bench.later(2_990_000);
    assert_eq!(bench.acts(), [""; 0]);
    bench.later(6_000);
    assert_eq!(bench.acts(), ["prepare 2"]);
    bench.later(30_000);
    assert_eq!(bench.acts().iter().filter(|act| act.starts_with("refuse: its start time passed")).count(), 3);
    let text = bench.start_in(9_000);
    bench.offer(&text);
    let cancelled = bench.machine.cancel_requests("why");
    assert!(cancelled.iter().any(|act| said(act) == "cancel: why"), "{cancelled:?}");
}

#[test]
#[cfg_attr(miri, ignore = "asks the operating system")]
fn at_the_end_what_was_collected_is_written_and_the_rest_is_not_done() {
    let close = |bench: &mut Bench| bench.machine.close(&bench.moment).iter().map(said).collect::<Vec<_>>();
    let mut collects = bench();
    collects.offer("");
    collects.acts();
    collects.offer("");
    assert_eq!(close(&mut collects), ["cancel: the program ends", "stop 1: the program ends"]);
    assert!(collects.machine.is_underway() && close(&mut collects).is_empty());
    let mut warms = bench();
    let text = warms.start_in(4_000);
    warms.offer(&text);
    warms.acts();
    assert_eq!(close(&mut warms), ["cancel 1: the program ends"]);
    let mut waits = bench();
    let text = waits.start_in(9_000);
    waits.offer(&text);
    assert_eq!(close(&mut waits), ["cancel: the program ends"]);
    assert_eq!(close(&mut bench()), [""; 0]);
}

#[test]
#[cfg_attr(miri, ignore = "asks the operating system")]
fn the_programs_own_configuration_waits_for_iterations_and_has_no_bounds() {
    let mut bench = bench();
    let text = "PROFILE_START_ITERATION=3\nACTIVITIES_ITERATIONS=2\nACTIVITIES_DURATION_MSECS=80";
    assert_eq!(bench.offer_into(text, Some("/x/a.json")), Offer::Accepted);
    // Nothing is counted yet, and the start is near.
    assert_eq!((bench.acts(), bench.machine.watched()), (vec!["prepare 1".to_owned()], Some(3)));
    bench.later(7_200_000);
    for (iteration, acts) in [(1, &[][..]), (2, &[]), (3, &["start 1"]), (4, &[]), (5, &["stop 1"])] {
        bench.at(iteration);
        assert_eq!(bench.acts(), acts, "{iteration}");
    }
    bench.machine.ended(1);
    let forever = format!("ACTIVITIES_DURATION_SECS={}", Timetable::FOREVER.as_secs());
    assert_eq!(bench.offer_into(&forever, Some("/x/a.json")), Offer::Accepted);
    assert_eq!(bench.acts(), ["prepare 2", "start 2"]);
    bench.later(7_200_000);
    assert_eq!(bench.acts(), [""; 0]);
    // That is as it was said, and not early.
    assert_eq!(bench.machine.close(&bench.moment).iter().map(said).collect::<Vec<_>>(), ["stop 2"]);
}
