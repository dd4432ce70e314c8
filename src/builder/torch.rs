//! Settings of the builder that have the names and the meaning of torch.profiler's.

use super::KinetoLayerBuilder;
use crate::config::{Key, SourceSettings, Value};
use kineto_model::activity::RecordScope;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Settings with the names and the meaning of torch.profiler's, for [`KinetoLayerBuilder::torch`].
///
/// ```
/// use tracing_kineto::KinetoLayer;
/// use tracing_kineto::torch::TorchOptions;
///
/// let torch = TorchOptions::new().record_shapes(true).with_modules(true).execution_trace(true);
/// let builder = KinetoLayer::builder().output("app.pt.trace.json.gz").torch(torch);
/// ```
#[must_use = "pass it to `KinetoLayerBuilder::torch`"]
#[derive(Clone, Default)]
pub struct TorchOptions {
    settings: SourceSettings,
    scopes: Option<Vec<RecordScope>>,
    scope_targets: Vec<(String, RecordScope)>,
    trace_id: Option<Arc<dyn Fn() -> String + Send + Sync>>,
    accumulates: Option<bool>,
    is_strict: Option<bool>,
    post_processing_timeout: Option<Duration>,
}

impl TorchOptions {
    /// Creates settings that leave all to the environment, the configuration file and the defaults.
    pub fn new() -> TorchOptions {
        TorchOptions::default()
    }

    fn with(self, key: Key, value: Value) -> Self {
        TorchOptions { settings: self.settings.with(key, value), ..self }
    }

    /// Requests the shapes of operations' inputs from the program, like torch's `record_shapes`: [session
    /// observers](crate::KinetoLayerBuilder::session_observer) receive the flag. Default: false.
    ///
    /// Shapes are fields of spans (`dims`); they are recorded whenever they are present.
    pub fn record_shapes(self, on: bool) -> Self {
        self.with(Key::InputShapes, Value::Bool(on))
    }

    /// Requests the data for computing FLOPs from the program, like torch's `with_flops`; this includes shapes. [Session
    /// observers](crate::KinetoLayerBuilder::session_observer) receive the flag. Default: false.
    ///
    /// Tables contain FLOPs wherever shapes and a formula are present ([`FlopRegistry`](crate::analysis::FlopRegistry)).
    pub fn with_flops(self, on: bool) -> Self {
        let flops = self.with(Key::WithFlops, Value::Bool(on));
        if on { flops.record_shapes(true) } else { flops }
    }

    /// Adds to each operation the modules that it is in, like torch's `with_modules`: `Module Hierarchy`, the fields `module`
    /// of the spans around it, the outermost first, joined by dots. Default: false.
    ///
    /// The spans around it are its parents, on any threads. A span that has a `module_hierarchy` keeps that; backward
    /// operations (by `fwd_thread` or `record_scope`) get none.
    ///
    /// ```
    /// # use tracing_kineto::KinetoLayer;
    /// # use tracing_kineto::torch::TorchOptions;
    /// # use tracing_subscriber::prelude::*;
    /// let (layer, guard) = KinetoLayer::builder().no_output().torch(TorchOptions::new().with_modules(true)).build()?;
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
    pub fn with_modules(self, on: bool) -> Self {
        self.with(Key::WithModules, Value::Bool(on))
    }

    /// Shows an operation as `name.overload`, like torch's `capture_overload_names`, if its span has a field `overload_name`.
    /// Default: false. The field is an argument in either case.
    pub fn capture_overload_names(self, on: bool) -> Self {
        self.with(Key::OverloadNames, Value::Bool(on))
    }

    /// Draws arrows (`fwdbwd`) from forward operations to their backward operations, like torch unless
    /// `_set_fwd_bwd_enabled(False)`. Default: true.
    ///
    /// Both operations have the same field `seq`, from 0 up, such as the number of the node that automatic differentiation
    /// creates. The backward one also has `fwd_thread`, the thread of the forward one: the result of
    /// [`thread_id`](crate::thread_id) there. Of several forward operations with a number, the last to begin counts. It gets
    /// one arrow, to the backward operation that ends first. Activities that a program [pushes
    /// itself](crate::integration::CpuTraceBuilder) take part unless they have arrows already.
    ///
    /// Two more rules of torch apply. An operation without `fwd_thread`, or with 0, is a forward operation. A span
    /// `autograd::engine::evaluate_function: …` directly around a backward operation (`record_scope` 1) shares its `seq` and
    /// `fwd_thread`.
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
    pub fn fwd_bwd(self, on: bool) -> Self {
        self.with(Key::FwdBwd, Value::Bool(on))
    }

