//! Symbols of return addresses, each resolved once on first use.

#[cfg(feature = "segments")]
mod stored;

use crate::os::backtrace;
use kineto_base::fallible::Map;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The names of a trace's return addresses.
#[derive(Debug)]
pub(crate) struct StackSymbols {
    /// The most frames of a stack.
    frames: usize,
    /// Whether the addresses are those of this process.
    are_own: bool,
    known: Mutex<Map<u64, Arc<[SymbolFrame]>>>,
}

/// A frame of a call stack.
#[derive(Debug)]
struct SymbolFrame {
    text: String,
    /// Whether it is outside the program's own code.
    is_library: bool,
}

impl StackSymbols {
    /// Creates a table for stacks of at most `frames` frames.
    pub(crate) fn new(frames: usize) -> StackSymbols {
        StackSymbols { frames, are_own: true, known: Mutex::default() }
    }

    /// Resolves an address now rather than on first use.
    pub(crate) fn resolve_address(&self, address: u64) {
        self.frames_at(address);
    }

    /// Replaces `out` by a stack: from the innermost frame outside the recording code on, separated by `;`.
    pub(super) fn write_stack(&self, addresses: &[u64], out: &mut String) {
        out.clear();
        let (mut before, mut shown) = (true, 0);
        for address in addresses {
            for frame in self.frames_at(*address).iter() {
                before &= frame.is_library;
                if before {
                    continue;
                }
                if !out.is_empty() {
                    out.push(';');
                }
                out.push_str(&frame.text);
            }
            shown += usize::from(!before);
            if shown == self.frames {
                break;
            }
        }
    }

    fn lock_known(&self) -> MutexGuard<'_, Map<u64, Arc<[SymbolFrame]>>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the frames at an address: more than one where functions are inlined.
    fn frames_at(&self, address: u64) -> Arc<[SymbolFrame]> {
        if let Some(frames) = self.lock_known().get(&address) {
            return frames.clone();
        }
        let mut frames = Vec::new();
        if self.are_own {
            backtrace::resolve_symbols(address, &mut |symbol| frames.push(SymbolFrame::new(address, &symbol)));
        }
        if frames.is_empty() {
            frames.push(SymbolFrame::new(address, &backtrace::Symbol::default()));
        }
        let frames: Arc<[SymbolFrame]> = frames.into();
        self.lock_known().insert(address, frames.clone());
        frames
    }
}

impl SymbolFrame {
    fn new(address: u64, symbol: &backtrace::Symbol) -> SymbolFrame {
        let backtrace::Symbol { name, file, line } = symbol;
        let text = match (name.is_empty(), file.is_empty()) {
            (true, _) => format!("{address:#x}"),
            (false, true) => name.clone(),
            (false, false) => format!("{file}({line}): {name}"),
        };
        // The names of array types contain semicolons.
        SymbolFrame { text: text.replace(';', ","), is_library: is_library(name) || is_library_file(file) }
    }
}

/// The packages that lie between the program's own code and the recording of its span; and those of the standard library.
const CRATES: [&str; 6] =
    ["tracing-kineto", "kineto-base", "tracing", "tracing-core", "tracing-subscriber", "backtrace"];
const STANDARD: [&str; 3] = ["core", "std", "alloc"];

/// Returns whether a function belongs to one of these packages.
fn is_library(name: &str) -> bool {
    let path = name.trim_start_matches(['<', '&', '*', ' ']);
    let is_theirs = |(package, _): (&str, &str)| {
        STANDARD.contains(&package) || CRATES.iter().any(|theirs| theirs.replace('-', "_") == package)
    };
    path.split_once("::").is_some_and(is_theirs)
}

/// Returns whether a file belongs to this crate or to `tracing`. With line tables only, inlining callers are known by their
/// last name component alone.
fn is_library_file(file: &str) -> bool {
    const OURS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src/");
    // cargo's folder name: `tracing-core-0.1.36`.
    let is_crate = |folder: &str| {
        let version = |name: &&str| folder.strip_prefix(*name)?.strip_prefix('-')?.chars().next();
        CRATES.iter().filter_map(version).any(|first| first.is_ascii_digit())
    };
    [OURS, backtrace::SOURCES].iter().any(|folder| file.starts_with(folder))
        || STANDARD.iter().any(|package| file.contains(&format!("/library/{package}/src/")))
        || file.rsplit_once("/src/").is_some_and(|(root, _)| root.split('/').any(is_crate))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Name, file and line.
    type At<'a> = (&'a str, &'a str, u32);

    fn symbols(frames: usize, all: &[(u64, &[At<'_>])]) -> StackSymbols {
        let symbols = StackSymbols::new(frames);
        for (address, at) in all {
            let frame = |(name, file, line): &At<'_>| {
                let symbol = backtrace::Symbol { name: (*name).to_owned(), file: (*file).to_owned(), line: *line };
                SymbolFrame::new(*address, &symbol)
            };
            symbols.known.lock().unwrap().insert(*address, at.iter().map(frame).collect());
        }
        symbols
    }

    fn shown(symbols: &StackSymbols, addresses: &[u64]) -> String {
        let mut out = "what was there".to_owned();
        symbols.write_stack(addresses, &mut out);
        out
    }

    #[test]
    fn stack_begins_with_the_programs_function() {
        let symbols = symbols(
            2,
            &[
                (
                    1,
                    &[("<tracing_subscriber::layer::layered::Layered<L,S> as tracing_core::Subscriber>::enter", "", 0)],
                ),
                (2, &[("tracing::span::Span::enter", "span.rs", 7), ("app::inner", "src/app.rs", 12)]),
                (3, &[("std::thread::spawn", "thread.rs", 3)]),
                (4, &[("<[u8; 4] as app::Work>::work", "", 0)]),
                (5, &[("", "", 0)]),
            ],
        );
        assert_eq!(shown(&symbols, &[1, 2, 3, 4]), "src/app.rs(12): app::inner;thread.rs(3): std::thread::spawn");
        assert_eq!(shown(&symbols, &[1, 3, 4, 5]), "<[u8, 4] as app::Work>::work;0x5");
        assert_eq!(shown(&symbols, &[1, 3]), "");
    }

    #[test]
    fn functions_without_paths_are_found_by_file() {
        let own = concat!(env!("CARGO_MANIFEST_DIR"), "/src/layer/mod.rs");
        let symbols = symbols(
            2,
            &[
                (1, &[("trace", "/home/a/.cargo/registry/src/index/backtrace-0.3.77/src/backtrace/mod.rs", 66)]),
                (
                    2,
                    &[("on_enter<app::Own>", own, 185), ("enter", "/cargo/tracing-core-0.1.36/src/dispatcher.rs", 622)],
                ),
                (3, &[("call_once", "/rustc/0f1/library/core/src/ops/function.rs", 250)]),
                (4, &[("inner", "/home/a/tracing-app/src/app.rs", 12)]),
                (5, &[("outer", "/home/a/backtrace-9/app.rs", 13)]),
            ],
        );
        assert_eq!(shown(&symbols, &[1, 2, 3, 4]), "/home/a/tracing-app/src/app.rs(12): inner");
        assert_eq!(shown(&symbols, &[1, 2, 5]), "/home/a/backtrace-9/app.rs(13): outer");
    }
}
