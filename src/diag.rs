//! The crate's only door for messages to people: to stderr, or to a sink of the program's own.
//!
//! The library never logs through `tracing`, whose layers it may be called from. Lines look as the Rust world's do, as
//! libkineto's, or are JSON ([`LogFormat`]); times are in UTC. Nothing here panics, holds a lock while it calls foreign code,
//! or fails when stderr is closed.
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
use std::time::{SystemTime, UNIX_EPOCH};

#[cfg(unix)]
use crate::os::stderr;
use crate::text::counted;
pub(crate) use format::LogFormat;
use format::Look;
use line::Line;
pub use severity::Severity;
pub(crate) use site::Site;

/// What takes the messages of this crate instead of stderr.
///
/// It runs on the thread that has something to say, with no lock held. Messages that it causes itself, by logging
/// through `tracing` say, go to stderr; if it panics, the message does too.
pub type LogSink = Arc<dyn Fn(&Message<'_>) + Send + Sync>;

/// One message of this crate to the people who run the program.
///
/// Its `Display` is the line that would stand on stderr, without the newline and colours; `KINETO_LOG_FORMAT` says how it
/// looks.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Message<'a> {
    /// How much it matters.
    pub severity: Severity,
    /// What it is about, in a word: "config", "session".
    pub topic: &'static str,
    /// The source file that sent it, from the crate's `src` on.
    pub file: &'static str,
    /// The line in that file.
    pub line: u32,
    /// When it was sent, in seconds since the Unix epoch.
    pub seconds: u64,
    /// How many messages of the same place were held back by the rate limit before this one.
    pub suppressed: u64,
    /// What it says.
    pub text: fmt::Arguments<'a>,
    /// A JSON object that is added to a line in JSON.
    data: Option<&'a str>,
    look: Look,
}

/// Sends a message: `diag!(Warning, "config", "unknown key {key}")`.
///
/// The arguments are evaluated and formatted only if the severity passes the threshold. Each place in the source has a
/// rate limit of its own.
macro_rules! diag {
    (data = $data:expr, $severity:ident, $topic:literal, $($text:tt)+) => {{
        static SITE: $crate::diag::Site =
            $crate::diag::Site::new($crate::diag::Severity::$severity, $topic, file!(), line!(), module_path!());
        if $crate::diag::DOOR.lets_through(&SITE) {
            $crate::diag::DOOR.emit_with(&SITE, Some($data), format_args!($($text)+));
        }
    }};
    (door = $door:expr, $severity:ident, $topic:literal, $($text:tt)+) => {{
        static SITE: $crate::diag::Site =
            $crate::diag::Site::new($crate::diag::Severity::$severity, $topic, file!(), line!(), module_path!());
        let door: &$crate::diag::Door = $door;
        if door.lets_through(&SITE) {
            door.emit(&SITE, format_args!($($text)+));
        }
    }};
    ($severity:ident, $topic:literal, $($text:tt)+) => {
        $crate::diag::diag!(door = &$crate::diag::DOOR, $severity, $topic, $($text)+)
    };
}
pub(crate) use diag;

/// The one door of the process, as libkineto's logger is process-wide: of two layers, the one built last sets it.
pub(crate) static DOOR: Door = Door::new();

/// Which messages pass, and where to.
pub(crate) struct Door {
    threshold: AtomicU8,
    format: AtomicU8,
    /// No line has colours, wherever it goes.
    is_plain: AtomicBool,
    /// The modules whose verbose messages pass; `None` means all.
    modules: RwLock<Option<Arc<[String]>>>,
    sink: RwLock<Option<LogSink>>,
}

impl Door {
    /// Messages below this are dropped unless told otherwise.
    ///
    /// libkineto says all by itself and only errors inside PyTorch. What a user must hear about a profiler is that a
    /// setting was not understood or that records are missing: those are warnings, and there are none in a good run.
    pub(crate) const DEFAULT_THRESHOLD: Severity = Severity::Warning;

