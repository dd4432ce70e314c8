//! Settings of the builder about spans and events.

use super::KinetoLayerBuilder;
use crate::config::{AsyncSpans, Key, Modes, SourceSettings, Value};
use crate::observer::SpanObserver;
use crate::recorder::ThreadFilter;
use kineto_model::activity::{ActivityType, ActivityTypes};
use std::sync::Arc;
use tracing_core::{LevelFilter, Metadata};
use tracing_subscriber::filter::Targets;

/// Selects the fields of spans and events that are recorded, for [`KinetoLayerBuilder::fields`].
///
/// ```
/// use tracing_kineto::{Fields, KinetoLayer};
///
/// let fields = Fields::new().deny(["password", "token"]).limit_bytes(256);
/// let builder = KinetoLayer::builder().fields(fields);
/// ```
#[must_use = "pass it to `KinetoLayerBuilder::fields`"]
#[derive(Clone, Debug, Default)]
pub struct Fields(SourceSettings);

impl Fields {
    /// Creates settings that leave all to the environment, the configuration file and the defaults.
    pub fn new() -> Fields {
        Fields::default()
    }

    /// Sets whether fields of spans are recorded as arguments. Default: true. Turn it off before sharing traces that may contain secrets.
    pub fn record(self, on: bool) -> Self {
        Fields(self.0.with(Key::WithArgs, Value::Bool(on)))
    }

    /// Omits the fields of these names.
    pub fn deny(self, names: impl IntoIterator<Item = impl Into<String>>) -> Self {
        let names: Vec<String> = names.into_iter().map(Into::into).collect();
        Fields(self.0.with(Key::DenyFields, Value::List(names)))
    }

    /// Sets the most bytes of a text value; a longer one is cut at a character boundary. Default: 4096.
    pub fn limit_bytes(self, bytes: usize) -> Self {
        Fields(self.0.with(Key::FieldLimit, Value::of_size(bytes)))
    }

    /// Keeps the fields of spans created while nothing is recorded, at the cost of an allocation each. Default: false; such
    /// spans then appear without fields, and are counted.
    pub fn while_idle(self, on: bool) -> Self {
        Fields(self.0.with(Key::FieldsWhileIdle, Value::Bool(on)))
    }
}

/// Settings of the call stacks of spans, for [`KinetoLayerBuilder::with_stack`].
///
/// ```
/// use tracing_kineto::{KinetoLayer, Stacks};
///
/// let builder = KinetoLayer::builder().with_stack(Stacks::new().frames(16));
/// ```
#[must_use = "pass it to `KinetoLayerBuilder::with_stack`"]
#[derive(Clone, Debug)]
pub struct Stacks(SourceSettings);

impl Default for Stacks {
    fn default() -> Self {
        Stacks::new()
    }
}

/// True records stacks, as [`Stacks::new`]; false does not, whatever the environment requests.
impl From<bool> for Stacks {
    fn from(on: bool) -> Stacks {
        Stacks(SourceSettings::default().with(Key::WithStack, Value::Bool(on)))
    }
}

impl Stacks {
    /// Records stacks.
    pub fn new() -> Stacks {
        true.into()
    }

    /// Creates settings for the case that the environment, the configuration file or a request asks for stacks.
    pub fn if_requested() -> Stacks {
        Stacks(SourceSettings::default())
    }

    /// Sets the most frames of a stack, 1 to 128. Default: 32.
    pub fn frames(self, count: usize) -> Self {
        Stacks(self.0.with(Key::StackFrames, Value::of_size(count)))
    }

    /// Selects the spans that get stacks, by target and level. Default: all.
    pub fn filter(self, filter: Targets) -> Self {
        Stacks(self.0.with(Key::StackFilter, Value::Filter(Arc::new(filter))))
    }
}

/// # Spans and events: which are recorded, and what they carry
impl KinetoLayerBuilder {
    /// Records only activities of these types. Default: [`ActivityTypes::DEFAULT`], libkineto's.
    pub fn activities(self, types: impl Into<ActivityTypes>) -> Self {
        self.with(Key::ActivityTypes, Value::Activities(types.into()))
    }

    /// Sets which fields are recorded. Adds to an earlier call; the last value of a setting counts.
    pub fn fields(self, fields: Fields) -> Self {
        self.with_all(fields.0)
    }

    /// Records the call stack at each enter of a span, as its argument `Call stack`. Default: none.
    ///
    /// Like torch's `with_stack`, with native functions in place of Python's. Frames are `file(line): function`, the
    /// innermost first, joined by `;`. Inlined functions are frames too. The stack begins with the program's function; the
    /// frames of this crate and of `tracing` are omitted.
    ///
    /// While the program runs, only return addresses are recorded: about a quarter of a microsecond and 8 bytes for each
    /// frame of each enter. Symbols are resolved when rows are read, once for each address; this needs the program's debug
    /// information (`debug = "line-tables-only"` suffices). A backward operation (by `fwd_thread` or `record_scope`) has no
    /// stack, as in torch, and a span with a field `call_stack` shows that instead.
    ///
    /// Needs the feature `backtrace`; without it, `build` fails.
    pub fn with_stack(self, stacks: impl Into<Stacks>) -> Self {
        self.with_all(stacks.into().0)
    }