    /// Adds [`CollectiveComm`](crate::ActivityType::CollectiveComm), the type of [`Collective`](crate::Collective)'s spans, to the
    /// activities. Default: false, or torch's `TORCH_PROFILER_ENABLE_COLLECTIVE_PROFILING` if that is exactly `1`. If false,
    /// these spans are operations (`cpu_op`).
    pub fn collective_profiling(self, on: bool) -> Self {
        self.with(Key::Collectives, Value::Bool(on))
    }

    /// Records spans of these scopes only; an empty list means all, the default, as in torch.
    ///
    /// The scope of a span is, in this order:
    ///
    /// - that of its field `record_scope`, torch's number or name, set at the span's creation,
    /// - [`BackwardFunction`](RecordScope::BackwardFunction) with a `fwd_thread` other than 0,
    /// - [`UserScope`](RecordScope::UserScope) for an annotation, such as `ProfilerStep#n`,
    /// - that of its [target](Self::scope_target), else [`Function`](RecordScope::Function).
    ///
    /// Children of an omitted span belong to the span around it. Without these fields, the decision is made once for the
    /// callsite.
    pub fn record_scopes(mut self, scopes: impl IntoIterator<Item = RecordScope>) -> Self {
        self.scopes = Some(scopes.into_iter().collect());
        self
    }

    /// Sets the scope of torch for spans whose targets begin with `prefix`; may be called more than once, and the longest
    /// prefix wins.
    ///
    /// It is the argument `Record function scope` of their slices. A callsite's field `record_scope` overrides it. Backward
    /// operations have neither modules nor stacks, as in torch.
    pub fn scope_target(mut self, prefix: impl Into<String>, scope: RecordScope) -> Self {
        self.scope_targets.push((prefix.into(), scope));
        self
    }

    /// Writes an execution trace (Chakra) next to each trace that is written automatically: `app.et.json` for
    /// `app.pt.trace.json`. Default: false, or torch's `ENABLE_PYTORCH_EXECUTION_TRACE`.
    ///
    /// A trace handler may call [`Trace::save_execution_trace`](crate::Trace::save_execution_trace) itself. With this
    /// setting, the slices of the trace have a "Record function id", by which tools join the two files.
    #[cfg(feature = "chakra")]
    pub fn execution_trace(self, on: bool) -> Self {
        self.with(Key::ExecutionTrace, Value::Bool(on))
    }

    /// Sets the callback that returns the trace id of each recording, written to the header as `trace_id`; called when
    /// collectors start. Default, also for an empty text: 32 random upper-case hexadecimal digits, as in torch.
    pub fn trace_id_callback(mut self, name: impl Fn() -> String + Send + Sync + 'static) -> Self {
        self.trace_id = Some(Arc::new(name));
        self
    }

    /// Keeps the trace of each cycle, for [`Libkineto::traces`](crate::torch::Libkineto::traces). Default: false.
    ///
    /// They share the buffer limit with later recordings.
    pub fn acc_events(mut self, on: bool) -> Self {
        self.accumulates = Some(on);
        self
    }

    /// Sets a time limit for collecting a trace's [events](crate::Trace::events); torch's `post_processing_timeout_s`.
    /// Default: none. At the limit, the events so far are returned, with a note and a warning. Files are not affected.
    #[cfg(feature = "analysis")]
    pub fn post_processing_timeout(mut self, limit: Duration) -> Self {
        self.post_processing_timeout = Some(limit);
        self
    }

    /// Turns two conditions into errors. Default: false.
    ///
    /// - Saving a trace a second time, as in torch.
    /// - A violated assertion ([`TraceStats::violations`](crate::TraceStats::violations)), at the stop, the step or the save;
    ///   torch's `softAssertRaises`. The guard still writes its trace when it is dropped.
    pub fn strict(mut self, on: bool) -> Self {
        self.is_strict = Some(on);
        self
    }
}

impl fmt::Debug for TorchOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TorchOptions")
            .field("settings", &self.settings)
            .field("scopes", &self.scopes)
            .field("scope_targets", &self.scope_targets)
            .finish_non_exhaustive()
    }
}

/// # torch.profiler's settings
impl KinetoLayerBuilder {
    /// Applies settings of torch.profiler. Adds to an earlier call; the last value of a setting counts.
    pub fn torch(mut self, torch: TorchOptions) -> Self {
        self.overrides.settings.merge(torch.settings);
        self.rules.scopes = torch.scopes.unwrap_or(self.rules.scopes);
        self.rules.scope_targets.extend(torch.scope_targets);
        let options = &mut self.options;
        options.trace_id = torch.trace_id.or(options.trace_id.take());
        options.accumulates = torch.accumulates.unwrap_or(options.accumulates);
        options.is_strict = torch.is_strict.unwrap_or(options.is_strict);
        options.post_processing_timeout = torch.post_processing_timeout.or(options.post_processing_timeout);
        self
    }
}
