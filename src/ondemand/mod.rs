//! Requests from outside: who hands them over, what becomes of them, and the files that they end in.

mod alarm;
mod base;
mod bell;
mod dynolog;
mod job;
mod machine;
mod outcome;
mod place;
mod plan;
mod request;
mod runner;
mod source;
mod trigger;

use crate::config::OnDemand;
use crate::diag::diag;
use crate::os::{fork, process};
use crate::session::Session;
use alarm::Alarm;
use base::Base;
use dynolog::Client;
use runner::Runner;
use source::RequestSource;
use std::io;
use std::sync::{Arc, Weak};
use std::time::Instant;
use trigger::Trigger;

/// Who serves requests in this process: the daemon knows it as one, whichever layers it has.
static SERVING: fork::Own<Weak<Runner>> = fork::Own::of_first(Weak::new());

/// Has requests taken from all sources that are asked for, and done by the session, on a thread of its own; nothing
/// waits here but for the start of what is to be recorded from now on.
pub(crate) fn serve(session: &Arc<Session>) {
    if process::has_more_rights() {
        return diag!(
            Warning,
            "ondemand",
            "no requests are served: the program has more rights than its caller, who could say whom it trusts"
        );
    }
    let mut serving = SERVING.lock();
    let is_served = serving.upgrade().is_some_and(|runner| !runner.is_closing());
    let runner = (!is_served).then(|| Runner::new(session));
    runner.iter().flatten().for_each(|runner| *serving = Arc::downgrade(runner));
    // Who is told may make a layer.
    drop(serving);
    match runner.map(|runner| start(session, runner?)) {
        None => diag!(Info, "ondemand", "another layer of this process serves requests already"),
        Some(Ok(())) => {}
        Some(Err(why)) => diag!(Warning, "ondemand", "no requests are served: {why}"),
    }
}

/// Begins what is to be recorded from now on, and starts the thread for the rest.
fn start(session: &Arc<Session>, runner: Arc<Runner>) -> io::Result<()> {
    let (settings, now) = (session.settings(), Instant::now());
    let timetable = settings.ondemand.timetable.clone();
    // The parent records by the clock; a forked child does not repeat it.
    let has_alarm = timetable.is_wanted() && !session.is_of_parent();
    let mut alarm = has_alarm.then(|| Alarm::new(timetable, session.output_of_windows(), now));
    let first = alarm.as_mut().map(|alarm| alarm.turn(now, true)).unwrap_or_default();
    runner.start(session, &first, Base::new(settings.clone()), move || sources(&settings.ondemand, alarm))
}

/// Opens the sources that are asked for; says which cannot be.
fn sources(settings: &OnDemand, alarm: Option<Alarm>) -> Vec<Box<dyn RequestSource>> {
    let mut sources: Vec<Box<dyn RequestSource>> = Vec::new();
    sources.extend(alarm.map(|alarm| -> Box<dyn RequestSource> { Box::new(alarm) }));
    let mut add = |what: &str, source: io::Result<Box<dyn RequestSource>>| match source {
        Ok(source) => sources.push(source),
        Err(why) => diag!(Warning, "ondemand", "requests {what} are not served: {why}"),
    };
    if settings.may_ask_daemon() {
        // It is there also while it is not to ask: the file may say so later.
        let client = Client::new(settings).map(|client| -> Box<dyn RequestSource> { Box::new(client) });
        add("from the dynolog daemon", client);
    }
    if let Some(folder) = &settings.trigger_folder {
        sources.push(Box::new(Trigger::new(folder, settings.trusted)));
    }
    sources
}
