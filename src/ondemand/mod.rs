//! Requests from outside: who hands them over, what becomes of them, and the files that they end in.

mod bell;
mod dynolog;
mod machine;
mod place;
mod plan;
mod request;
mod runner;
mod source;
mod trigger;

use crate::config::OnDemand;
use crate::diag::diag;
use crate::os::fork;
use crate::session::Session;
use dynolog::Client;
use runner::Runner;
use source::RequestSource;
use std::io;
use std::sync::{Arc, LazyLock, Weak};
use trigger::Trigger;

/// Who serves requests in this process: the daemon knows it as one, whichever layers it has.
static SERVING: LazyLock<fork::Own<Weak<Runner>>> = LazyLock::new(fork::Own::default);

/// Has requests taken from all sources that are asked for, and done by the session; on a thread of its own, and nothing
/// here waits.
pub(crate) fn serve(session: &Arc<Session>) {
    let settings = session.ondemand().clone();
    let mut serving = SERVING.lock();
    let is_served = serving.upgrade().is_some_and(|runner| !runner.is_closing());
    let started = (!is_served).then(|| Runner::start(session, move || sources(&settings)));
    started.iter().flatten().for_each(|runner| *serving = Arc::downgrade(runner));
    // Who is told may make a layer.
    drop(serving);
    match started {
        None => diag!(Info, "ondemand", "another layer of this process serves requests already"),
        Some(Ok(_)) => {}
        Some(Err(why)) => diag!(Warning, "ondemand", "no requests are served: {why}"),
    }
}

/// Opens the sources that are asked for; says which cannot be.
fn sources(settings: &OnDemand) -> Vec<Box<dyn RequestSource>> {
    let mut sources: Vec<Box<dyn RequestSource>> = Vec::new();
    let mut add = |what: &str, source: io::Result<Box<dyn RequestSource>>| match source {
        Ok(source) => sources.push(source),
        Err(why) => diag!(Warning, "ondemand", "requests {what} are not served: {why}"),
    };
    if settings.asks_daemon() {
        add("from the dynolog daemon", Client::new(settings).map(|client| Box::new(client) as Box<dyn RequestSource>));
    }
    if let Some(folder) = &settings.trigger_folder {
        sources.push(Box::new(Trigger::new(folder, settings.trusted)));
    }
    sources
}
