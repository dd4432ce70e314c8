//! What a trace shows of a callsite.

use super::{EventRole, Site};
use crate::encoding::encoded;
use kineto_model::activity::{ActivityType, RecordScope};
use std::borrow::Cow;

/// A callsite and its decisions when a trace was made. The texts are the program's own, or those of a file.
#[derive(Clone, Debug)]
pub(crate) struct SiteDescription {
    pub(crate) name: Cow<'static, str>,
    pub(crate) target: Cow<'static, str>,
    pub(crate) file: Option<Cow<'static, str>>,
    pub(crate) line: Option<u32>,
    pub(crate) level: Cow<'static, str>,
    /// The names of its fields; a field of a record is an index into this list.
    pub(crate) fields: Vec<Cow<'static, str>>,
    /// The class of its slices.
    pub(crate) class: ActivityType,
    /// The scope of its spans by target, unless one of its fields can set the scope.
    pub(crate) scope: Option<RecordScope>,
    /// Whether its events are counters.
    pub(crate) is_counter: bool,
    /// Whether its spans are recorded.
    pub(crate) is_recorded: bool,
}

encoded! {
    SiteDescription { name, target, file, line, level, fields, class, scope, is_counter, is_recorded }
}

impl SiteDescription {
    /// Returns the description of a callsite of which a file says nothing.
    pub(crate) fn unknown() -> SiteDescription {
        SiteDescription {
            name: "unknown".into(),
            target: "".into(),
            file: None,
            line: None,
            level: "TRACE".into(),
            fields: Vec::new(),
            class: ActivityType::CpuOp,
            scope: None,
            is_counter: false,
            is_recorded: true,
        }
    }

    pub(super) fn of_site(site: &Site) -> SiteDescription {
        let metadata = site.metadata;
        let mut fields = Vec::new();
        for field in metadata.fields() {
            fields.push(Cow::from(field.name()));
        }
        for field in site.added_fields {
            fields.push(Cow::from(*field));
        }
        SiteDescription {
            name: metadata.name().into(),
            target: metadata.target().into(),
            file: metadata.file().map(Cow::from),
            line: metadata.line(),
            level: metadata.level().as_str().into(),
            fields,
            class: site.class(),
            scope: site.scope,
            is_counter: site.event == EventRole::Counter,
            is_recorded: site.is_recorded(),
        }
    }

    /// Returns the index of the field with that name.
    pub(crate) fn field_index(&self, name: &str) -> Option<usize> {
        self.fields.iter().position(|field| field == name)
    }

    /// Returns its place in the source, such as "src/main.rs:7".
    pub(crate) fn location(&self) -> Option<String> {
        Some(format!("{}:{}", self.file.as_ref()?, self.line?))
    }
}
