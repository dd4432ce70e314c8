//! Decisions that are made once for each callsite: its class, its recorded fields, whether it is recorded.

mod description;
mod each_field;

pub(crate) use description::SiteDescription;
pub(crate) use each_field::EachField;

use crate::encoding::Encoded;
use crate::live::{JournalKind, LiveFile, LiveHandle};
use crate::os::fork::PerProcess;
use crate::recorder::state;
use kineto_base::fallible::List;
use kineto_base::hash::HashMap;
use kineto_model::activity::{ActivityType, ActivityTypes, RecordScope, catalogue};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockWriteGuard};
use std::time::Duration;
use tracing_core::{Level, Metadata};
use tracing_subscriber::filter::Targets;

/// The most fields of a callsite that are recorded: a bit each.
pub(crate) const FIELDS_MAX: usize = 64;
/// The field that makes a span of that callsite a user annotation; [`annotate!`](crate::annotate) sets it.
pub(crate) const ANNOTATION_FIELD: &str = "kineto.annotation";
/// The field whose first value decides the class of its callsite.
pub(crate) const KIND_FIELD: &str = "kineto.kind";
/// The field that decides whether a span is one call ("span") or each of its enters is one ("enter").
pub(crate) const CALL_FIELD: &str = "kineto.call";
pub(crate) use kineto_model::keys::NAME_FIELD;
/// The target of events that are counters; [`counter!`](crate::counter) sets it.
pub(crate) const COUNTER_TARGET: &str = "kineto::counter";
/// The target of events that are always instants, regardless of the configured level.
pub(crate) const INSTANT_TARGET: &str = "kineto::instant";
/// The target of collective operations; [`Collective`](crate::Collective) uses it.
pub(crate) const COMMS_TARGET: &str = "kineto::comms";

/// Decides the class of a callsite's spans; `None` leaves the decision to the other rules.
pub(crate) type Classifier = dyn Fn(&Metadata<'_>) -> Option<ActivityType> + Send + Sync;

/// The rules that decide about callsites; a plain value derived from the configuration.
#[derive(Clone, Default)]
pub(crate) struct Rules {
    pub(crate) selected: ActivityTypes,
    pub(crate) filter: Option<Arc<Targets>>,
    pub(crate) classifier: Option<Arc<Classifier>>,
    pub(crate) annotation_targets: Vec<String>,
    pub(crate) with_args: bool,
    pub(crate) denied_fields: Vec<String>,
    /// Events up to this level are recorded as instants.
    pub(crate) events: Option<Level>,
    /// The scopes that are recorded; empty means all.
    pub(crate) scopes: Vec<RecordScope>,
    /// The scopes of spans by prefix of their target; the longest prefix wins.
    pub(crate) scope_targets: Vec<(String, RecordScope)>,
    /// The spans with stacks, if stacks are recorded; all if unset.
    pub(crate) stacks: Option<Arc<Targets>>,
    /// Names of spans, and the duration above which each triggers a dump.
    pub(crate) slow_spans: Vec<(String, Duration)>,
    /// Events up to this level trigger a dump.
    pub(crate) dump_events: Option<Level>,
    /// Fields that every callsite has after its own.
    pub(crate) added_fields: &'static [&'static str],
}

/// A callsite and the decisions about it.
#[derive(Debug)]
pub(crate) struct Site {
    pub(crate) index: u32,
    /// The state that a new span of this callsite has.
    pub(crate) state: u64,
    pub(crate) metadata: &'static Metadata<'static>,
    /// The fields to record, a bit each.
    pub(crate) fields: u64,
    /// The field that decides the class, while it is undecided.
    pub(crate) kind_field: Option<usize>,
    /// Whether its spans need their values to be created.
    pub(crate) needs_values: bool,
    /// The scope of its spans by target, unless one of its fields can set the scope.
    pub(crate) scope: Option<RecordScope>,
    /// The recorded scopes, if fields set the scope of a span and not all scopes are recorded.
    pub(crate) scopes: Option<Box<Scopes>>,
    /// The record of its events.
    pub(crate) event: EventRole,
    /// Whether its spans have stacks, if stacks are recorded.
    pub(crate) has_stacks: bool,
    /// The duration above which one of its spans triggers a dump.
    pub(crate) slow_after: Option<Duration>,
    /// Whether its events trigger a dump.
    pub(crate) triggers_dump: bool,
    /// The fields after those of `metadata`.
    pub(crate) added_fields: &'static [&'static str],
    class: AtomicU8,
}

