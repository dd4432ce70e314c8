//! A program's changes to the events of its traces.

use crate::diag::diag;
use crate::time::Timestamp;
use kineto_model::activity::{Activity, ArgValue, Args, Flow, Track};
use kineto_model::rows::{Rows, SliceRow};
use kineto_model::write::OwnedValue;
use std::fmt;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// An event before its delivery, for [`KinetoLayerBuilder::post_process`](crate::KinetoLayerBuilder::post_process) to change.
///
/// ```
/// use tracing_kineto::{ArgValue, KinetoLayer};
///
/// let builder = KinetoLayer::builder().post_process(|event| {
///     if event.activity().name == "heartbeat" {
///         event.leave_out();
///     }
///     event.set_arg("host", ArgValue::Str("node-7"));
/// });
/// ```
pub struct EventEdit<'t> {
    activity: Activity<'t>,
    name: Option<String>,
    /// Changed arguments by key; `None` if removed.
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

/// The program's callback for every event.
#[derive(Clone)]
pub(crate) struct PostProcess(pub(crate) Arc<dyn Fn(&mut EventEdit<'_>) + Send + Sync>);

impl<'t> EventEdit<'t> {
    /// Returns the event as it was recorded.
    pub fn activity(&self) -> &Activity<'t> {
        &self.activity
    }

    /// Renames the event.
    pub fn rename(&mut self, name: impl Into<String>) {
        self.name = Some(name.into());
    }

    /// Sets an argument: replaces the one with that key, or is added as the last.
    pub fn set_arg(&mut self, key: impl Into<String>, value: ArgValue<'_>) {
        self.change_arg(key.into(), Some(OwnedValue::from_arg_value(value)));
    }

    /// Removes an argument.
    pub fn remove_arg(&mut self, key: impl Into<String>) {
        self.change_arg(key.into(), None);
    }

    /// Leaves the event out, with its ends of arrows.
    pub fn leave_out(&mut self) {
        self.left_out = true;
    }

    fn change_arg(&mut self, key: String, value: Option<OwnedValue>) {
        match self.args.iter_mut().find(|(known, _)| *known == key) {
            Some((_, known)) => *known = value,
            None => self.args.push((key, value)),
        }
    }

    fn is_untouched(&self) -> bool {
        self.name.is_none() && self.args.is_empty() && !self.left_out
    }
}

/// The changed arguments.
impl Args for EventEdit<'_> {
    fn visit(&self, each: &mut dyn FnMut(&str, ArgValue<'_>)) {
        let mut replaced = vec![false; self.args.len()];
        self.activity.args.visit(&mut |key, value| {
            let changed = self.args.iter().zip(&mut replaced).find(|((known, _), _)| known == key);
            match changed {
                Some(((_, value), replaced)) => {
                    *replaced = true;
                    if let Some(value) = &value {
                        each(key, value.as_arg_value());
                    }
                }
                None => each(key, value),
            }
        });
        for ((key, value), is_replaced) in self.args.iter().zip(replaced) {
            if let (Some(value), false) = (value, is_replaced) {
                each(key, value.as_arg_value());
            }
        }
    }
}

impl PostProcess {
    /// Returns the changed event; if the callback panics, the event stays unchanged.
    fn edit_activity<'t>(&self, activity: Activity<'t>) -> EventEdit<'t> {
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

/// Forwards rows with the program's changes.
pub(super) struct EditedRows<'r> {
    pub(super) rows: &'r mut dyn Rows,
    pub(super) edit: &'r PostProcess,
    /// Whether the last event was left out; its arrows, which follow it, are left out too.
    pub(super) left_out: bool,
}

impl EditedRows<'_> {
    fn deliver_edited(&mut self, event: &EventEdit<'_>) -> io::Result<()> {
        self.left_out = event.left_out;
        if event.left_out {
            return Ok(());
        }
        let name = event.name.as_deref().unwrap_or(event.activity.name);
        let mut edited = event.activity;
        (edited.name, edited.args) = (name, event);
        self.rows.write_activity(&edited)
    }
}

impl Rows for EditedRows<'_> {
    fn next_receiver(&mut self) -> Option<&mut dyn Rows> {
        Some(self.rows)
    }
    fn write_slice(&mut self, slice: &SliceRow<'_>) -> io::Result<()> {
        let event = self.edit.edit_activity(slice.to_activity());
        if event.is_untouched() {
            self.left_out = false;
            return self.rows.write_slice(slice);
        }
        self.deliver_edited(&event)
    }
    fn write_activity(&mut self, activity: &Activity<'_>) -> io::Result<()> {
        let event = self.edit.edit_activity(*activity);
        self.deliver_edited(&event)
    }
    fn write_flow(&mut self, at: Timestamp, track: Track<'_>, flow: Flow) -> io::Result<()> {
        if self.left_out { Ok(()) } else { self.rows.write_flow(at, track, flow) }
    }
}
