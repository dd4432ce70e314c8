//! All states and events of the machine, and its table in the documentation.

use super::User::{Program, Request};
use super::*;
use std::collections::HashSet;

/// What effects have made of the collectors, and whose recording runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct World {
    collectors_run: bool,
    recording_runs: bool,
}

impl World {
    /// Returns the world after these effects, which must be possible in their order.
    fn after(self, effects: &[Effect]) -> World {
        effects.iter().fold(self, |world, effect| {
            let expected = match effect {
                StartCollectors => World::default(),
                BeginRecording => World { collectors_run: true, recording_runs: false },
                EndRecording => World { collectors_run: true, recording_runs: true },
                Discard => World { collectors_run: true, ..world },
            };
            assert_eq!(world, expected, "before {effect:?} of {effects:?}");
            match effect {
                StartCollectors => World { collectors_run: true, recording_runs: false },
                BeginRecording => World { collectors_run: true, recording_runs: true },
                EndRecording | Discard => World::default(),
            }
        })
    }
}

const REQUESTS: u64 = 3;
const PREPARATIONS: u64 = 3;

fn all_events() -> Vec<Event> {
    let users = [Program].into_iter().chain((1..=REQUESTS).map(Request));
    let of_users = users.flat_map(|user| [Event::Prepare(user), Event::Start(user), Event::End(user)]);
    let of_requests = (1..=REQUESTS).map(Event::GiveUp);
    let of_preparations = (0..=PREPARATIONS).map(Event::CancelPreparation);
    let others = [Event::Fail, Event::Evict, Event::Fork];
    of_users.chain(of_requests).chain(of_preparations).chain(others).collect()
}

/// Every history is a way through these states.
#[test]
fn all_histories_keep_the_rules() {
    let (mut seen, mut next) = (HashSet::new(), vec![(SessionMachine::default(), World::default())]);
    while let Some((machine, world)) = next.pop() {
        if machine.preparations > PREPARATIONS || !seen.insert((machine.clone(), world)) {
            continue;
        }
        for event in all_events() {
            let mut after = machine.clone();
            let handled = after.handle(event);
            let expected = match after.phase {
                Phase::Idle => World::default(),
                Phase::Prepared(_) => World { collectors_run: true, recording_runs: false },
                Phase::Recording(_) => World { collectors_run: true, recording_runs: true },
            };
            // What has failed was undone by the caller, and what the parent ran does not run in the child.
            let begins_anew = matches!(event, Event::Fail | Event::Fork);
            let reached = if begins_anew { World::default() } else { world.after(handled.unwrap_or_default()) };
            assert_eq!(reached, expected, "{event:?} in {machine:?}");
            check_rules(&machine, event, handled, &after);
            next.push((after, reached));
        }
    }
    assert!(seen.len() > 30, "{} states", seen.len());
}

fn check_rules(before: &SessionMachine, event: Event, handled: Result<&[Effect], Refusal>, after: &SessionMachine) {
    let what = format!("{event:?} in {before:?}: {handled:?}, then {after:?}");
    if handled.is_err() {
        assert_eq!(before.phase, after.phase, "a refusal changes nothing: {what}");
    }
    let is_evicted = before.user() == Some(Program) && after.user() != Some(Program);
    let by_request = matches!(
        event,
        Event::Prepare(Request(_)) | Event::Start(Request(_)) | Event::End(Request(_)) | Event::GiveUp(_)
    );
    assert!(!(is_evicted && by_request), "the program loses nothing to a request: {what}");
    if let (Event::Prepare(Program) | Event::Start(Program), Some(_)) = (event, before.request()) {
        assert!(handled.is_ok() && after.user() == Some(Program), "the program evicts a request: {what}");
    }
    for id in 1..=REQUESTS {
        assert!(!before.is_over(id) || after.is_over(id), "what is over never begins: {what}");
        let has_lost = before.request() == Some(id) && after.request() != Some(id);
        assert!(!has_lost || after.is_over(id), "a request has the session once: {what}");
    }
    if before.user() == after.user() && before.is_recording() && after.is_recording() {
        assert_eq!(handled.unwrap_or_default(), [], "a recording runs on: {what}");
    }
}