/// The spans of a callsite that are recorded, by scope.
#[derive(Debug)]
pub(crate) struct Scopes {
    pub(crate) fields: ScopeFields,
    recorded: Vec<RecordScope>,
    /// The decision for spans of other scopes.
    excluded: &'static Site,
}

/// The fields that name the scope of a span.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ScopeFields {
    pub(crate) scope: Option<usize>,
    /// The forward thread; other than 0 for a backward operation.
    pub(crate) forward_thread: Option<usize>,
}

impl ScopeFields {
    fn from_metadata(metadata: &Metadata<'_>) -> ScopeFields {
        let field = |key| {
            let mut fields = metadata.fields().iter();
            fields.find(|f| catalogue::lookup_field(f.name()).is_some_and(|entry| entry.key == key)).map(|f| f.index())
        };
        ScopeFields { scope: field("Record function scope"), forward_thread: field("Fwd thread id") }
    }

    pub(crate) fn contains_field(self, field: usize) -> bool {
        [self.scope, self.forward_thread].contains(&Some(field))
    }
}

/// The record of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EventRole {
    Nothing,
    /// An instant; `error` if it also marks the slice around it.
    Instant {
        error: bool,
    },
    /// Only the mark on the slice around it.
    Error,
    Counter,
}

/// Not recorded.
const IGNORED: u8 = 255;
/// Recorded; the first value of `kineto.kind` decides as what.
const UNDECIDED: u8 = 254;

impl Site {
    /// Returns whether spans of this callsite are recorded.
    #[inline(always)]
    pub(crate) fn is_recorded(&self) -> bool {
        // Relaxed: a thread that misses a decision just made records one span more or less.
        self.class.load(Ordering::Relaxed) != IGNORED
    }

    /// Returns whether `kineto.kind` still has to decide.
    #[inline(always)]
    pub(crate) fn is_undecided(&self) -> bool {
        self.class.load(Ordering::Relaxed) == UNDECIDED
    }

    /// Returns the state of its new spans if they have no fields or are not recorded; else 0.
    pub(crate) fn plain_state(&self) -> u64 {
        match self.is_recorded() {
            true if self.fields == 0 && !self.needs_values => self.state,
            true => 0,
            false => self.excluded_state(),
        }
    }

    /// Returns the state of a span that is not recorded.
    pub(crate) fn excluded_state(&self) -> u64 {
        state::new_ignored(self.index) | self.state & state::EXCLUDED_BY_SCOPE
    }

    /// Returns the class of the callsite's slices.
    pub(crate) fn class(&self) -> ActivityType {
        ActivityType::from_number(self.class.load(Ordering::Relaxed)).unwrap_or(ActivityType::CpuOp)
    }

    /// Returns the state of a new span of this callsite, whose class may have been decided since its registration.
    pub(crate) fn new_state(&self) -> u64 {
        let annotates = self.is_recorded() && self.class() == ActivityType::UserAnnotation;
        self.state | if annotates { state::ANNOTATES } else { 0 }
    }

