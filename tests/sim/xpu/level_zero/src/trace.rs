//! Tells the tracer what happens in Level Zero and in the SYCL runtime.

use crate::control::{MACHINE, options};
use crate::shared::apis::Api;
use crate::shared::clock::now;
use crate::shared::tracer::{Call, Event, Report, Work};

/// Runs the body of an API function, and then calls the tracer.
pub(crate) fn call<T>(api: &Api, correlation: u32, serve: impl FnOnce() -> T) -> T {
    let start = now();
    let served = serve();
    let (group, id) = (api.group, api.id);
    MACHINE.tell(Event::Left(&mut Call { group, id, correlation, result: 0, start, end: now() }));
    served
}

/// Returns the id of the next call.
pub(crate) fn next_correlation() -> u32 {
    MACHINE.next_correlation(options().repeat_correlation) as u32
}

pub(crate) fn completed(work: &[Work]) {
    if !work.is_empty() {
        MACHINE.tell(Event::Work(work));
    }
}

pub(crate) fn report(report: Report) {
    MACHINE.tell(Event::Report(&report));
}