#[test]
fn late_events_do_nothing() {
    let mut machine = SessionMachine::default();
    machine.handle(Event::Prepare(Program)).unwrap();
    let first = machine.preparation();
    machine.handle(Event::CancelPreparation(first)).unwrap();
    machine.handle(Event::Prepare(Program)).unwrap();
    assert_eq!(machine.handle(Event::CancelPreparation(first)), Ok(&[][..]), "it is not the current one");
    machine.handle(Event::Start(Program)).unwrap();
    assert_eq!(machine.handle(Event::CancelPreparation(machine.preparation())), Ok(&[][..]), "it is used");
    assert_eq!(machine.handle(Event::Start(Request(1))), Err(Refusal::UsedBy(Program)));
    machine.handle(Event::End(Program)).unwrap();
    assert_eq!(machine.handle(Event::Prepare(Request(1))), Err(Refusal::IsOver), "its start was refused");
    machine.handle(Event::Start(Request(2))).unwrap();
    assert_eq!(machine.handle(Event::Prepare(Request(2))), Ok(&[][..]), "it has begun");
    assert_eq!(machine.handle(Event::GiveUp(1)), Ok(&[][..]), "another one has the session");
}

/// The page's table, which is written by `UPDATE_DOCS=1`.
#[test]
#[cfg_attr(miri, ignore = "reads a file")]
#[allow(clippy::disallowed_methods, reason = "the variable is not the layer's")]
fn table_of_states_is_documented() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/decisions/047-a-session-is-a-state-machine.md");
    let page = std::fs::read_to_string(path).unwrap();
    let (before, rest) = page.split_once("| Event |").unwrap();
    let (_, after) = rest.split_once("\n\n").unwrap();
    let expected = format!("{before}{}\n{after}", table());
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(path, expected).unwrap();
    } else {
        assert_eq!(page, expected, "run the tests with UPDATE_DOCS=1");
    }
}

fn table() -> String {
    let prepared = |user| Phase::Prepared(user);
    let phases =
        [Phase::Idle, prepared(Program), prepared(Request(1)), Phase::Recording(Program), Phase::Recording(Request(1))];
    let events = [
        ("the program prepares", Event::Prepare(Program)),
        ("the program starts", Event::Start(Program)),
        ("the program stops", Event::End(Program)),
        ("the program cancels its preparation", Event::CancelPreparation(1)),
        ("the program is about to begin", Event::Evict),
        ("request 1 prepares", Event::Prepare(Request(1))),
        ("request 1 starts", Event::Start(Request(1))),
        ("request 1 ends", Event::End(Request(1))),
        ("request 1 gives up", Event::GiveUp(1)),
        ("request 2 starts", Event::Start(Request(2))),
        ("what an event demanded fails", Event::Fail),
        ("the process forks", Event::Fork),
    ];
    let mut table = format!("| Event | {} |\n|---|{}\n", phases.map(name_of).join(" | "), "---|".repeat(phases.len()));
    for (name, event) in events {
        let cells = phases.map(|phase| cell(phase, event));
        table += &format!("| {name} | {} |\n", cells.join(" | "));
    }
    table
}

fn name_of(phase: Phase) -> String {
    let whose = |user| if user == Program { "the program".to_owned() } else { format!("request {}", id_of(user)) };
    match phase {
        Phase::Idle => "idle".to_owned(),
        Phase::Prepared(user) => format!("prepared by {}", whose(user)),
        Phase::Recording(user) => format!("recording of {}", whose(user)),
    }
}

fn id_of(user: User) -> u64 {
    let Request(id) = user else { return 0 };
    id
}

/// Returns what an event does in a phase: the effects and the phase after it, or why it is refused.
fn cell(phase: Phase, event: Event) -> String {
    let highest_request = phase_request(phase);
    let mut machine =
        SessionMachine { phase, highest_request, preparations: u64::from(phase == Phase::Prepared(Program)) };
    match machine.handle(event) {
        Err(Refusal::UsedBy(Program)) => "refused: the program uses it".to_owned(),
        Err(Refusal::UsedBy(Request(_))) => "refused: a request uses it".to_owned(),
        Err(Refusal::IsOver) => "refused: the request is over".to_owned(),
        Err(Refusal::NothingRuns) => "refused: nothing runs".to_owned(),
        Ok([]) if machine.phase == phase => "–".to_owned(),
        Ok(effects) => {
            let names = effects.iter().map(|effect| match effect {
                Discard => "discard",
                StartCollectors => "start collectors",
                BeginRecording => "begin",
                EndRecording => "end",
            });
            let effects = names.collect::<Vec<_>>().join(", ");
            let arrow = if effects.is_empty() { "→" } else { " →" };
            format!("{effects}{arrow} {}", name_of(machine.phase))
        }
    }
}

fn phase_request(phase: Phase) -> u64 {
    SessionMachine { phase, ..SessionMachine::default() }.request().unwrap_or(0)
}
