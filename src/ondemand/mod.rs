//! Requests from outside: who hands them over, what becomes of them, and the files that they end in.

mod ancestors;
mod bell;
mod client;
mod fabric;
mod machine;
mod pace;
mod place;
mod plan;
mod request;
mod runner;
mod source;
mod wire;

use crate::diag::diag;
use crate::os::fork;
use crate::session::Session;
use client::Client;
use runner::Runner;
use source::RequestSource;
use std::sync::{Arc, LazyLock, Weak};

/// Who serves requests in this process: the daemon knows it as one, whichever layers it has.
static SERVING: LazyLock<fork::Own<Weak<Runner>>> = LazyLock::new(fork::Own::default);

/// Has the daemon asked for requests, which the session does; on a thread of its own, and nothing here waits.
pub(crate) fn serve(session: &Arc<Session>) {
    let settings = session.ondemand().clone();
    let open = move || {
        let client = Client::new(&settings);
        client.map(|client| vec![Box::new(client) as Box<dyn RequestSource>])
    };
    let mut serving = SERVING.lock();
    let is_served = serving.upgrade().is_some_and(|runner| !runner.is_closing());
    let started = (!is_served).then(|| Runner::start(session, open));
    started.iter().flatten().for_each(|runner| *serving = Arc::downgrade(runner));
    // Who is told may make a layer.
    drop(serving);
    match started {
        None => diag!(Info, "ondemand", "another layer of this process serves requests from the daemon already"),
        Some(Ok(_)) => {}
        Some(Err(why)) => diag!(Warning, "ondemand", "requests from the dynolog daemon are not served: {why}"),
    }
}
