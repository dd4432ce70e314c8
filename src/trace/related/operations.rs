//! Adds module hierarchies and overload names to operations, if options enable them.

use super::backward::{FORWARD_THREAD, SCOPE, is_of_backward, is_operation};
use crate::text::joined;
use crate::trace::walk::Walk;
use kineto_base::fallible::List;
use kineto_model::activity::{ArgValue, Args};
use kineto_model::rows::{Rows, SiteRow, SliceRow, SpanArgs};
use std::io;
use std::rc::Rc;

/// Forwards rows, with additions to operations.
pub(in crate::trace) struct WithOperations<'r> {
    rows: &'r mut dyn Rows,
    walk: &'r Walk<'r>,
    sites: List<OperationFields>,
    has_modules: bool,
    /// The last parent, and the modules from the root to it.
    last: (u64, Rc<str>),
}

/// The relevant fields of a callsite.
struct OperationFields {
    module: Option<usize>,
    overload: Option<usize>,
    /// Whether its spans may set their own hierarchy, or be backward operations.
    may_decline: bool,
}

/// The arguments of a slice, with its modules.
struct InModules<'m> {
    modules: Rc<str>,
    marks: Option<&'m dyn Args>,
}

const MODULES: &str = "Module Hierarchy";

impl<'r> WithOperations<'r> {
    /// Forwards rows to `rows`.
    pub(in crate::trace) fn new(walk: &'r Walk<'r>, rows: &'r mut dyn Rows) -> WithOperations<'r> {
        let config = &walk.info.config;
        let fields = |site: &SiteRow| OperationFields {
            module: site.keys.field_index("module").filter(|_| config.flags.with_modules),
            overload: site.keys.field_index("overload_name").filter(|_| config.overload_names),
            may_decline: site.scope.is_some()
                || [MODULES, FORWARD_THREAD, SCOPE].iter().any(|key| site.keys.has_argument(key)),
        };
        let sites: List<OperationFields> = walk.sites.iter().map(fields).collect();
        let has_modules = sites.iter().any(|site| site.module.is_some());
        WithOperations { rows, walk, sites, has_modules, last: (0, "".into()) }
    }

    /// Returns the modules that the spans below `parent` are in.
    fn module_names(&mut self, parent: u64) -> Rc<str> {
        if self.last.0 == parent {
            return self.last.1.clone();
        }
        let mut names: Vec<String> = Vec::new();
        let mut words = List::new();
        for record in self.walk.recorded.definitions_up_from(parent) {
            let site = record.head.site;
            if let Some(field) = self.sites.get(site as usize).and_then(|site| site.module)
                && let Some(name) = self.walk.span_text(record.id(), site, field, &mut words)
            {
                names.push(name.to_owned());
            }
        }
        names.reverse();
        self.last = (parent, joined(&names, ".").into());
        self.last.1.clone()
    }

    fn overload_name(&self, span: u64, site: &SiteRow) -> Option<String> {
        let field = self.sites.get(site.number)?.overload?;
        let mut words = List::new();
        let overload = self.walk.span_text(span, u32::try_from(site.number).ok()?, field, &mut words);
        overload.filter(|overload| !overload.is_empty()).map(str::to_owned)
    }
}

impl Rows for WithOperations<'_> {
    fn next_receiver(&mut self) -> Option<&mut dyn Rows> {
        Some(self.rows)
    }
    fn write_slice(&mut self, slice: &SliceRow<'_>) -> io::Result<()> {
        let SpanArgs { span, parent, site, marks, .. } = slice.args;
        if !is_operation(site.kind) {
            return self.rows.write_slice(slice);
        }
        let name =
            self.overload_name(span, site).map(|overload| format!("{}.{overload}", slice.name.unwrap_or(&site.name)));
        let may_decline = self.sites.get(site.number).is_some_and(|site| site.may_decline);
        let is_in_some = self.has_modules && parent != 0 && !(may_decline && declines_modules(&slice.args));
        let in_modules = is_in_some.then(|| InModules { modules: self.module_names(parent), marks });
        let in_modules = in_modules.as_ref().filter(|some| !some.modules.is_empty());
        let args = SpanArgs { marks: in_modules.map_or(marks, |some| Some(some)), ..slice.args };
        self.rows.write_slice(&SliceRow { name: name.as_deref().or(slice.name), args, ..*slice })
    }
}

/// Returns whether an operation sets its own hierarchy, or is a backward one.
fn declines_modules(args: &dyn Args) -> bool {
    let mut declines = false;
    args.visit(&mut |key, value| {
        declines |= key == MODULES || is_of_backward(key, value);
    });
    declines
}

impl Args for InModules<'_> {
    fn visit(&self, each: &mut dyn FnMut(&str, ArgValue<'_>)) {
        each(MODULES, ArgValue::Str(&self.modules));
        if let Some(marks) = &self.marks {
            marks.visit(each);
        }
    }
}
