//! External requests: their sources, how they are served, and the files that they write.

mod alarm;
mod dynolog;
mod job;
mod machine;
mod place;
mod plan;
mod reload;
mod request;
mod runner;
mod source;
mod trigger;
mod wakeup;

use crate::config::OnDemandConfig;
use crate::diag::diag;
use crate::os::{fork, process};
use crate::session::Session;
use crate::wait::steady;
use alarm::Alarm;
use dynolog::DaemonClient;
use reload::ConfigReloader;
use runner::Runner;
use source::RequestSource;
use std::io;
use std::sync::{Arc, Weak};
use trigger::Trigger;

/// The runner that serves requests. There is one in a process, because the daemon knows processes, not layers.
static SERVING: fork::Own<Weak<Runner>> = fork::Own::of_first(Weak::new());

/// Serves requests from all configured sources on a new thread. Only a recording that begins now is started here.
pub(crate) fn serve_requests(session: &Arc<Session>) {
    if process::has_untrusted_caller() {
        return diag!(
            Warning,
            "ondemand",
            "no requests are served: on-demand tracing is disabled in set-user-ID programs; run it without that bit, or call \
             `KinetoLayerBuilder::trust_caller`"
        );
    }
    let mut serving = SERVING.lock();
    let is_served = serving.upgrade().is_some_and(|runner| !runner.is_closing());
    let runner = (!is_served).then(|| Runner::new(session));
    runner.iter().flatten().for_each(|runner| *serving = Arc::downgrade(runner));
    // The sink of a message may build a layer.
    drop(serving);
    match runner.map(|runner| start_runner(session, runner?)) {
        None => diag!(Info, "ondemand", "another layer of this process serves requests already"),
        Some(Ok(())) => {}
        Some(Err(why)) => {
            diag!(Warning, "ondemand", "no requests are served: {why}; raise the limits on threads and files (ulimit)");
        }
    }
}

/// Starts a recording that begins now, and the thread for everything else.
fn start_runner(session: &Arc<Session>, runner: Arc<Runner>) -> io::Result<()> {
    let (settings, now) = (session.settings.next_config(), steady());
    let timetable = settings.ondemand.timetable.clone();
    // The parent serves the timetable; a forked child does not repeat it.
    let has_alarm = timetable.is_wanted() && !session.requests.is_of_parent();
    let mut alarm = has_alarm.then(|| Alarm::new(timetable, session.settings.scheduled_output(), now));
    let first = alarm.as_mut().map(|alarm| alarm.poll_requests(now, true)).unwrap_or_default();
    runner.start_serving(session, &first, ConfigReloader::new(settings.clone()), move || {
        open_sources(&settings.ondemand, alarm)
    })
}

/// Opens the configured sources; reports those that fail.
fn open_sources(settings: &OnDemandConfig, alarm: Option<Alarm>) -> Vec<Box<dyn RequestSource>> {
    let mut sources: Vec<Box<dyn RequestSource>> = Vec::new();
    sources.extend(alarm.map(|alarm| -> Box<dyn RequestSource> { Box::new(alarm) }));
    if settings.needs_daemon_client() {
        // It exists even while it does not poll: the configuration file may enable polling later.
        match DaemonClient::new(settings) {
            Ok(client) => sources.push(Box::new(client)),
            Err(why) => diag!(
                Warning,
                "ondemand",
                "requests from the dynolog daemon are not served: {why}; correct it and restart the program"
            ),
        }
    }
    if let Some(folder) = &settings.trigger_folder {
        sources.push(Box::new(Trigger::new(folder, settings.trusted_uid)));
    }
    sources
}

/// Decodes a datagram of the daemon, and reads the request in it.
#[cfg(fuzzing)]
pub fn read_datagram(datagram: &[u8]) {
    let Ok(text) = dynolog::wire::decode_answer(datagram) else { return };
    let config = crate::config::Config::default();
    let incoming = source::Incoming { text: text.to_owned(), by: "a target".to_owned(), output: None, answer: None };
    let values = crate::config::PlaceholderValues { pid: 7, ..config.placeholder_values() };
    if let Ok(request) = request::Request::from_incoming(&incoming, &config.ondemand, &values) {
        assert!(request.output.starts_with(&config.ondemand.trace_folder), "{request}");
    }
}
