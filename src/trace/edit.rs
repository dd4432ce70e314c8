//! What a program changes in the events of its traces before anyone sees them.

use super::value::OwnedValue;
use crate::diag::diag;
use crate::time::Timestamp;
use kineto_trace::activity::{Activity, ArgValue, Args, Flow, Track};
use kineto_trace::rows::{Rows, SliceRow};
use std::fmt;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// An event on its way out, for [`KinetoLayerBuilder::post_process`](crate::KinetoLayerBuilder::post_process) to change.
pub struct EventEdit<'t> {
    activity: Activity<'t>,
    name: Option<String>,
    /// Arguments by key; `None` for those that are taken away.
    args: Vec<(String, Option<OwnedValue>)>,
    left_out: bool,
}

impl fmt::Debug for EventEdit<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EventEdit")
            .field("name", &self.name.as_deref().unwrap_or(self.activity.name))
            .finish_non_exhaustive()
    }
}

/// What is called with every event.
#[derive(Clone)]
pub(crate) struct PostProcess(pub(crate) Arc<dyn Fn(&mut EventEdit<'_>) + Send + Sync>);

impl<'t> EventEdit<'t> {
    /// Returns the event as it was recorded.
    pub fn activity(&self) -> &Activity<'t> {
        &self.activity
    }

    /// Gives it another name.
    pub fn rename(&mut self, name: impl Into<String>) {
        self.name = Some(name.into());
    }

    /// Sets an argument: in place of the one with that key, else behind all others.
    pub fn set_arg(&mut self, key: impl Into<String>, value: ArgValue<'_>) {
        self.change(key.into(), Some(OwnedValue::of(value)));
    }

    /// Takes an argument away.
    pub fn remove_arg(&mut self, key: impl Into<String>) {
        self.change(key.into(), None);
    }

    /// Leaves the event out, with its ends of arrows.
    pub fn leave_out(&mut self) {
        self.left_out = true;
    }

    fn change(&mut self, key: String, value: Option<OwnedValue>) {
        match self.args.iter_mut().find(|(known, _)| *known == key) {
            Some((_, known)) => *known = value,
            None => self.args.push((key, value)),
        }
    }

    fn is_untouched(&self) -> bool {
        self.name.is_none() && self.args.is_empty() && !self.left_out
    }
}

/// The arguments as they were changed.
impl Args for EventEdit<'_> {
    fn visit(&self, each: &mut dyn FnMut(&str, ArgValue<'_>)) {
        let mut replaced = vec![false; self.args.len()];
        self.activity.args.visit(&mut |key, value| {
            let changed = self.args.iter().zip(&mut replaced).find(|((known, _), _)| known == key);
            match changed {
                Some(((_, value), replaced)) => {
                    *replaced = true;
                    value.iter().for_each(|value| each(key, value.show()));
                }
                None => each(key, value),
            }
        });
        for ((key, value), _) in self.args.iter().zip(replaced).filter(|(_, replaced)| !replaced) {
            value.iter().for_each(|value| each(key, value.show()));
        }
    }
}

impl PostProcess {
    /// Delivers the events to `rows`, as the program has changed them.
    pub(super) fn around<'r>(&'r self, rows: &'r mut dyn Rows) -> Edited<'r> {
        Edited { rows, edit: self, left_out: false }
    }

    /// What the program makes of an event; one at which it panics stays as it was recorded.
    fn edited<'t>(&self, activity: Activity<'t>) -> EventEdit<'t> {
        let untouched = || EventEdit { activity, name: None, args: Vec::new(), left_out: false };
        let mut event = untouched();
        if catch_unwind(AssertUnwindSafe(|| (self.0)(&mut event))).is_err() {
            diag!(Warning, "post-process", "the program's post_process panicked; the event stays as it was recorded");
            return untouched();
        }
        event
    }
}

impl fmt::Debug for PostProcess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostProcess").finish_non_exhaustive()
    }
}

/// Rows on their way through what the program changes.
pub(super) struct Edited<'r> {
    rows: &'r mut dyn Rows,
    edit: &'r PostProcess,
    /// The event before was left out; so are its arrows, which follow it.
    left_out: bool,
}

impl Edited<'_> {
    fn pass(&mut self, event: &EventEdit<'_>) -> io::Result<()> {
        self.left_out = event.left_out;
        if event.left_out {
            return Ok(());
        }
        let name = event.name.as_deref().unwrap_or(event.activity.name);
        let mut edited = event.activity;
        (edited.name, edited.args) = (name, event);
        self.rows.activity(&edited)
    }
}

impl Rows for Edited<'_> {
    fn next(&mut self) -> Option<&mut dyn Rows> {
        Some(self.rows)
    }
    fn slice(&mut self, slice: &SliceRow<'_>) -> io::Result<()> {
        let event = self.edit.edited(slice.activity());
        if event.is_untouched() {
            self.left_out = false;
            return self.rows.slice(slice);
        }
        self.pass(&event)
    }
    fn activity(&mut self, activity: &Activity<'_>) -> io::Result<()> {
        let event = self.edit.edited(*activity);
        self.pass(&event)
    }
    fn flow(&mut self, at: Timestamp, track: Track<'_>, flow: Flow) -> io::Result<()> {
        if self.left_out { Ok(()) } else { self.rows.flow(at, track, flow) }
    }
}
