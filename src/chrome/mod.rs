//! The API of `tracing-chrome`, so that a program moves to this crate by one changed import.
//!
//! ```no_run
//! use tracing_kineto::chrome::ChromeLayerBuilder; // was: use tracing_chrome::ChromeLayerBuilder;
//! use tracing_subscriber::prelude::*;
//!
//! let (chrome_layer, _guard) = ChromeLayerBuilder::new().include_args(true).build();
//! tracing_subscriber::registry().with(chrome_layer).init();
//! ```
//!
//! Names and defaults are those of tracing-chrome 0.7. The trace is Kineto's, with the GPU work that spans launched,
//! and everything that [`KinetoLayer`] reads from the environment applies here too. It differs as follows:
//!
//! - Records stay in memory, up to 512 MiB ([`Overflow::Stop`](crate::Overflow::Stop)), and the file is written when the guard
//!   is dropped, or when the process exits without that. `KINETO_OVERFLOW=spill` moves them to disk
//!   meanwhile, if the trace goes to a file.
//! - A span is one complete event, not two; its category is an [activity type](crate::ActivityType), and the target is the
//!   argument `target`. The text of [`category_fn`](ChromeLayerBuilder::category_fn) is the argument `category`.
//! - With [`include_args`](ChromeLayerBuilder::include_args), an event that has a message is named by it.
//! - In [`TraceStyle::Async`], a span that is entered more than once has a track from its first enter to its last exit, in
//!   addition to its slices, which the GPU's work is linked to.

mod guard;
mod layer;

pub use guard::FlushGuard;
pub use layer::{ChromeLayer, EventOrSpan};

use crate::builder::Fields;
use crate::callsite::NAME_FIELD;
use crate::config::AsyncSpans;
use crate::layer::KinetoLayer;
use crate::os::fork;
use crate::write::sink::Writers;
use guard::default_file;
use layer::NameFn;
use std::fmt;
use std::io::Write;
use std::path::{Path, PathBuf};
use tracing_core::{LevelFilter, Subscriber};
use tracing_subscriber::registry::LookupSpan;

/// Configures a [`ChromeLayer`], like the builder of that name in tracing-chrome.
#[must_use = "call `build` to get a layer"]
pub struct ChromeLayerBuilder<S>
where
    S: Subscriber + for<'span> LookupSpan<'span> + Send + Sync,
{
    output: Option<ChromeOutput>,
    name_fn: Option<NameFn<S>>,
    category_fn: Option<NameFn<S>>,
    include_args: bool,
    include_locations: bool,
    trace_style: TraceStyle,
}

/// The argument that holds the text of `category_fn`.
const CATEGORY_FIELD: &str = "category";

/// Where the trace goes.
enum ChromeOutput {
    File(PathBuf),
    Writer(Box<dyn Write + Send>),
}

/// How spans are drawn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TraceStyle {
    /// A slice for each enter of a span, on its thread.
    #[default]
    Threaded,
    /// Also a track for each span that is entered more than once, such as a future's.
    Async,
}

