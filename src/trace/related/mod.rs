//! Relations between rows: found by a separate walk, and added to the rows when they are delivered.

pub(super) mod backward;
mod groups;
pub(super) mod operations;

use crate::callsite::SiteDescription;
use backward::{Addition, EVALUATE, FORWARD_THREAD, ForwardOperations, Node, SCOPE, SEQUENCE, is_operation};
use groups::Groups;
use kineto_base::fallible::List;
use kineto_model::activity::catalogue::lookup_field;
use kineto_model::activity::{Activity, ArgValue, Args};
use kineto_model::rows::{Rows, SliceRow};
use std::io;

/// The result of a walk: an entry for each operation with a sequence number and each process group.
#[derive(Debug, Default)]
pub(super) struct Related {
    /// In the order of the rows.
    pub(super) additions: List<Addition>,
    pub(super) groups: Groups,
}

/// Collects relations from all rows.
#[derive(Debug, Default)]
pub(super) struct Finder {
    row: u64,
    operations: ForwardOperations,
    groups: Groups,
}

/// Forwards rows, which must arrive in the order of the walk, with the additions.
pub(super) struct WithRelated<'r> {
    pub(super) rows: &'r mut dyn Rows,
    /// The number of rows that were forwarded.
    pub(super) row: u64,
    pub(super) left: &'r [Addition],
}

/// The arguments of a row, and those that it shares with others.
struct RelatedOperations<'s> {
    args: &'s dyn Args,
    addition: &'s Addition,
}

impl Finder {
    /// The arguments that relate rows to each other.
    pub(super) const KEYS: [&str; 2] = [SEQUENCE, "Collective name"];

    /// Returns whether spans of a callsite may relate to other rows.
    pub(super) fn may_need(site: &SiteDescription) -> bool {
        let mut keys = site.fields.iter().filter_map(|field| lookup_field(field)).map(|entry| entry.key);
        keys.any(|key| Finder::KEYS.contains(&key))
    }

    pub(super) fn finish(self, with_arrows: bool) -> Related {
        Related { additions: self.operations.join_operations(with_arrows), groups: self.groups }
    }
}

impl Rows for Finder {
    fn write_slice(&mut self, slice: &SliceRow<'_>) -> io::Result<()> {
        let site = slice.args.site;
        if site.keys.is_collective() {
            self.groups.add_row(&slice.to_activity());
        }
        let says_scope = site.scope.is_some() || site.keys.has_argument(SCOPE);
        if site.keys.has_argument(SEQUENCE) || says_scope || slice.name.unwrap_or(&site.name).starts_with(EVALUATE) {
            self.operations.add_row(self.row, &slice.to_activity());
        } else if is_operation(site.kind) {
            // It has no sequence number and shares none.
            self.operations.enclosing = None;
        }
        self.row += 1;
        Ok(())
    }

    fn write_activity(&mut self, activity: &Activity<'_>) -> io::Result<()> {
        if is_operation(activity.kind) {
            self.groups.add_row(activity);
            self.operations.add_row(self.row, activity);
        }
        self.row += 1;
        Ok(())
    }
}

impl<'r> WithRelated<'r> {
    /// Returns the addition to the next row.
    fn next_addition(&mut self) -> Option<&'r Addition> {
        let row = self.row;
        self.row += 1;
        let (first, left) = self.left.split_first().filter(|(first, _)| first.row == row)?;
        self.left = left;
        Some(first)
    }
}

impl Rows for WithRelated<'_> {
    fn next_receiver(&mut self) -> Option<&mut dyn Rows> {
        Some(self.rows)
    }
    fn write_slice(&mut self, slice: &SliceRow<'_>) -> io::Result<()> {
        match self.next_addition() {
            None => self.rows.write_slice(slice),
            Some(addition) => deliver_with_addition(self.rows, addition, slice.to_activity()),
        }
    }
    fn write_activity(&mut self, activity: &Activity<'_>) -> io::Result<()> {
        match self.next_addition() {
            None => self.rows.write_activity(activity),
            Some(addition) => deliver_with_addition(self.rows, addition, *activity),
        }
    }
}

fn deliver_with_addition(rows: &mut dyn Rows, addition: &Addition, activity: Activity<'_>) -> io::Result<()> {
    let mut activity = activity;
    let args = RelatedOperations { args: activity.args, addition };
    (activity.flow, activity.args) = (addition.flow.or(activity.flow), &args);
    rows.write_activity(&activity)
}

impl Args for RelatedOperations<'_> {
    fn visit(&self, each: &mut dyn FnMut(&str, ArgValue<'_>)) {
        let Some(Node { sequence, forward_thread }) = self.addition.node else { return self.args.visit(each) };
        self.args.visit(&mut |key, value| {
            if key != SEQUENCE && key != FORWARD_THREAD {
                each(key, value);
            }
        });
        each(SEQUENCE, ArgValue::I64(sequence));
        each(FORWARD_THREAD, ArgValue::I64(forward_thread));
    }
}
