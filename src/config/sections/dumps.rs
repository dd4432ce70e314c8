//! The settings of dumps: what triggers one, how often, and how many files are kept.

use super::super::Config;
use super::super::keys::Key;
use super::super::sources::settings::ConfigSource;
use super::super::value::parse_duration;
use super::retention::RetentionLimits;
use crate::error::{Error, ErrorKind};
use std::fmt;
use std::str::FromStr;
use std::time::Duration;
use tracing_core::Level;

/// What makes a recording write a dump by itself, without a call of [`Profiler::dump`](crate::Profiler::dump).
///
/// Set it by [`Dumps::on`](crate::Dumps::on), or as text in `KINETO_DUMP_ON`:
///
/// ```
/// use std::time::Duration;
/// use tracing_kineto::DumpTrigger;
///
/// let slow = DumpTrigger::slow_span("request", Duration::from_millis(250));
/// assert_eq!("span:request>250ms".parse::<DumpTrigger>()?, slow);
/// assert_eq!("step>3x".parse::<DumpTrigger>()?, DumpTrigger::SlowStep { times: 3 });
/// assert_eq!("panic".parse::<DumpTrigger>()?, DumpTrigger::Panic);
/// # Ok::<(), tracing_kineto::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DumpTrigger {
    /// `span:NAME>TIME`: a span of that name took longer, from its creation until it closed. For an async request that is the
    /// whole request, not one poll.
    ///
    /// Spans of that name are found by other threads too, which costs them some 200 ns; other spans cost nothing.
    SlowSpan {
        /// The name of the span.
        name: String,
        /// The time from which it is slow.
        longer_than: Duration,
    },
    /// `step>Nx`, or `step` for `step>3x`: a [step](crate::Profiler::step) took that many times as long as the median of the
    /// 100 steps before it, and at least 10 ms. The first 20 steps trigger nothing.
    SlowStep {
        /// How many times as long.
        times: u32,
    },
    /// `event:LEVEL`: an event of that level or a more severe one, such as `event:error`, passed the layer's filter.
    Event(Level),
    /// `panic`: a thread panicked. With `panic = "abort"`, the panic waits for the dump, at most the builder's
    /// [`flush_timeout`](crate::KinetoLayerBuilder::flush_timeout).
    Panic,
    /// `signal`: the process received SIGUSR2. Unix only; a handler of the program's own keeps the signal.
    Signal,
}

impl DumpTrigger {
    /// Returns the trigger for spans of that name that took longer.
    pub fn slow_span(name: impl Into<String>, longer_than: Duration) -> DumpTrigger {
        DumpTrigger::SlowSpan { name: name.into(), longer_than }
    }

    /// The texts that can be parsed.
    pub(in crate::config) const EXPECTED: &str =
        "span:NAME>TIME such as span:request>250ms, step>Nx such as step>3x, event:LEVEL, panic or signal";

    /// Returns whether it can occur.
    pub(in crate::config) fn is_valid(&self) -> bool {
        match self {
            DumpTrigger::SlowSpan { name, longer_than } => !name.is_empty() && !longer_than.is_zero(),
            DumpTrigger::SlowStep { times } => *times >= 2,
            DumpTrigger::Event(_) | DumpTrigger::Panic | DumpTrigger::Signal => true,
        }
    }

    /// Parses a list of triggers.
    pub(in crate::config) fn parse_list(texts: &[String]) -> Result<Vec<DumpTrigger>, Error> {
        texts.iter().map(|text| text.parse()).collect()
    }
}

impl FromStr for DumpTrigger {
    type Err = Error;

    fn from_str(text: &str) -> Result<DumpTrigger, Error> {
        let text = text.trim();
        let times = |factor: &str| factor.trim().trim_end_matches('x').parse().ok();
        let parsed = match text.split_once([':', '>']) {
            None => match text {
                "step" => Some(DumpTrigger::SlowStep { times: 3 }),
                "panic" => Some(DumpTrigger::Panic),
                "signal" => Some(DumpTrigger::Signal),
                _ => None,
            },
            Some(("step", factor)) => times(factor).map(|times| DumpTrigger::SlowStep { times }),
            Some(("event", level)) => level.parse().ok().map(DumpTrigger::Event),
            Some(("span", slow)) => slow
                .rsplit_once('>')
                .and_then(|(name, time)| Some(DumpTrigger::slow_span(name.trim(), parse_duration(time.trim())?))),
            Some(_) => None,
        };
        parsed
            .filter(DumpTrigger::is_valid)
            .ok_or_else(|| Error::new(ErrorKind::Config, format!("{text:?}: expected {}", DumpTrigger::EXPECTED)))
    }
}

