//! The crate's logger: writes messages to stderr, or to the program's own sink.
//!
//! The library never logs through `tracing`, because its layers may call it. Lines have the usual format of Rust programs, that
//! of libkineto, or JSON ([`LogFormat`]); times are in UTC. The logger never panics, holds no lock while it calls foreign code,
//! and ignores a closed stderr.
#![expect(clippy::disallowed_methods, reason = "this is the place that writes to stderr")]

mod format;
mod line;
mod severity;
mod site;

use std::cell::Cell;
use std::fmt;
use std::io::{self, IsTerminal as _};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock, TryLockError};

use crate::os::platform;
#[cfg(unix)]
use crate::os::stderr;
use crate::text::{count_with_noun, escaped};
use format::LineStyle;
pub use format::LogFormat;
use line::Line;
pub use severity::Severity;
pub use site::MessageSite;

/// Receives the messages of this crate instead of stderr.
///
/// It runs on the thread that sends the message, with no lock held. Messages that it causes itself, for example by logging
/// through `tracing`, go to stderr; if it panics, so does the message.
///
/// ```
/// use std::sync::Arc;
/// use tracing_kineto::{KinetoLayer, Severity};
///
/// let builder = KinetoLayer::builder().log_sink(Arc::new(|message| {
///     if message.severity >= Severity::Warning {
///         println!("{}: {}", message.topic, message.text);
///     }
/// }));
/// ```
pub type LogSink = Arc<dyn Fn(&Message<'_>) + Send + Sync>;

/// A message of this crate.
///
/// Its `Display` is the line for stderr, without newline and colours; `KINETO_LOG_FORMAT` selects its format.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Message<'a> {
    /// The severity.
    pub severity: Severity,
    /// The topic in a word: "config", "session".
    pub topic: &'static str,
    /// The source file that sent it, from the crate's `src` on.
    pub file: &'static str,
    /// The line in that file.
    pub line: u32,
    /// When it was sent, in seconds since the Unix epoch; 0 in WebAssembly.
    pub seconds: u64,
    /// The number of earlier messages of the same site that the rate limit suppressed.
    pub suppressed: u64,
    /// The text.
    pub text: fmt::Arguments<'a>,
    /// A JSON object that is added to a line in JSON.
    data: Option<&'a str>,
    style: LineStyle,
}

/// Sends a message: `diag!(Warning, "config", "unknown key {key}")`.
///
/// The arguments are evaluated and formatted only if the severity passes the threshold. Each call site has its own rate limit.
#[doc(hidden)]
#[macro_export]
macro_rules! __diag {
    (data = $data:expr, $severity:ident, $topic:literal, $($text:tt)+) => {{
        static SITE: $crate::diag::MessageSite =
            $crate::diag::MessageSite::new($crate::diag::Severity::$severity, $topic, file!(), line!(), module_path!());
        if $crate::diag::LOGGER.lets_through(&SITE) {
            $crate::diag::LOGGER.emit_with(&SITE, Some($data), format_args!($($text)+));
        }
    }};
    (logger = $logger:expr, $severity:ident, $topic:literal, $($text:tt)+) => {{
        static SITE: $crate::diag::MessageSite =
            $crate::diag::MessageSite::new($crate::diag::Severity::$severity, $topic, file!(), line!(), module_path!());
        let logger: &$crate::diag::Logger = $logger;
        if logger.lets_through(&SITE) {
            logger.emit(&SITE, format_args!($($text)+));
        }
    }};
    ($severity:ident, $topic:literal, $($text:tt)+) => {
        $crate::diag::diag!(logger = &$crate::diag::LOGGER, $severity, $topic, $($text)+)
    };
}
pub use __diag as diag;

/// The logger of the process. Like libkineto's, it is process-wide: the layer that is built last configures it.
pub static LOGGER: Logger = Logger::new();

/// Filters messages, and writes them to a sink or to stderr.
pub struct Logger {
    threshold: AtomicU8,
    format: AtomicU8,
    /// Whether lines have no colours.
    is_plain: AtomicBool,
    /// The modules whose verbose messages pass; `None` means all.
    modules: RwLock<Option<Arc<[String]>>>,
    sink: RwLock<Option<LogSink>>,
}

impl fmt::Debug for Logger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Logger").finish_non_exhaustive()
    }
}

impl Default for Logger {
    fn default() -> Logger {
        Logger::new()
    }
}