    pub(crate) const fn new() -> Self {
        Door {
            threshold: AtomicU8::new(Self::DEFAULT_THRESHOLD.number()),
            format: AtomicU8::new(LogFormat::Text as u8),
            is_plain: AtomicBool::new(false),
            modules: RwLock::new(None),
            sink: RwLock::new(None),
        }
    }

    /// Drops messages below `threshold` from now on.
    pub(crate) fn set_threshold(&self, threshold: Severity) {
        self.threshold.store(threshold.number(), Ordering::Relaxed);
    }

    /// Sets how messages look from now on.
    pub(crate) fn set_format(&self, format: LogFormat) {
        self.format.store(format as u8, Ordering::Relaxed);
    }

    /// Says whether messages are without colours on a terminal too.
    pub(crate) fn set_plain(&self, is_plain: bool) {
        self.is_plain.store(is_plain, Ordering::Relaxed);
    }

    /// Lets verbose messages pass from these modules alone ("config", "env"; a file name's extension is ignored).
    ///
    /// An empty list lets all of them pass, as VERBOSE_LOG_MODULES does.
    pub(crate) fn set_verbose_modules(&self, modules: &[String]) {
        let modules = modules.iter().map(|name| name.split('.').next().unwrap_or(name).to_owned());
        let modules: Arc<[String]> = modules.collect();
        *self.modules.write().unwrap_or_else(PoisonError::into_inner) = (!modules.is_empty()).then_some(modules);
    }

    /// Sends messages to `sink` instead of stderr; `None` brings stderr back.
    pub(crate) fn set_sink(&self, sink: Option<LogSink>) {
        let old = {
            let mut slot = self.sink.write().unwrap_or_else(PoisonError::into_inner);
            std::mem::replace(&mut *slot, sink)
        };
        // Foreign code may run in this drop, so the lock is free again.
        drop(old);
    }

    /// Whether people watch the stages of a recording on a terminal.
    pub(crate) fn has_terminal(&self) -> bool {
        let shows_stages = self.threshold.load(Ordering::Relaxed) <= Severity::Stage.number();
        shows_stages && glance(&self.sink).is_none() && io::stderr().is_terminal()
    }

    /// Whether a message from there would pass the threshold and the module list.
    pub(crate) fn lets_through(&self, site: &Site) -> bool {
        if site.severity.number() < self.threshold.load(Ordering::Relaxed) {
            return false;
        }
        if site.severity != Severity::Verbose {
            return true;
        }
        glance(&self.modules)
            .is_none_or(|modules| site.module.split("::").any(|part| modules.iter().any(|name| name == part)))
    }

    /// Sends one message, unless its place has had its share of this second.
    pub(crate) fn emit(&self, site: &Site, text: fmt::Arguments<'_>) {
        self.emit_with(site, None, text);
    }