/// Formats as in `KINETO_DUMP_ON`; times to a millisecond.
impl fmt::Display for DumpTrigger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DumpTrigger::SlowSpan { name, longer_than } => write!(f, "span:{name}>{}ms", longer_than.as_millis()),
            DumpTrigger::SlowStep { times } => write!(f, "step>{times}x"),
            DumpTrigger::Event(level) => write!(f, "event:{}", level.as_str().to_ascii_lowercase()),
            DumpTrigger::Panic => f.write_str("panic"),
            DumpTrigger::Signal => f.write_str("signal"),
        }
    }
}

/// When dumps and the last trace are written, how large the files may be, and how many dumps are kept.
#[derive(Clone, Debug, Default)]
pub(crate) struct DumpConfig {
    pub(crate) triggers: Vec<DumpTrigger>,
    /// How long a dump waits after its trigger, so that it shows what follows.
    pub(crate) after: Duration,
    /// The least time from one triggered dump to the next.
    pub(crate) interval: Duration,
    pub(crate) kept: RetentionLimits,
    /// The size at which a file is closed.
    pub(crate) file_limit: Option<u64>,
    /// Whether the program's end writes the trace; `None` decides by the other settings.
    pub(crate) write_at_end: Option<bool>,
}

impl DumpConfig {
    /// Returns the names of spans, and from when on each is slow.
    pub(crate) fn slow_spans(&self) -> Vec<(String, Duration)> {
        let slow = self.triggers.iter().filter_map(|trigger| match trigger {
            DumpTrigger::SlowSpan { name, longer_than } => Some((name.clone(), *longer_than)),
            _ => None,
        });
        slow.collect()
    }

    /// Returns the most verbose level of events that trigger a dump.
    pub(crate) fn event_level(&self) -> Option<Level> {
        let levels = self.triggers.iter().filter_map(|trigger| match trigger {
            DumpTrigger::Event(level) => Some(*level),
            _ => None,
        });
        levels.max()
    }

    /// Returns how many times the median a step takes to be slow.
    pub(crate) fn slow_step(&self) -> Option<u32> {
        let times = self.triggers.iter().filter_map(|trigger| match trigger {
            DumpTrigger::SlowStep { times } => Some(*times),
            _ => None,
        });
        times.min()
    }
}

impl Config {
    /// Returns why the end of the program writes no trace, and what to do; `None` if it writes one.
    pub(crate) fn why_unwritten_at_end(&self) -> Option<&'static str> {
        let has_only_dumps =
            || !self.dumps.triggers.is_empty() && self.value_source(Key::LogFile) == ConfigSource::Default;
        match self.dumps.write_at_end {
            Some(true) => None,
            Some(false) => Some("WRITE_AT_END is false; set it to true for one"),
            None => has_only_dumps()
                .then_some("DUMP_ON is set and no file is named; name an output for one, or set WRITE_AT_END=true"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn triggers_are_parsed_and_formatted() {
        for text in ["span:request>250ms", "span:a::b > c>1500ms", "step>3x", "event:error", "panic", "signal"] {
            assert_eq!(text.parse::<DumpTrigger>().unwrap().to_string(), text);
        }
        for (text, same) in [("step", "step>3x"), ("span: a >2s", "span:a>2000ms"), (" event:WARN", "event:warn")] {
            assert_eq!(text.parse::<DumpTrigger>().unwrap().to_string(), same, "{text}");
        }
        let wrong =
            ["", "span", "span:>1s", "span:a", "span:a>5", "span:a>0s", "step>1x", "step>x", "event:loud", "x:y"];
        for text in wrong {
            let error = text.parse::<DumpTrigger>().unwrap_err().to_string();
            assert!(error.starts_with(&format!("{text:?}: expected span:NAME>TIME")), "{error}");
        }
    }
}