impl Logger {
    /// The default threshold, below which messages are dropped.
    ///
    /// Alone, libkineto prints all messages; inside PyTorch only errors. Users must know if a setting was not understood or
    /// records are missing: these are warnings, and a good run has none.
    pub const DEFAULT_THRESHOLD: Severity = Severity::Warning;

    /// Creates a logger with the default threshold, which writes to stderr.
    pub const fn new() -> Self {
        Logger {
            threshold: AtomicU8::new(Self::DEFAULT_THRESHOLD.number()),
            format: AtomicU8::new(LogFormat::Text as u8),
            is_plain: AtomicBool::new(false),
            modules: RwLock::new(None),
            sink: RwLock::new(None),
        }
    }

    /// Drops messages below `threshold` from now on.
    pub fn set_threshold(&self, threshold: Severity) {
        self.threshold.store(threshold.number(), Ordering::Relaxed);
    }

    /// Sets the format of messages.
    pub fn set_format(&self, format: LogFormat) {
        self.format.store(format as u8, Ordering::Relaxed);
    }

    /// Sets whether messages have no colours even on a terminal.
    pub fn set_plain(&self, is_plain: bool) {
        self.is_plain.store(is_plain, Ordering::Relaxed);
    }

    /// Limits verbose messages to these modules ("config", "env"; a file name's extension is ignored).
    ///
    /// An empty list allows all of them, like VERBOSE_LOG_MODULES.
    pub fn set_verbose_modules(&self, modules: &[String]) {
        let modules = modules.iter().map(|name| name.split('.').next().unwrap_or(name).to_owned());
        let modules: Arc<[String]> = modules.collect();
        *self.modules.write().unwrap_or_else(PoisonError::into_inner) = (!modules.is_empty()).then_some(modules);
    }

    /// Sends messages to `sink` instead of stderr; `None` brings stderr back.
    pub fn set_sink(&self, sink: Option<LogSink>) {
        let old = {
            let mut slot = self.sink.write().unwrap_or_else(PoisonError::into_inner);
            std::mem::replace(&mut *slot, sink)
        };
        // Foreign code may run in this drop, so the lock is free again.
        drop(old);
    }

    /// Returns whether stages of a recording are shown on a terminal.
    pub fn has_terminal(&self) -> bool {
        let shows_stages = self.threshold.load(Ordering::Relaxed) <= Severity::Stage.number();
        shows_stages && try_read_clone(&self.sink).is_none() && io::stderr().is_terminal()
    }

    /// Returns whether a message of that site passes the threshold and the module list.
    pub fn lets_through(&self, site: &MessageSite) -> bool {
        if site.severity.number() < self.threshold.load(Ordering::Relaxed) {
            return false;
        }
        if site.severity != Severity::Verbose {
            return true;
        }
        try_read_clone(&self.modules)
            .is_none_or(|modules| site.module.split("::").any(|part| modules.iter().any(|name| name == part)))
    }

    /// Sends a message, unless its site has reached the rate limit.
    pub fn emit(&self, site: &MessageSite, text: fmt::Arguments<'_>) {
        self.emit_with(site, None, text);
    }

    /// Does the same as [`emit`](Logger::emit), with an object that is added to a line in JSON.
    pub fn emit_with(&self, site: &MessageSite, data: Option<&str>, text: fmt::Arguments<'_>) {
        let Some(nesting) = Nesting::try_enter() else {
            site.count_suppressed();
            return;
        };
        let seconds = platform::unix_time().as_secs();
        let Some(suppressed) = site.admit_message(seconds) else { return };
        let MessageSite { severity, topic, file, line, .. } = *site;
        let style =
            LineStyle { format: LogFormat::from_number(self.format.load(Ordering::Relaxed)), has_colours: false };
        let message = Message { severity, topic, file, line, seconds, suppressed, text, data, style };
        let delivered = nesting.outermost
            && catch_unwind(AssertUnwindSafe(|| match try_read_clone(&self.sink) {
                Some(sink) => {
                    sink(&message);
                    true
                }
                None => false,
            }))
            .unwrap_or(false);
        if !delivered {
            // A `Display` that panics must not take the program with it.
            let has_colours = !self.is_plain.load(Ordering::Relaxed) && io::stderr().is_terminal();
            let message = Message { style: LineStyle { has_colours, ..style }, ..message };
            let _ = catch_unwind(AssertUnwindSafe(|| write_to_stderr(&message)));
        }
    }
}