    /// Shows the target of each span. Default: true.
    pub fn with_target(self, on: bool) -> Self {
        self.with(Key::WithTarget, Value::Bool(on))
    }

    /// Shows file and line of each span. Default: false.
    pub fn with_location(self, on: bool) -> Self {
        self.with(Key::WithLocation, Value::Bool(on))
    }

    /// Records allocators' reports: every allocation and every free becomes an instant (see [`memory`](crate::memory)).
    /// Default: false.
    pub fn with_memory(self, on: bool) -> Self {
        self.with(Key::ProfileProfileMemory, Value::Bool(on))
    }

    /// Counts these events for each thread, and shows the count of each slice, nested slices included; torch's
    /// `performance_events`. Linux only. Default: none.
    ///
    /// At most 12 of "cycles", "instructions", "cache-references", "cache-misses", "branches", "branch-misses", "bus-cycles",
    /// "stalled-cycles-frontend", "stalled-cycles-backend", "ref-cycles", "cpu-clock", "task-clock", "page-faults",
    /// "context-switches", "cpu-migrations", "minor-faults", "major-faults", "alignment-faults" and "emulation-faults".
    ///
    /// Events inside the kernel are not counted, except switches and migrations. Counters are read right before the clock at
    /// an enter and right after it at an exit. So the time of reading lies outside the slice, but its user-space part is
    /// counted. Each thread uses a file descriptor for each event until it ends, up to a quarter of the process's limit and
    /// 4096 in all.
    ///
    /// An unknown name is an error of `build`. An event that cannot be counted here is left out, with a warning that gives
    /// the reason; [`TraceStats::counters`](crate::TraceStats::counters) lists it too. If all users together request more
    /// counters than the processor has, the kernel multiplexes them; counts are scaled then, and the slice's argument
    /// `counted` is the share of the time.
    pub fn performance_events(self, names: impl IntoIterator<Item = impl Into<String>>) -> Self {
        let names: Vec<String> = names.into_iter().map(Into::into).collect();
        self.with(Key::PerformanceEvents, Value::List(names))
    }

    /// Records events up to that level as instants (`cpu_instant_event`). Default: none. ERROR events always mark the slice
    /// around them, and counters are always recorded.
    pub fn events(self, level: impl Into<LevelFilter>) -> Self {
        self.with(Key::Events, Value::Events(level.into()))
    }

    /// Sets how spans that are entered more than once are drawn. Default: [`AsyncSpans::Auto`].
    pub fn async_spans(self, how: AsyncSpans) -> Self {
        self.with(Key::AsyncSpans, Value::AsyncSpans(how))
    }

    /// Sets the callback that decides the activity type of a callsite's spans; `None` leaves it to the other rules. Called
    /// once for each callsite.
    ///
    /// Types that a host span cannot have ([`ActivityType::is_cpu`]) count as `None`.
    pub fn classify(
        mut self,
        classify: impl Fn(&Metadata<'_>) -> Option<ActivityType> + Send + Sync + 'static,
    ) -> Self {
        self.rules.classifier = Some(Arc::new(classify));
        self
    }

    /// Records these threads only. Default: [`ThreadFilter::All`].
    ///
    /// Other threads contribute no spans, events or allocations, and observers receive nothing from them. Their device work
    /// stays in the trace, without a span. If an excluded thread creates a span and a recorded one enters it, the span counts
    /// as created while nothing was recorded ([`Fields::while_idle`]). Memory that an excluded thread
    /// frees stays alive in a memory timeline.
    pub fn threads(mut self, threads: ThreadFilter) -> Self {
        self.threads = threads;
        self
    }

    /// Makes spans whose targets have that prefix user annotations; may be called more than once.
    pub fn annotate_target(mut self, prefix: impl Into<String>) -> Self {
        self.rules.annotation_targets.push(prefix.into());
        self
    }

    /// Records only spans and events that pass the filter, without an effect on other layers.
    pub fn filter(self, filter: Targets) -> Self {
        self.with(Key::Filter, Value::Filter(Arc::new(filter)))
    }

    /// Sets where spans go: one [`Mode`](crate::Mode), or several joined by `|`. Default: [`Mode::Kineto`](crate::Mode::Kineto).
    pub fn mode(self, mode: impl Into<Modes>) -> Self {
        self.with(Key::Mode, Value::Modes(mode.into()))
    }

    /// Sets the domain of ITT tasks. Default: "tracing-kineto"; torch's is "PyTorch". Needs the feature `itt`.
    pub fn itt_domain(self, name: impl Into<String>) -> Self {
        self.with(Key::IttDomain, Value::Text(name.into()))
    }

    /// Adds an observer that receives spans as they happen; may be called more than once.
    pub fn observer(mut self, observer: impl SpanObserver + 'static) -> Self {
        self.observers.push(Arc::new(observer));
        self
    }
}
