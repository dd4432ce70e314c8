//! ITT: spans as tasks for Intel's VTune or another collector.
//!
//! Follows torch's `itt_observer.cpp` and `torch.profiler.itt`. Without a collector (`INTEL_LIBITTNOTIFY64`, which VTune sets
//! for the programs that it runs) nothing happens.

mod client;
mod names;

use super::{ObservedSpan, SpanObserver};
use client::Domain;
use kineto_devices::{Unavailable, Why};
use names::StringHandles;
use std::sync::OnceLock;

/// Begins and ends tasks of one domain.
#[derive(Debug)]
pub(crate) struct Itt {
    domain: String,
    open: OnceLock<Option<Domain>>,
    names: StringHandles,
}

impl Itt {
    pub(crate) fn new(domain: String) -> Itt {
        Itt { domain, open: OnceLock::new(), names: StringHandles::default() }
    }

    /// Returns the domain; `None` if no collector is attached.
    fn domain(&self) -> Option<Domain> {
        *self.open.get_or_init(|| Domain::new(&self.domain))
    }

    fn begin_task(&self, name: &str) {
        if let Some(domain) = self.domain() {
            domain.begin_task(self.names.handle_for(name));
        }
    }

    fn end_task(&self) {
        if let Some(domain) = self.domain() {
            domain.end_task();
        }
    }
}

impl SpanObserver for Itt {
    fn name(&self) -> &'static str {
        "itt"
    }

    fn start(&self) -> Result<(), Unavailable> {
        let advice = "run the program under VTune, or name a collector in INTEL_LIBITTNOTIFY64";
        self.domain().map(|_| ()).ok_or_else(|| Unavailable::new(Why::Disabled, "no collector listens to ITT", advice))
    }

    fn enter(&self, span: &ObservedSpan) {
        self.begin_task(span.name());
    }

    fn exit(&self, _: &ObservedSpan) {
        self.end_task();
    }

    /// Emits a task that ends at once, like torch's `mark`.
    fn event(&self, event: &ObservedSpan) {
        self.begin_task(event.name());
        self.end_task();
    }
}

/// Returns the client for manual tasks, in the domain "PyTorch" as in `torch.profiler.itt`.
fn manual_client() -> &'static Itt {
    static MANUAL_CLIENT: OnceLock<Itt> = OnceLock::new();
    MANUAL_CLIENT.get_or_init(|| Itt::new("PyTorch".to_owned()))
}

/// Returns whether a collector is attached (`torch.profiler.itt.is_available`).
pub fn is_available() -> bool {
    manual_client().domain().is_some()
}

/// Begins a task on the calling thread (`range_push`).
pub fn range_push(name: &str) {
    manual_client().begin_task(name);
}

/// Ends the task that the calling thread began last (`range_pop`).
pub fn range_pop() {
    manual_client().end_task();
}

/// Marks a point in time: a task that ends at once (`mark`).
pub fn mark(name: &str) {
    range_push(name);
    range_pop();
}

/// Begins a task that ends when the value is dropped, on the same thread (`range`).
pub fn range(name: &str) -> Range {
    range_push(name);
    Range { _thread: std::marker::PhantomData }
}

/// A task; see [`range`].
#[derive(Debug)]
#[must_use = "dropping it ends the task"]
pub struct Range {
    _thread: std::marker::PhantomData<*const ()>,
}

impl Drop for Range {
    fn drop(&mut self) {
        range_pop();
    }
}