/// Copies the value of a lock without waiting; `None` while it is being replaced.
///
/// In a child that was forked at that moment, the lock stays held.
fn try_read_clone<T: Clone>(lock: &RwLock<Option<T>>) -> Option<T> {
    match lock.try_read() {
        Ok(held) => held.clone(),
        Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner().clone(),
        Err(TryLockError::WouldBlock) => None,
    }
}

/// Writes a page that the program requested to stderr, unchanged and with one call.
pub fn print_page(page: &str) {
    let _ = io::Write::write_all(&mut io::stderr(), page.as_bytes());
}

/// Replaces the terminal's current line by a text, without a newline; an empty text clears it.
pub fn show_status(text: &str) {
    write_now(format!("\r\x1b[K{}", escaped(text)).as_bytes());
}

/// Writes the line with one call, so that lines of several threads do not mix. If stderr is closed or full, the line is
/// dropped, and the next successful line reports the number.
fn write_to_stderr(message: &Message<'_>) {
    /// The number of lines that could not be written.
    static DROPPED: AtomicU64 = AtomicU64::new(0);
    // Relaxed: a counter.
    let dropped = DROPPED.swap(0, Ordering::Relaxed);
    let line = match dropped {
        0 => Line::new(format_args!("{message}")),
        n => line_with_text(
            message,
            format_args!(
                "{} ({} dropped before: stderr was full or closed)",
                message.text,
                count_with_noun(n, "message")
            ),
        ),
    };
    if !write_now(line.as_bytes()) {
        DROPPED.fetch_add(dropped + 1, Ordering::Relaxed);
    }
}

/// Returns the line of a message with another text.
fn line_with_text(message: &Message<'_>, text: fmt::Arguments<'_>) -> Line {
    Line::new(format_args!("{}", Message { text, ..*message }))
}

/// Writes to stderr without waiting for its reader; returns `false` if nothing was written.
fn write_now(text: &[u8]) -> bool {
    #[cfg(unix)]
    return stderr::write_line(text);
    #[cfg(not(unix))]
    io::Write::write_all(&mut io::stderr(), text).is_ok()
}

/// Counts the nested calls of the logger on this thread: a sink, an allocator or a `Display` may call it again.
struct Nesting {
    outermost: bool,
}

thread_local! {
    static DEPTH: Cell<u8> = const { Cell::new(0) };
}

impl Nesting {
    /// Returns `None` at the third level.
    fn try_enter() -> Option<Self> {
        // In a thread that is ending, the count is gone and no sink is called.
        let depth = DEPTH.try_with(|depth| depth.replace(depth.get().saturating_add(1))).unwrap_or(1);
        let nesting = Nesting { outermost: depth == 0 };
        (depth < 2).then_some(nesting)
    }
}