    /// Sends one message as [`emit`](Door::emit) does, with an object that is added to a line in JSON.
    pub(crate) fn emit_with(&self, site: &Site, data: Option<&str>, text: fmt::Arguments<'_>) {
        let Some(nesting) = Nesting::enter() else {
            site.hold_back();
            return;
        };
        let seconds = unix_seconds();
        let Some(suppressed) = site.admit(seconds) else { return };
        let Site { severity, topic, file, line, .. } = *site;
        let look = Look { format: LogFormat::of(self.format.load(Ordering::Relaxed)), has_colours: false };
        let message = Message { severity, topic, file, line, seconds, suppressed, text, data, look };
        let delivered = nesting.outermost
            && catch_unwind(AssertUnwindSafe(|| match glance(&self.sink) {
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
            let message = Message { look: Look { has_colours, ..look }, ..message };
            let _ = catch_unwind(AssertUnwindSafe(|| write_to_stderr(&message)));
        }
    }
}

/// Copies what a lock holds, without waiting: nothing, while it is being replaced.
///
/// A thread may be replacing it for ever, in a child that was forked at that moment.
fn glance<T: Clone>(lock: &RwLock<Option<T>>) -> Option<T> {
    match lock.try_read() {
        Ok(held) => held.clone(),
        Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner().clone(),
        Err(TryLockError::WouldBlock) => None,
    }
}

/// Writes a page that the program has asked for to stderr, as it is and with one call.
#[cfg(feature = "analysis")]
pub(crate) fn show(page: &str) {
    let _ = io::Write::write_all(&mut io::stderr(), page.as_bytes());
}

/// Shows a text in place of the terminal's current line, which stays the current one; nothing clears it.
pub(crate) fn show_status(text: &str) {
    write_now(format!("\r\x1b[K{text}").as_bytes());
}

/// Writes the line with one call, so that lines of several threads do not mix. A stderr that is closed or full takes none;
/// the next line that it takes says how many are missing.
fn write_to_stderr(message: &Message<'_>) {
    /// Lines that stderr did not take.
    static DROPPED: AtomicU64 = AtomicU64::new(0);
    // Relaxed: a counter.
    let dropped = DROPPED.swap(0, Ordering::Relaxed);
    let line = match dropped {
        0 => Line::new(format_args!("{message}")),
        n => told(
            message,
            format_args!("{} ({} dropped before: stderr did not take them)", message.text, counted(n, "message")),
        ),
    };
    if !write_now(line.as_bytes()) {
        DROPPED.fetch_add(dropped + 1, Ordering::Relaxed);
    }
}

/// Returns the line of a message with another text.
fn told(message: &Message<'_>, text: fmt::Arguments<'_>) -> Line {
    Line::new(format_args!("{}", Message { text, ..*message }))
}

/// Writes what stderr takes without waiting for its reader; `false` if that is nothing.
fn write_now(text: &[u8]) -> bool {
    #[cfg(unix)]
    return stderr::write(text);
    #[cfg(not(unix))]
    io::Write::write_all(&mut io::stderr(), text).is_ok()
}

fn unix_seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// How deep this thread is inside the door: a sink, an allocator or a `Display` may come back to it.
struct Nesting {
    outermost: bool,
}

thread_local! {
    static DEPTH: Cell<u8> = const { Cell::new(0) };
}

impl Nesting {
    /// `None` when a message about a message causes a message.
    fn enter() -> Option<Self> {
        // In a thread that is ending the count is gone; then no sink is called.
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

    fn site(severity: Severity) -> Site {
        Site::new(severity, "test", "src/session/mod.rs", 7, "tracing_kineto::session::state")
    }

    fn say(door: &Door, site: &Site, text: &str) {
        if door.lets_through(site) {
            door.emit(site, format_args!("{text}"));
        }
    }

    /// A door whose lines are kept.
    fn recording() -> (Arc<Door>, Arc<Mutex<Vec<String>>>) {
        let lines = Arc::new(Mutex::new(Vec::new()));
        let door = Arc::new(Door::new());
        door.set_format(LogFormat::Libkineto);
        let kept = Arc::clone(&lines);
        door.set_sink(Some(Arc::new(move |message: &Message<'_>| kept.lock().unwrap().push(message.to_string()))));
        (door, lines)
    }

    #[test]
    fn each_threshold_lets_its_own_severity_and_those_above_pass() {
        for (at, threshold) in Severity::ALL.into_iter().enumerate() {
            let (door, lines) = recording();
            door.set_threshold(threshold);
            for severity in Severity::ALL {
                say(&door, &site(severity), "x");
            }
            let expected: Vec<String> = Severity::ALL[at..].iter().map(|severity| format!("{severity}:")).collect();
            let lines = lines.lock().unwrap();
            assert_eq!(lines.len(), expected.len(), "{threshold}");
            assert!(lines.iter().zip(&expected).all(|(line, start)| line.starts_with(start)), "{threshold}: {lines:?}");
        }
    }

    #[test]
    fn warnings_pass_by_default_and_information_does_not() {
        let (door, lines) = recording();
        say(&door, &site(Severity::Info), "not this");
        say(&door, &site(Severity::Warning), "this");
        assert_eq!(lines.lock().unwrap().len(), 1);
    }

    #[test]
    fn verbose_modules_filter_verbose_messages_alone() {
        let (door, lines) = recording();
        door.set_threshold(Severity::Verbose);
        door.set_verbose_modules(&["clock.rs".into()]);
        say(&door, &site(Severity::Verbose), "no");
        say(&door, &site(Severity::Info), "yes");
        door.set_verbose_modules(&["clock".into(), "state.cpp".into()]);
        say(&door, &site(Severity::Verbose), "yes");
        door.set_verbose_modules(&[]);
        say(&door, &site(Severity::Verbose), "yes");
        let lines = lines.lock().unwrap();
        assert_eq!(lines.len(), 3);
        assert!(lines.iter().all(|line| line.ends_with("yes")));
    }

    #[test]
    fn a_sink_that_sends_messages_ends_and_hears_only_the_first() {
        let door = Arc::new(Door::new());
        let heard = Arc::new(Mutex::new(0));
        let (inner, count) = (Arc::clone(&door), Arc::clone(&heard));
        door.set_sink(Some(Arc::new(move |_: &Message<'_>| {
            *count.lock().unwrap() += 1;
            // Would lock up if the door held its lock now, and would never end if this came back here.
            inner.set_threshold(Severity::Info);
            say(&inner, &site(Severity::Usdt), "(expected on stderr: a message of a sink)");
            inner.set_sink(None);
        })));
        say(&door, &site(Severity::Warning), "first");
        assert_eq!(*heard.lock().unwrap(), 1);
        say(&door, &site(Severity::Warning), "(expected on stderr: the sink is gone)");
        assert_eq!(*heard.lock().unwrap(), 1);
    }

    #[test]
    fn a_text_that_sends_messages_for_ever_is_cut_off() {
        struct Endless<'a>(&'a Door, &'a Site);
        #[expect(clippy::recursive_format_impl, reason = "that it is cut off is what is tested")]
        impl fmt::Display for Endless<'_> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.emit(self.1, format_args!("{self}"));
                f.write_str("(expected on stderr: nested)")
            }
        }
        let (door, lines) = recording();
        let site = site(Severity::Warning);
        door.emit(&site, format_args!("{}", Endless(&door, &site)));
        assert_eq!(lines.lock().unwrap().len(), 1);
        say(&door, &site, "and the thread can speak again");
        assert_eq!(lines.lock().unwrap().len(), 2);
    }

    #[test]
    fn a_sink_that_panics_harms_nobody() {
        let door = Door::new();
        door.set_sink(Some(Arc::new(|_: &Message<'_>| std::panic::resume_unwind(Box::new("sink")))));
        say(&door, &site(Severity::Warning), "(expected on stderr: the sink has panicked)");
        let (door, lines) = recording();
        say(&door, &site(Severity::Warning), "later");
        assert_eq!(lines.lock().unwrap().len(), 1);
    }

    #[test]
    fn a_lock_that_is_held_for_ever_or_poisoned_stops_no_message() {
        let (door, lines) = recording();
        let held = door.sink.write().unwrap();
        say(&door, &site(Severity::Warning), "(expected on stderr: the sink is being replaced)");
        drop(held);
        let inner = Arc::clone(&door);
        let poisoner = std::thread::Builder::new().spawn(move || {
            let _held = inner.sink.write().unwrap();
            std::panic::resume_unwind(Box::new("poison"));
        });
        assert!(poisoner.unwrap().join().is_err() && door.sink.is_poisoned());
        say(&door, &site(Severity::Warning), "heard");
        assert_eq!(lines.lock().unwrap().len(), 1);
        door.set_sink(None);
    }

    #[test]
    fn the_macro_names_its_place_and_keeps_to_its_share() {
        let (door, lines) = recording();
        for turn in 0..1000 {
            diag!(door = &door, Warning, "test", "turn {turn}");
        }
        let lines = lines.lock().unwrap();
        assert!(lines[0].contains(" tracing-kineto/diag.rs:") && lines[0].ends_with("] turn 0"), "{lines:?}");
        // A second may have begun between.
        assert!((10..=30).contains(&lines.len()), "{}", lines.len());
    }

    #[test]
    fn the_macro_does_not_evaluate_what_does_not_pass() {
        let mut evaluated = false;
        diag!(door = &Door::new(), Verbose, "test", "{}", {
            evaluated = true;
            0
        });
        assert!(!evaluated);
    }
}
