//! All states and events of the machine, and its table in the documentation.

use super::User::{Program, Request};
use super::*;
use std::collections::HashSet;

/// What effects have made of the collectors and the recording, and how many marks are not taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct World {
    collectors_run: bool,
    recording_runs: bool,
    marks: usize,
    moves_part: bool,
}

const IDLE: World = World { collectors_run: false, recording_runs: false, marks: 0, moves_part: false };
const PREPARED: World = World { collectors_run: true, ..IDLE };
const RECORDING: World = World { recording_runs: true, ..PREPARED };

impl World {
    /// Returns the world after an event and its effects, which must be possible in their order.
    fn after(self, event: Event, effects: &[Effect]) -> World {
        let before = match event {
            Event::Mark => World { marks: self.marks + 1, ..self },
            Event::PartMoved => World { moves_part: false, ..self },
            _ => self,
        };
        effects.iter().fold(before, |world, effect| {
            let (expected, next) = match effect {
                StartCollectors => (IDLE, PREPARED),
                BeginRecording => (PREPARED, RECORDING),
                Discard if world.recording_runs => (RECORDING, IDLE),
                Discard => (PREPARED, IDLE),
                TakeSnapshots => (world, World { marks: 0, ..world }),
                // The caller waits for the part.
                EndRecording => (World { moves_part: world.moves_part, ..RECORDING }, RECORDING),
                MovePart => (RECORDING, World { moves_part: true, ..RECORDING }),
            };
            assert_eq!(world, expected, "before {effect:?} of {effects:?}");
            next
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
    let others = [Event::Fail, Event::Ended, Event::EndFailed, Event::Evict, Event::Mark, Event::PartMoved];
    of_users.chain(of_requests).chain(of_preparations).chain(others).collect()
}

/// Returns whether a caller can have this event now: what it has begun is done in order.
fn is_possible(event: Event, machine: &SessionMachine, world: World) -> bool {
    match event {
        Event::Fail => !matches!(machine.phase, Phase::Ending(_)) && !world.moves_part,
        Event::PartMoved => world.moves_part,
        Event::Mark => world.marks < 2,
        _ => true,
    }
}

/// Every history is a way through these states.
#[test]
fn all_histories_keep_the_rules() {
    let (mut seen, mut next) = (HashSet::new(), vec![(SessionMachine::default(), World::default())]);
    while let Some((machine, world)) = next.pop() {
        if machine.preparations > PREPARATIONS || !seen.insert((machine.clone(), world)) {
            continue;
        }
        let part_is_due = Event::MovePart { marks: world.marks };
        for event in all_events().into_iter().chain([part_is_due]) {
            if !is_possible(event, &machine, world) || event == part_is_due && world.moves_part {
                continue;
            }
            let mut after = machine.clone();
            let handled = after.handle(event);
            let reached = match (event, handled) {
                // The caller has undone what has failed, and has taken the records.
                (Event::Fail, _) => IDLE,
                (Event::Ended, _) if matches!(machine.phase, Phase::Ending(_)) => IDLE,
                (_, Ok(effects)) => world.after(event, effects),
                (_, Err(_)) => world,
            };
            let expected = match after.phase {
                Phase::Idle => IDLE,
                Phase::Prepared(_) => PREPARED,
                Phase::Recording(_) | Phase::Ending(_) => World { recording_runs: true, ..PREPARED },
            };
            let expected = World { marks: reached.marks, moves_part: reached.moves_part, ..expected };
            assert_eq!(reached, expected, "{event:?} in {machine:?}");
            if matches!(after.phase, Phase::Ending(_)) {
                assert_eq!(reached.marks, 0, "{event:?} in {machine:?}: a mark would get no records");
            }
            check_rules(&machine, event, handled, &after);
            // The end of a recording waits for the part.
            after.moves_part = reached.moves_part && after.has_records();
            next.push((after.clone(), World { moves_part: after.moves_part, ..reached }));
        }
        next.push((machine.of_child(), IDLE));
    }
    assert!(seen.len() > 60, "{} states", seen.len());
}

fn check_rules(before: &SessionMachine, event: Event, handled: Result<&[Effect], Refusal>, after: &SessionMachine) {
    let what = format!("{event:?} in {before:?}: {handled:?}, then {after:?}");
    if handled.is_err() {
        let is_noted = SessionMachine { highest_request: after.highest_request, ..before.clone() };
        assert_eq!(is_noted, *after, "a refusal changes nothing else: {what}");
    }
    if handled == Err(Refusal::IsChanging) {
        assert_eq!(before, after, "the event may come again: {what}");
    }
    let is_evicted = before.user() == Some(Program) && after.user() != Some(Program);
    let by_request = matches!(
        event,
        Event::Prepare(Request(_)) | Event::Start(Request(_)) | Event::End(Request(_)) | Event::GiveUp(_)
    );
    assert!(!(is_evicted && by_request), "the program loses nothing to a request: {what}");
    if let (Event::Prepare(Program) | Event::Start(Program), Some(_)) = (event, before.request()) {
        let is_waiting = handled == Err(Refusal::IsChanging);
        assert!(is_waiting || after.user() == Some(Program), "the program evicts a request: {what}");
    }
    for id in 1..=REQUESTS {
        assert!(!before.is_over(id) || after.is_over(id), "what is over never begins: {what}");
        let has_lost = before.request() == Some(id) && after.request() != Some(id);
        assert!(!has_lost || after.is_over(id), "a request has the session once: {what}");
    }
    let is_part = matches!(event, Event::MovePart { .. });
    if before.user() == after.user() && before.is_recording() && after.is_recording() && !is_part {
        assert_eq!(handled.unwrap_or_default(), [], "a recording runs on: {what}");
    }
}

#[test]
fn late_events_do_nothing() {
    let mut machine = SessionMachine::default();
    machine.handle(Event::Prepare(Program)).unwrap();
    let first = machine.last_preparation();
    machine.handle(Event::CancelPreparation(first)).unwrap();
    machine.handle(Event::Prepare(Program)).unwrap();
    assert_eq!(machine.handle(Event::CancelPreparation(first)), Ok(&[][..]), "it is not the current one");
    machine.handle(Event::Start(Program)).unwrap();
    assert_eq!(machine.handle(Event::CancelPreparation(machine.last_preparation())), Ok(&[][..]), "it is used");
    assert_eq!(machine.handle(Event::Start(Request(1))), Err(Refusal::UsedBy(Program)));
    machine.handle(Event::End(Program)).unwrap();
    assert_eq!(machine.handle(Event::Start(Request(2))), Err(Refusal::IsChanging));
    machine.handle(Event::Ended).unwrap();
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
    let phases = [
        Phase::Idle,
        Phase::Prepared(Program),
        Phase::Prepared(Request(1)),
        Phase::Recording(Program),
        Phase::Recording(Request(1)),
        Phase::Ending(Program),
    ];
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
        ("the program dumps", Event::Mark),
        ("a part is due, without marks", Event::MovePart { marks: 0 }),
        ("a part is due, with marks", Event::MovePart { marks: 1 }),
        ("the trace is made", Event::Ended),
        ("the end fails", Event::EndFailed),
    ];
    let mut table = format!("| Event | {} |\n|---|{}\n", phases.map(name_of).join(" | "), "---|".repeat(phases.len()));
    for (name, event) in events {
        let cells = phases.map(|phase| cell(phase, event));
        table += &format!("| {name} | {} |\n", cells.join(" | "));
    }
    table
}

fn name_of(phase: Phase) -> String {
    let whose = |user| match user {
        Program => "the program".to_owned(),
        Request(id) => format!("request {id}"),
    };
    match phase {
        Phase::Idle => "idle".to_owned(),
        Phase::Prepared(user) => format!("prepared by {}", whose(user)),
        Phase::Recording(user) => format!("recording of {}", whose(user)),
        Phase::Ending(user) => format!("ending of {}", whose(user)),
    }
}

/// Returns what an event does in a phase: the effects and the phase after it, or why it is refused.
fn cell(phase: Phase, event: Event) -> String {
    let mut machine = SessionMachine { phase, preparations: 1, ..SessionMachine::default() };
    machine.highest_request = machine.request().unwrap_or(0);
    match machine.handle(event) {
        Err(Refusal::UsedBy(Program)) => "refused: the program uses it".to_owned(),
        Err(Refusal::UsedBy(Request(_))) => "refused: a request uses it".to_owned(),
        Err(Refusal::IsOver) => "refused: the request is over".to_owned(),
        Err(Refusal::NothingRuns) => "refused: nothing runs".to_owned(),
        Err(Refusal::IsChanging) => "waits".to_owned(),
        Ok([]) if machine.phase == phase => "–".to_owned(),
        Ok(effects) => {
            let names = effects.iter().map(|effect| match effect {
                Discard => "discard",
                StartCollectors => "start collectors",
                BeginRecording => "begin",
                TakeSnapshots => "take what is marked",
                EndRecording => "end",
                MovePart => "move the part",
            });
            let effects = names.collect::<Vec<_>>().join(", ");
            let arrow = if effects.is_empty() { "→" } else { " →" };
            if machine.phase == phase { effects } else { format!("{effects}{arrow} {}", name_of(machine.phase)) }
        }
    }
}