    /// Returns the site to use for a span: this one, or its excluded counterpart if the scope that its fields set is not
    /// recorded. If the class is undecided, the span is of that kind.
    pub(crate) fn of_scope(&'static self, named: Option<RecordScope>, kind: Option<ActivityType>) -> &'static Site {
        let class = || kind.filter(|_| self.is_undecided()).unwrap_or_else(|| self.class());
        let is_recorded = |scopes: &Scopes| scopes.recorded.contains(&named.unwrap_or_else(|| self.scope_as(class())));
        self.scopes.as_ref().filter(|scopes| !is_recorded(scopes)).map_or(self, |scopes| scopes.excluded)
    }

    /// Decides the class by the first value of `kineto.kind`; returns false if that is not a valid kind of spans.
    pub(crate) fn decide_by_kind(&self, kind: &str, rules: &Rules) -> bool {
        let named = kind.parse::<ActivityType>().ok().filter(|kind| kind.is_cpu());
        self.store_class(named.unwrap_or(ActivityType::CpuOp), rules);
        named.is_some()
    }

    /// Returns the scope of spans that set none, as in torch if the target has none.
    fn scope_as(&self, class: ActivityType) -> RecordScope {
        self.scope.unwrap_or(match class {
            ActivityType::UserAnnotation => RecordScope::UserScope,
            _ => RecordScope::Function,
        })
    }

    fn store_class(&self, class: ActivityType, rules: &Rules) {
        // If fields decide, they do so for each span.
        let in_scope = self.scopes.is_some() || rules.scopes.is_empty() || rules.scopes.contains(&self.scope_as(class));
        let recorded = in_scope && rules.selected.contains(class) && rules.is_enabled(self.metadata);
        self.class.store(if recorded { class as u8 } else { IGNORED }, Ordering::Relaxed);
    }
}

/// Returns whether field `index` is one of [`Site::fields`].
#[inline(always)]
pub(crate) fn has_field(fields: u64, index: usize) -> bool {
    index < 64 && fields >> index & 1 != 0
}

impl Rules {
    fn is_enabled(&self, metadata: &Metadata<'_>) -> bool {
        self.filter.as_ref().is_none_or(|filter| filter.would_enable(metadata.target(), metadata.level()))
    }

    /// Returns the class of a callsite's spans; `None` if the first value of `kineto.kind` decides.
    fn decide_class(&self, metadata: &Metadata<'_>) -> Option<ActivityType> {
        let has = |name| metadata.fields().field(name).is_some();
        if has(ANNOTATION_FIELD) {
            return Some(ActivityType::UserAnnotation);
        }
        if has(KIND_FIELD) {
            return None;
        }
        let by_user = self.classifier.as_ref().and_then(|classify| classify(metadata)).filter(|kind| kind.is_cpu());
        let by_target = || self.annotation_targets.iter().any(|prefix| metadata.target().starts_with(prefix.as_str()));
        Some(match by_user {
            Some(kind) => kind,
            None if metadata.target() == COMMS_TARGET && self.selected.contains(ActivityType::CollectiveComm) => {
                ActivityType::CollectiveComm
            }
            None if by_target() => ActivityType::UserAnnotation,
            None => ActivityType::CpuOp,
        })
    }

    fn scope_of_target(&self, target: &str) -> Option<RecordScope> {
        let fits = self.scope_targets.iter().filter(|(prefix, _)| target.starts_with(prefix.as_str()));
        fits.max_by_key(|(prefix, _)| prefix.len()).map(|(_, scope)| *scope)
    }

    fn decide_event_role(&self, metadata: &Metadata<'_>) -> EventRole {
        if !metadata.is_event() || !self.is_enabled(metadata) {
            return EventRole::Nothing;
        }
        if metadata.target() == COUNTER_TARGET {
            return EventRole::Counter;
        }
        let error = *metadata.level() == Level::ERROR;
        let wanted = metadata.target() == INSTANT_TARGET || self.events.is_some_and(|max| *metadata.level() <= max);
        if wanted && self.selected.contains(ActivityType::CpuInstantEvent) {
            EventRole::Instant { error }
        } else if error {
            EventRole::Error
        } else {
            EventRole::Nothing
        }
    }

    fn slow_after(&self, metadata: &Metadata<'_>) -> Option<Duration> {
        let of_name = self.slow_spans.iter().filter(|(name, _)| metadata.is_span() && name == metadata.name());
        of_name.map(|(_, longer_than)| *longer_than).min()
    }

