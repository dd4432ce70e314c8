//! What is recorded of spans and events.

use super::KinetoLayerBuilder;
use crate::config::{AsyncSpans, Key};
use crate::recorder::ThreadFilter;
use kineto_trace::activity::{ActivityType, RecordScope};
use std::sync::Arc;
use tracing_core::{LevelFilter, Metadata};
use tracing_subscriber::filter::Targets;

impl KinetoLayerBuilder {
    /// Records the fields of spans as arguments. Default: true. Turn it off where traces are shared with others.
    pub fn with_args(mut self, on: bool) -> Self {
        self.overrides.set(Key::WithArgs, on);
        self
    }

    /// Shows the target of each span. Default: true.
    pub fn with_target(mut self, on: bool) -> Self {
        self.overrides.set(Key::WithTarget, on);
        self
    }

    /// Shows file and line of each span. Default: false.
    pub fn with_location(mut self, on: bool) -> Self {
        self.overrides.set(Key::WithLocation, on);
        self
    }

    /// Asks the program for the shapes of its operations' inputs, as torch's `record_shapes`: its
    /// [session observers](Self::session_observer) are told. Default: false.
    ///
    /// Shapes are fields of spans (`dims`), and are recorded where they are there, asked for or not.
    pub fn record_shapes(mut self, on: bool) -> Self {
        self.overrides.set(Key::InputShapes, on);
        self
    }

    /// Asks the program for what FLOPs are computed of, as torch's `with_flops`, which takes shapes: true asks for those
    /// too. Its [session observers](Self::session_observer) are told. Default: false.
    ///
    /// Tables have FLOPs wherever shapes and a formula are there ([`FlopRegistry`](crate::analysis::FlopRegistry)).
    pub fn with_flops(mut self, on: bool) -> Self {
        self.overrides.set(Key::WithFlops, on);
        if on {
            self.overrides.set(Key::InputShapes, true);
        }
        self
    }

