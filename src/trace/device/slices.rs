//! What the rows of devices show of the slices that they belong to.

use crate::fields::Word;
use crate::trace::thread::args::FieldArgs;
use crate::trace::walk::Walk;
use kineto_base::fallible::List;
use kineto_model::activity::ArgValue;
use kineto_model::activity::catalogue::{Owner, lookup_field};

impl Walk<'_> {
    /// Returns the name of a slice; empty if there is no such slice.
    pub(super) fn slice_name<'b>(&'b self, slice: u64, words: &'b mut List<Word>) -> &'b str {
        let Some(record) = self.recorded.find_record(slice) else { return "" };
        let named = self.span_name(record.span_id(), record.head.site, words);
        named.or_else(|| self.sites.get(record.head.site as usize).map(|site| &*site.name)).unwrap_or("")
    }

    /// Shows the arguments of a slice that belong to a collective operation.
    pub(super) fn show_collective(&self, slice: u64, each: &mut dyn FnMut(&str, ArgValue<'_>)) {
        let Some(record) = self.recorded.find_record(slice) else { return };
        let site = self.sites.get(record.head.site as usize);
        if site.is_none_or(|site| !site.keys.is_collective()) {
            return;
        }
        let span = record.span_id();
        let definition = self.recorded.definition_of(&record);
        let args = FieldArgs { walk: self, site: record.head.site, span, definition: definition.as_ref(), slice: 0 };
        self.show_fields(&args, &mut |key, value| {
            if lookup_field(key).is_some_and(|entry| entry.owner == Owner::Collective && entry.key == key) {
                each(key, value);
            }
        });
    }
}