    fn triggers_dump(&self, metadata: &Metadata<'_>) -> bool {
        let is_severe = self.dump_events.is_some_and(|max| *metadata.level() <= max);
        metadata.is_event() && is_severe && self.is_enabled(metadata)
    }

    fn decide_fields(&self, metadata: &Metadata<'_>) -> u64 {
        let denied = |name: &str| self.denied_fields.iter().any(|denied| denied == name);
        let is_arg = |name: &str| match name {
            KIND_FIELD | ANNOTATION_FIELD => false,
            NAME_FIELD | CALL_FIELD => true,
            // The fields of a counter are not arguments but its values.
            _ => (self.with_args || metadata.target() == COUNTER_TARGET) && !denied(name),
        };
        metadata
            .fields()
            .iter()
            .filter(|field| is_arg(field.name()))
            .filter(|f| f.index() < FIELDS_MAX)
            .fold(0, |mask, f| mask | 1 << f.index())
    }
}

/// All callsites that a layer has seen.
///
/// A callsite is decided once and kept forever, as in `tracing` itself: their number is bounded by the size of the program.
#[derive(Default)]
pub(crate) struct Sites {
    pub(crate) rules: Rules,
    known: PerProcess<RwLock<KnownSites>>,
    /// Where callsites are noted.
    pub(crate) live: LiveHandle,
}

#[derive(Debug, Default)]
struct KnownSites {
    by_address: HashMap<usize, &'static Site>,
    in_order: Vec<&'static Site>,
}

impl KnownSites {
    /// Returns whether another callsite fits without allocating.
    fn has_capacity(&self) -> bool {
        self.in_order.len() < self.in_order.capacity().min(self.by_address.capacity())
    }
}

impl Sites {
    pub(crate) fn new(rules: Rules) -> Sites {
        Sites { rules, ..Sites::default() }
    }

    /// Returns the callsites of this process.
    fn known_sites(&self) -> &RwLock<KnownSites> {
        self.known.get(|_| RwLock::default())
    }

    /// Returns the decisions about a callsite, and makes them for a new one.
    pub(crate) fn site_for(&self, metadata: &'static Metadata<'static>) -> &'static Site {
        let address = std::ptr::from_ref(metadata).addr();
        if let Some(site) = self.known_sites().read().unwrap_or_else(PoisonError::into_inner).by_address.get(&address) {
            return site;
        }
        // Before the lock is taken: this runs user code (the classifier) and allocates.
        let mut new_site = Box::new(self.decide_site(metadata));
        // What is declared before the lock is freed after it.
        let (mut note, mut known) = loop {
            let note = self.live.current().map(|live| {
                let entry =
                    LiveFile::entry(JournalKind::Site, (0, 0), |out| SiteDescription::of_site(&new_site).encode(out));
                (live, entry)
            });
            let known = self.lock_with_capacity();
            if self.live.is_current(note.as_ref().map(|(live, _)| live)) {
                break (note, known);
            }
        };
        if let Some(site) = known.by_address.get(&address) {
            return site;
        }
        new_site.index = u32::try_from(known.in_order.len()).unwrap_or(u32::MAX);
        new_site.state = state::new(new_site.index);
        new_site.state = new_site.new_state();
        if let Some((live, entry)) = &mut note {
            entry.iter_mut().filter_map(|words| words.get_mut(1)).for_each(|key| *key = new_site.index.into());
            live.append(std::slice::from_ref(entry));
        }
        let site: &'static Site = Box::leak(new_site);
        known.in_order.push(site);
        known.by_address.insert(address, site);
        site
    }

