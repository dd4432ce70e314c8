//! Checks of the trace.

use crate::STEPS;
use crate::program::ROWS;
use std::error::Error;
use tracing_kineto::analysis::Event;
use tracing_kineto::integration::DeferredEvents;
use tracing_kineto::{ActivityType, Trace};

/// The checks, and the facts about the run that they need.
#[derive(Debug, Default)]
pub(crate) struct Checks {
    /// The times of each step's submission and observed end, by the collector's clock.
    steps: Vec<[u64; 2]>,
    /// Whether the GPU's clock is known to be CLOCK_MONOTONIC.
    ticks_are_known: bool,
    failed: usize,
}

impl Checks {
    pub(crate) fn new(ticks_are_known: bool) -> Checks {
        Checks { ticks_are_known, ..Checks::default() }
    }

    pub(crate) fn step(&mut self, before: u64, after: u64) {
        self.steps.push([before, after]);
    }

    fn check(&mut self, what: &str, passes: bool, seen: impl std::fmt::Display) {
        self.failed += usize::from(!passes);
        println!("{}  {what}: {seen}", if passes { "PASS" } else { "FAIL" });
    }

    /// Returns whether all checks passed.
    pub(crate) fn end(&self) -> bool {
        self.failed == 0
    }

    pub(crate) fn trace(&mut self, trace: &Trace, events: &DeferredEvents) -> Result<(), Box<dyn Error>> {
        let alignment = events.alignment().ok_or("nothing came from the GPU")?;
        let stats = trace.stats();
        let report = stats.collectors.iter().find(|report| report.name == "wgpu").ok_or("no report")?;
        println!("{alignment}; by CLOCK_REALTIME {} ns", report.clock_error_ns);

        let all = trace.events();
        let device =
            |event: &Event<'_>| matches!(event.kind(), Some(ActivityType::ConcurrentKernel | ActivityType::GpuMemcpy));
        let mut rows: Vec<_> = all.iter().filter(device).collect();
        rows.sort_by_key(|row| row.start());
        let found: Vec<_> = rows.iter().filter_map(|row| Some((row.kind()?, row.name()))).collect();
        let wanted: Vec<_> = (0..STEPS).flat_map(|_| ROWS).collect();
        self.check("every copy and pass is there, in order", found == wanted, format_args!("{} rows", found.len()));

        let apart = rows.is_sorted_by(|a, b| a.end() <= b.start());
        self.check("none overlaps the next", apart, "in order");
        let encoded = |row: &&Event<'_>| {
            let linked = row.linked().and_then(|id| all.iter().find(|event| event.id() == Some(id)));
            linked.is_some_and(|span| span.name() == "encode")
        };
        let linked = rows.iter().filter(encoded).count();
        self.check("each is of the span that encoded it", linked == rows.len(), linked);
        self.within(&rows, events, report.clock_error_ns)?;

        // The clock of Mesa's CPU driver is CLOCK_MONOTONIC, so the real error of the alignment is known.
        let now = events.now();
        let located = events.locate(now).filter(|_| self.ticks_are_known);
        if let Some((at, error)) = located {
            self.check("the error is no greater than said", at.abs_diff(now) <= error, at.abs_diff(now));
        }
        let losses = format!("{:?}", stats.losses);
        self.check("nothing is lost", stats.losses.is_empty(), losses);
        self.check("no time contradicts what the host saw", alignment.contradicted == 0, alignment.contradicted);
        Ok(())
    }

    /// Checks that each row lies between its submission and its observed end.
    fn within(&mut self, rows: &[Event<'_>], events: &DeferredEvents, error_ns: u64) -> Result<(), Box<dyn Error>> {
        // The collector's clock is CLOCK_MONOTONIC, a trace's is CLOCK_REALTIME.
        let unix = u64::try_from(std::time::SystemTime::UNIX_EPOCH.elapsed()?.as_nanos())?;
        let ahead = unix - events.now();
        let slack = error_ns + 100_000;
        let outside = rows.iter().zip((0..).map(|nth| nth / ROWS.len())).filter(|(row, step)| {
            let [before, after] = self.steps.get(*step).copied().unwrap_or_default();
            let (before, after) = (before + ahead, after.saturating_add(ahead));
            row.start().as_nanos() + slack < before || row.end().as_nanos() > after.saturating_add(slack)
        });
        let outside = outside.count();
        self.check("each lies between submission and poll", outside == 0, format_args!("{outside} do not"));
        Ok(())
    }
}