impl Drop for Nesting {
    fn drop(&mut self) {
        let _ = DEPTH.try_with(|depth| depth.set(depth.get().saturating_sub(1)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    fn site(severity: Severity) -> MessageSite {
        MessageSite::new(severity, "test", "src/session/mod.rs", 7, "tracing_kineto::session::state")
    }

    fn say(logger: &Logger, site: &MessageSite, text: &str) {
        if logger.lets_through(site) {
            logger.emit(site, format_args!("{text}"));
        }
    }

    /// Returns a logger, and its lines.
    fn recording() -> (Arc<Logger>, Arc<Mutex<Vec<String>>>) {
        let lines = Arc::new(Mutex::new(Vec::new()));
        let logger = Arc::new(Logger::new());
        logger.set_format(LogFormat::Libkineto);
        let kept = Arc::clone(&lines);
        logger.set_sink(Some(Arc::new(move |message: &Message<'_>| kept.lock().unwrap().push(message.to_string()))));
        (logger, lines)
    }

    #[test]
    fn threshold_passes_its_severity_and_higher_ones() {
        for (at, threshold) in Severity::ALL.iter().copied().enumerate() {
            let (logger, lines) = recording();
            logger.set_threshold(threshold);
            for severity in Severity::ALL.iter().copied() {
                say(&logger, &site(severity), "x");
            }
            let expected: Vec<String> = Severity::ALL[at..].iter().map(|severity| format!("{severity}:")).collect();
            let lines = lines.lock().unwrap();
            assert_eq!(lines.len(), expected.len(), "{threshold}");
            assert!(lines.iter().zip(&expected).all(|(line, start)| line.starts_with(start)), "{threshold}: {lines:?}");
        }
    }

    #[test]
    fn warnings_pass_by_default_and_info_does_not() {
        let (logger, lines) = recording();
        say(&logger, &site(Severity::Info), "not this");
        say(&logger, &site(Severity::Warning), "this");
        assert_eq!(lines.lock().unwrap().len(), 1);
    }

    #[test]
    fn verbose_modules_filter_only_verbose_messages() {
        let (logger, lines) = recording();
        logger.set_threshold(Severity::Verbose);
        logger.set_verbose_modules(&["clock.rs".into()]);
        say(&logger, &site(Severity::Verbose), "no");
        say(&logger, &site(Severity::Info), "yes");
        logger.set_verbose_modules(&["clock".into(), "state.cpp".into()]);
        say(&logger, &site(Severity::Verbose), "yes");
        logger.set_verbose_modules(&[]);
        say(&logger, &site(Severity::Verbose), "yes");
        let lines = lines.lock().unwrap();
        assert_eq!(lines.len(), 3);
        assert!(lines.iter().all(|line| line.ends_with("yes")));
    }

    #[test]
    fn sink_that_sends_messages_receives_only_the_first() {
        let logger = Arc::new(Logger::new());
        let heard = Arc::new(Mutex::new(0));
        let (inner, count) = (Arc::clone(&logger), Arc::clone(&heard));
        logger.set_sink(Some(Arc::new(move |_: &Message<'_>| {
            *count.lock().unwrap() += 1;
            // Would deadlock if the logger held its lock, and never end if this called the sink again.
            inner.set_threshold(Severity::Info);
            say(&inner, &site(Severity::Usdt), "(expected on stderr: a message of a sink)");
            inner.set_sink(None);
        })));
        say(&logger, &site(Severity::Warning), "first");
        assert_eq!(*heard.lock().unwrap(), 1);
        say(&logger, &site(Severity::Warning), "(expected on stderr: the sink is gone)");
        assert_eq!(*heard.lock().unwrap(), 1);
    }

    #[test]
    fn text_that_sends_messages_is_cut_off() {
        struct Endless<'a>(&'a Logger, &'a MessageSite);
        #[expect(clippy::recursive_format_impl, reason = "the recursion limit is tested")]
        impl fmt::Display for Endless<'_> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.emit(self.1, format_args!("{self}"));
                f.write_str("(expected on stderr: nested)")
            }
        }
        let (logger, lines) = recording();
        let site = site(Severity::Warning);
        logger.emit(&site, format_args!("{}", Endless(&logger, &site)));
        assert_eq!(lines.lock().unwrap().len(), 1);
        say(&logger, &site, "and the thread can speak again");
        assert_eq!(lines.lock().unwrap().len(), 2);
    }

    #[test]
    fn panic_of_a_sink_is_contained() {
        let logger = Logger::new();
        logger.set_sink(Some(Arc::new(|_: &Message<'_>| std::panic::resume_unwind(Box::new("sink")))));
        say(&logger, &site(Severity::Warning), "(expected on stderr: the sink has panicked)");
        let (logger, lines) = recording();
        say(&logger, &site(Severity::Warning), "later");
        assert_eq!(lines.lock().unwrap().len(), 1);
    }

    #[test]
    fn held_or_poisoned_lock_stops_no_message() {
        let (logger, lines) = recording();
        let held = logger.sink.write().unwrap();
        say(&logger, &site(Severity::Warning), "(expected on stderr: the sink is being replaced)");
        drop(held);
        let inner = Arc::clone(&logger);
        let poisoner = std::thread::Builder::new().spawn(move || {
            let _held = inner.sink.write().unwrap();
            std::panic::resume_unwind(Box::new("poison"));
        });
        assert!(poisoner.unwrap().join().is_err() && logger.sink.is_poisoned());
        say(&logger, &site(Severity::Warning), "heard");
        assert_eq!(lines.lock().unwrap().len(), 1);
        logger.set_sink(None);
    }

    #[test]
    fn macro_names_its_site_and_is_rate_limited() {
        let (logger, lines) = recording();
        for turn in 0..1000 {
            diag!(logger = &logger, Warning, "test", "turn {turn}");
        }
        let lines = lines.lock().unwrap();
        assert!(lines[0].contains(" tracing-kineto/diag.rs:") && lines[0].ends_with("] turn 0"), "{lines:?}");
        // A new second may have begun.
        assert!((10..=30).contains(&lines.len()), "{}", lines.len());
    }

    #[test]
    fn macro_skips_arguments_below_the_threshold() {
        let mut evaluated = false;
        diag!(logger = &Logger::new(), Verbose, "test", "{}", {
            evaluated = true;
            0
        });
        assert!(!evaluated);
    }
}