impl<S> ChromeLayerBuilder<S>
where
    S: Subscriber + for<'span> LookupSpan<'span> + Send + Sync,
{
    /// Returns a builder with the default settings.
    pub fn new() -> Self {
        ChromeLayerBuilder {
            output: None,
            name_fn: None,
            category_fn: None,
            include_args: false,
            include_locations: true,
            trace_style: TraceStyle::Threaded,
        }
    }

    /// Sets the file that receives the trace. Default: `./trace-{microseconds since the Unix epoch}.json`.
    ///
    /// The extension selects the format, as in [`KinetoLayerBuilder::output`](crate::KinetoLayerBuilder::output). An existing
    /// file is replaced when the trace is written. [`build`](Self::build) panics if the file cannot be created.
    pub fn file<P: AsRef<Path>>(mut self, file: P) -> Self {
        self.output = Some(ChromeOutput::File(file.as_ref().to_owned()));
        self
    }

    /// Sets the writer that receives the trace, in place of a file.
    ///
    /// ```
    /// use tracing_kineto::chrome::ChromeLayerBuilder;
    /// # use tracing_subscriber::prelude::*;
    ///
    /// let (layer, guard) = ChromeLayerBuilder::new().writer(std::io::sink()).build();
    /// # tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || ());
    /// ```
    pub fn writer<W: Write + Send + 'static>(mut self, writer: W) -> Self {
        self.output = Some(ChromeOutput::Writer(Box::new(writer)));
        self
    }

    /// Records the fields of spans and events as arguments. Default: false.
    pub fn include_args(mut self, include: bool) -> Self {
        self.include_args = include;
        self
    }

    /// Shows file and line of each span. Default: true.
    pub fn include_locations(mut self, include: bool) -> Self {
        self.include_locations = include;
        self
    }

    /// Sets how spans are drawn. Default: [`TraceStyle::Threaded`].
    pub fn trace_style(mut self, style: TraceStyle) -> Self {
        self.trace_style = style;
        self
    }

    /// Sets the function that names spans and events. Default: their own names.
    ///
    /// It is called before each enter of a span, and for each event, while a recording runs. All slices of a span have the
    /// name that it returned last. A field `kineto.name` of the program wins.
    ///
    /// ```
    /// use tracing_kineto::chrome::{ChromeLayerBuilder, EventOrSpan};
    /// # use tracing_subscriber::prelude::*;
    ///
    /// let builder = ChromeLayerBuilder::new().name_fn(Box::new(|event_or_span| match event_or_span {
    ///     EventOrSpan::Event(event) => event.metadata().target().into(),
    ///     EventOrSpan::Span(span) => format!("{}::{}", span.metadata().target(), span.name()),
    /// }));
    /// # let (layer, _guard) = builder.writer(std::io::sink()).build();
    /// # tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || ());
    /// ```
    pub fn name_fn(mut self, name_fn: NameFn<S>) -> Self {
        self.name_fn = Some(name_fn);
        self
    }

    /// Sets the function that returns the category of spans and events, which becomes the argument `category`. Default: none.
    ///
    /// It is called like that of [`name_fn`](Self::name_fn).
    pub fn category_fn(mut self, category_fn: NameFn<S>) -> Self {
        self.category_fn = Some(category_fn);
        self
    }

    /// Creates the layer, which records from now on, and the guard that writes the trace.
    ///
    /// # Panics
    ///
    /// If the file cannot be created or belongs to another layer, or if another setting, such as one of the environment, is an error of
    /// [`KinetoLayerBuilder::build`](crate::KinetoLayerBuilder::build).
    pub fn build(self) -> (ChromeLayer<S>, FlushGuard) {
        let writers = Writers::default();
        let output = match self.output {
            None => default_file(),
            Some(ChromeOutput::File(path)) => path,
            Some(ChromeOutput::Writer(writer)) => writers.add(writer),
        };
        let fields: &[&str] = match (&self.name_fn, &self.category_fn) {
            (None, None) => &[],
            (Some(_), None) => &[NAME_FIELD],
            (None, Some(_)) => &[CATEGORY_FIELD],
            (Some(_), Some(_)) => &[NAME_FIELD, CATEGORY_FIELD],
        };
        let builder = KinetoLayer::builder()
            .fields(Fields::new().record(self.include_args))
            .with_location(self.include_locations)
            .events(LevelFilter::TRACE)
            .async_spans(match self.trace_style {
                TraceStyle::Threaded => AsyncSpans::PerPoll,
                TraceStyle::Async => AsyncSpans::Both,
            })
            .like_chrome(fields)
            .sink(Writers::SCHEME, writers.clone())
            .output(output.as_path());
        let (layer, guard) = match builder.build() {
            Ok(built) => built,
            #[expect(clippy::panic, reason = "as in tracing-chrome, whose `build` returns no error")]
            Err(error) => panic!("the trace cannot be recorded: {error}"),
        };
        let functions = self.name_fn.into_iter().chain(self.category_fn).collect();
        (ChromeLayer { layer, functions }, FlushGuard { guard, writers, output: fork::Own::new(output) })
    }
}

impl<S> Default for ChromeLayerBuilder<S>
where
    S: Subscriber + for<'span> LookupSpan<'span> + Send + Sync,
{
    fn default() -> Self {
        ChromeLayerBuilder::new()
    }
}

impl<S> fmt::Debug for ChromeLayerBuilder<S>
where
    S: Subscriber + for<'span> LookupSpan<'span> + Send + Sync,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChromeLayerBuilder")
            .field("include_args", &self.include_args)
            .field("include_locations", &self.include_locations)
            .field("trace_style", &self.trace_style)
            .finish_non_exhaustive()
    }
}