    /// Says of each operation which modules it is in, as torch's `with_modules`: `Module Hierarchy`, made of the fields
    /// `module` of the spans around it, the outermost first, with a dot between. Default: false.
    ///
    /// The spans around are its parents, whichever threads they run on. A span that has a `module_hierarchy` keeps that;
    /// backward operations (by `fwd_thread` or `record_scope`) have none.
    ///
    /// ```
    /// # use tracing_kineto::KinetoLayer;
    /// # use tracing_subscriber::prelude::*;
    /// let (layer, guard) = KinetoLayer::builder().no_output().with_modules(true).build()?;
    /// tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
    ///     let _model = tracing::info_span!("forward", module = "Mlp").entered();
    ///     let _layer = tracing::info_span!("forward", module = "Linear_0").entered();
    ///     tracing::info_span!("matmul").in_scope(|| ());
    /// });
    /// let events = guard.finish()?.events();
    /// let matmul = events.iter().find(|event| event.name() == "matmul").expect("it was recorded");
    /// assert!(matmul.module_hierarchy().eq(["Mlp", "Linear_0"]));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn with_modules(mut self, on: bool) -> Self {
        self.overrides.set(Key::WithModules, on);
        self
    }

    /// Shows an operation as `name.overload`, as torch's `capture_overload_names`, where its span has a field
    /// `overload_name`. Default: false; then it is an argument alone. It is one either way.
    pub fn capture_overload_names(mut self, on: bool) -> Self {
        self.overrides.set(Key::OverloadNames, on);
        self
    }

    /// Draws arrows (`fwdbwd`) from forward operations to their backward operations, as torch unless
    /// `_set_fwd_bwd_enabled(False)`. Default: true.
    ///
    /// Both have the same field `seq`, from 0 up, such as the number of the node that automatic differentiation makes of the
    /// forward operation. The backward one also has `fwd_thread`, the thread that the forward one ran on: what
    /// [`thread_id`](crate::thread_id) returned there. Of several forward operations with a number the one that began last
    /// counts, and it has one arrow, to the backward operation that ends first. What a program
    /// [pushes itself](crate::integration::CpuTraceBuilder) is among them unless it has arrows already. Two more rules of torch hold:
    /// without `fwd_thread`, or with 0, it is a forward operation; and a span `autograd::engine::evaluate_function: …` right
    /// around a backward operation (`record_scope` 1) shares its `seq` and `fwd_thread`.
    ///
    /// ```
    /// # use tracing_kineto::{KinetoLayer, thread_id};
    /// # use tracing_subscriber::prelude::*;
    /// # let (layer, guard) = KinetoLayer::builder().no_output().build()?;
    /// # tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
    /// let node = 7;
    /// tracing::info_span!("mm", seq = node).in_scope(|| ());
    /// let forward = thread_id();
    /// // Later, on this thread or another:
    /// tracing::info_span!("MmBackward", seq = node, fwd_thread = forward).in_scope(|| ());
    /// # });
    /// # assert_eq!(guard.finish()?.events().iter().map(|event| event.flows().count()).sum::<usize>(), 2);
    /// # Ok::<(), tracing_kineto::Error>(())
    /// ```
    pub fn fwd_bwd(mut self, on: bool) -> Self {
        self.overrides.set(Key::FwdBwd, on);
        self
    }

    /// Adds [`CollectiveComm`](ActivityType::CollectiveComm) to the activities, of which the spans of
    /// [`Collective`](crate::Collective) then are. Default: false, or torch's `TORCH_PROFILER_ENABLE_COLLECTIVE_PROFILING`
    /// if that is exactly `1`; then they are operations (`cpu_op`).
    pub fn collective_profiling(mut self, on: bool) -> Self {
        self.overrides.set(Key::Collectives, on);
        self
    }

    /// Records from where each span is entered, as its argument `Call stack`. Default: false.
    ///
    /// As torch's `with_stack`, with native functions in place of Python's. Frames are `file(line): function`, the innermost
    /// first, joined by `;`. Inlined functions are frames too, and the stack begins with the program's function, not with
    /// what this crate and `tracing` call below it. While the program runs, only return addresses are recorded, which takes
    /// about a quarter of a microsecond for each frame of each enter, and 8 bytes. What they are called is found when rows are
    /// asked for, once for each address; that takes the program's debug information (`debug = "line-tables-only"` is
    /// enough). A backward operation (by `fwd_thread` or `record_scope`) has none, as in torch, and a span with a field
    /// `call_stack` has what that says.
    ///
    /// Takes the feature `backtrace`; without it, `build` fails.
    pub fn with_stack(mut self, on: bool) -> Self {
        self.overrides.set(Key::WithStack, on);
        self
    }

    /// The most frames of the stacks of [`with_stack`](Self::with_stack), 1 to 128. Default: 32.
    pub fn stack_frames(mut self, count: usize) -> Self {
        self.overrides.set(Key::StackFrames, count);
        self
    }

    /// Whose spans have the stacks of [`with_stack`](Self::with_stack), by target and level. Default: all.
    pub fn stack_filter(mut self, filter: Targets) -> Self {
        self.overrides.set(Key::StackFilter, filter);
        self
    }

    /// Counts these for each thread, and shows how many each slice took, those within included; torch's
    /// `performance_events`. Linux only. Default: none.
    ///
    /// At most 12 of "cycles", "instructions", "cache-references", "cache-misses", "branches", "branch-misses",
    /// "bus-cycles", "stalled-cycles-frontend", "stalled-cycles-backend", "ref-cycles", "cpu-clock", "task-clock",
    /// "page-faults", "context-switches", "cpu-migrations", "minor-faults", "major-faults", "alignment-faults" and
    /// "emulation-faults". What happens in the kernel is not counted, but for switches and migrations. The counters
    /// are read right before the clock at an enter and right after it at an exit: what that takes lies outside of the slice's
    /// time, and what of it is no system call is counted. Each thread takes a file descriptor for each event, up to a
    /// quarter of the process's limit and 4096 in all, until it ends.
    ///
    /// Another name is an error of `build`. What cannot be counted here is left out, with a warning that says why;
    /// [`TraceStats::counters`](crate::TraceStats::counters) say so too. Where the processor has fewer counters than are asked for, by
    /// whomever, they take turns; counts are scaled then, and the slice's argument `counted` is the share of the time.
    pub fn performance_events(mut self, names: impl IntoIterator<Item = impl Into<String>>) -> Self {
        let names: Vec<String> = names.into_iter().map(Into::into).collect();
        self.overrides.set(Key::PerformanceEvents, names);
        self
    }

    /// Leaves out the fields of these names.
    pub fn deny_fields(mut self, names: impl IntoIterator<Item = impl Into<String>>) -> Self {
        let names: Vec<String> = names.into_iter().map(Into::into).collect();
        self.overrides.set(Key::DenyFields, names);
        self
    }

    /// Records events up to that level as instants (`cpu_instant_event`). Default: none, but ERROR events mark the slice
    /// they happen in, and counters are always recorded.
    pub fn events(mut self, level: impl Into<LevelFilter>) -> Self {
        let level: LevelFilter = level.into();
        self.overrides.set(Key::Events, level);
        self
    }

    /// Says what becomes of spans that are entered more than once. Default: [`AsyncSpans::Auto`].
    pub fn async_spans(mut self, how: AsyncSpans) -> Self {
        self.overrides.set(Key::AsyncSpans, how);
        self
    }

    /// Decides what the spans of a callsite are; `None` leaves it to the other rules. Asked once for each callsite.
    ///
    /// Types that a host span cannot be ([`ActivityType::is_cpu`]) count as `None`.
    pub fn classify(
        mut self,
        classify: impl Fn(&Metadata<'_>) -> Option<ActivityType> + Send + Sync + 'static,
    ) -> Self {
        self.classifier = Some(Arc::new(classify));
        self
    }

    /// Says of which of torch's scopes the spans are whose targets begin with `prefix`; may be called more than once, and the
    /// longest prefix counts.
    ///
    /// It is the argument `Record function scope` of their slices. A callsite with a field `record_scope` says it itself.
    /// Backward operations have neither modules nor stacks, as in torch.
    pub fn scope_target(mut self, prefix: impl Into<String>, scope: RecordScope) -> Self {
        self.scope_targets.push((prefix.into(), scope));
        self
    }

    /// Records spans of these scopes only; none stands for all, the default, as in torch.
    ///
    /// A span is of the scope that its field `record_scope` names, by torch's number or name, when it is made; else one with a
    /// `fwd_thread` other than 0 is [`BackwardFunction`](RecordScope::BackwardFunction), an annotation, such as
    /// `ProfilerStep#n`, [`UserScope`](RecordScope::UserScope), and everything else what its target [stands for](Self::scope_target), or [`Function`](RecordScope::Function). What
    /// lies in a span that is left out lies in the one around it. Where no such field is, the callsite is judged, once.
    pub fn record_scopes(mut self, scopes: impl IntoIterator<Item = RecordScope>) -> Self {
        self.scopes = scopes.into_iter().collect();
        self
    }

    /// Records these threads only. Default: [`ThreadFilter::All`].
    ///
    /// Of other threads there are no spans, events or allocations, and observers are told nothing; what they launch on
    /// devices stays in the trace, and belongs to no span. A span that such a thread makes and a recorded one enters is as one
    /// that was made while nothing was recorded ([`fields_while_idle`](Self::fields_while_idle)). What a left-out thread
    /// frees stays alive in a memory timeline.
    pub fn threads(mut self, threads: ThreadFilter) -> Self {
        self.threads = threads;
        self
    }

    /// Makes spans of targets with that prefix user annotations; may be called more than once.
    pub fn annotate_target(mut self, prefix: impl Into<String>) -> Self {
        self.annotation_targets.push(prefix.into());
        self
    }

    /// Records only what that filter lets through; other layers do not notice.
    pub fn filter(mut self, filter: Targets) -> Self {
        self.overrides.set(Key::Filter, filter);
        self
    }

    /// The most bytes of one text value; longer ones are cut at a character. Default: 4096.
    pub fn field_limit_bytes(mut self, bytes: usize) -> Self {
        self.overrides.set(Key::FieldLimit, bytes);
        self
    }

    /// Keeps the fields of spans that are made while nothing is recorded, at the cost of an allocation each.
    /// Default: false; such spans appear without fields, and are counted.
    pub fn fields_while_idle(mut self, on: bool) -> Self {
        self.overrides.set(Key::FieldsWhileIdle, on);
        self
    }
}