    /// Locks the list with capacity for one more. The allocator must not be called under the lock, because one that creates
    /// spans re-enters this function.
    fn lock_with_capacity(&self) -> RwLockWriteGuard<'_, KnownSites> {
        let lock = || self.known_sites().write().unwrap_or_else(PoisonError::into_inner);
        loop {
            let known = lock();
            if known.has_capacity() {
                return known;
            }
            let wanted = known.in_order.len() * 2 + 64;
            drop(known);
            let mut roomier = KnownSites { by_address: HashMap::default(), in_order: Vec::with_capacity(wanted) };
            roomier.by_address.reserve(wanted);
            let mut known = lock();
            if !known.has_capacity() && known.in_order.len() < wanted {
                for (address, site) in known.by_address.drain() {
                    roomier.by_address.insert(address, site);
                }
                roomier.in_order.append(&mut known.in_order);
                std::mem::swap(&mut *known, &mut roomier);
            }
            // Unlocks before the old list is freed.
            drop(known);
        }
    }

    fn decide_site(&self, metadata: &'static Metadata<'static>) -> Site {
        let class = self.rules.decide_class(metadata);
        let kind_field = class.is_none().then(|| metadata.fields().field(KIND_FIELD).map(|f| f.index())).flatten();
        let fields = ScopeFields::from_metadata(metadata);
        let scope = self.rules.scope_of_target(metadata.target()).filter(|_| fields.scope.is_none());
        let wants_stacks = self.rules.stacks.as_ref();
        let wants_stacks = wants_stacks.is_none_or(|of| of.would_enable(metadata.target(), metadata.level()));
        let site = |class: u8, scopes: Option<Box<Scopes>>| Site {
            index: 0,
            state: 0,
            metadata,
            fields: self.rules.decide_fields(metadata),
            kind_field,
            needs_values: kind_field.is_some() || scopes.is_some(),
            scope,
            scopes,
            event: self.rules.decide_event_role(metadata),
            slow_after: self.rules.slow_after(metadata),
            triggers_dump: self.rules.triggers_dump(metadata),
            added_fields: self.rules.added_fields,
            has_stacks: wants_stacks && scope != Some(RecordScope::BackwardFunction),
            class: AtomicU8::new(class),
        };
        let depends_on_fields = metadata.is_span() && !self.rules.scopes.is_empty() && fields != ScopeFields::default();
        let scopes = depends_on_fields.then(|| {
            let excluded = Box::leak(Box::new(Site { state: state::EXCLUDED_BY_SCOPE, ..site(IGNORED, None) }));
            Box::new(Scopes { fields, recorded: self.rules.scopes.clone(), excluded })
        });
        let site = site(UNDECIDED, scopes);
        if let Some(class) = class {
            site.store_class(class, &self.rules);
        }
        site
    }

    /// Notes a callsite whose class was decided since.
    pub(crate) fn note_site(&self, site: &Site) {
        self.live.put(JournalKind::Site, (site.index.into(), 0), |out| SiteDescription::of_site(site).encode(out));
    }

    /// Notes all callsites in a live file.
    pub(crate) fn note_all(&self, live: &LiveFile) {
        for site in self.all_sites() {
            let describe = |out: &mut List<u8>| SiteDescription::of_site(site).encode(out);
            live.put(JournalKind::Site, (site.index.into(), 0), describe);
        }
    }

    /// Describes the callsites seen so far; a record's `site` is an index into this list.
    pub(crate) fn describe_sites(&self) -> Vec<SiteDescription> {
        self.all_sites().into_iter().map(SiteDescription::of_site).collect()
    }

    /// Returns the callsites seen so far.
    pub(crate) fn all_sites(&self) -> Vec<&'static Site> {
        let lock = || self.known_sites().read().unwrap_or_else(PoisonError::into_inner);
        loop {
            let wanted = lock().in_order.len();
            let mut all = Vec::with_capacity(wanted);
            let known = lock();
            if known.in_order.len() <= all.capacity() {
                all.extend_from_slice(&known.in_order);
                return all;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::os;

    #[test]
    #[cfg(unix)]
    fn forked_child_finds_callsites_despite_held_lock() {
        let sites = Sites::new(Rules::default());
        let enabled = tracing_subscriber::registry();
        let span = tracing::subscriber::with_default(enabled, || tracing::info_span!("span"));
        let metadata = span.metadata().unwrap();
        let _held = sites.known_sites().write();
        os::fork::call_in_children(|| ());
        assert_eq!(test_base::fork(|| sites.site_for(metadata).index == 0), 0);
    }
}
