//! Outputs that accept a trace slowly, or not at all.

use super::ends::exit;
use super::play::{File, play_by_clock, play_on_a_terminal, record_as, report, work};
use super::{Scenario, Test};
use std::io::{self, Write};
use std::path::Path;
use std::time::Duration;
use support::wait::{since, sleep, steady};
use tracing_kineto::{KinetoGuard, KinetoLayer, Schedule};

pub(crate) const SCENARIOS: &[Scenario] = &[
    ("slow_drop", |folder| drop(recorded(folder, "slow.json"))),
    ("slow_drop_gz", |folder| drop(recorded(folder, "slow.json.gz"))),
    ("slow_cycle", |folder| {
        let builder = slow(folder, "slow.json").schedule(Schedule::new(0, 0, 1).unwrap().repeat(1));
        let guard = record_as(builder);
        (0..spans("slow.json")).for_each(|_| work());
        let cycle = guard.profiler().step().cycle.unwrap();
        assert!(cycle.error.is_none(), "{cycle}");
    }),
    ("slow_exit", |folder| {
        let _guard = recorded(folder, "slow.json");
        exit(0);
    }),
    ("slow_exit_gz", |folder| {
        let _guard = recorded(folder, "slow.json.gz");
        exit(0);
    }),
    ("stuck_drop", |folder| {
        let stuck = |_: &str| -> io::Result<Box<dyn Write + Send>> {
            sleep(Duration::from_secs(60));
            Err(io::ErrorKind::TimedOut.into())
        };
        let builder = KinetoLayer::builder().sink("stuck", stuck).output("stuck://x.json");
        let guard = record_as(builder.flush_timeout(Duration::from_millis(300)));
        work();
        let begun = steady();
        drop(guard);
        report(folder, if since(begun) < Duration::from_secs(30) { "gave up" } else { "waited" });
    }),
];

pub(crate) const TESTS: &[Test] = &[
    ("guard_waits_for_a_slow_write_that_makes_progress", || {
        let all = [("slow_drop", "slow.json"), ("slow_drop_gz", "slow.json.gz"), ("slow_cycle", "slow.json")];
        for (scenario, name) in all.into_iter().filter(can_be_written) {
            let played = play_by_clock(scenario).succeeded();
            assert_eq!(slices(&played.path(name)), (spans(name), false), "{scenario}: {}", played.stderr);
            assert!(played.stderr.contains(&format!("writing slow://{}", played.path(name).display())), "{scenario}");
        }
    }),
    ("terminal_shows_a_bar_and_then_the_files_path", || {
        let (played, shown) = play_on_a_terminal("slow_drop", &[]);
        assert_eq!(slices(&played.succeeded().path("slow.json")), (spans("slow.json"), false));
        let bars: Vec<_> = shown.split("\r\x1b[K").filter(|text| text.starts_with("writing slow://")).collect();
        assert!(bars.len() > 1 && bars.iter().all(|bar| bar.contains('[') && bar.ends_with(" %")), "{shown:?}");
        // The bar is erased before the message.
        let (_, last) = shown.rsplit_once("\r\x1b[K").unwrap();
        assert!(last.contains("\x1b[32m INFO\x1b[0m") && last.ends_with(" slices\r\n"), "{shown:?}");
        let (_, plain) = play_on_a_terminal("drop", &[("NO_COLOR", "1")]);
        assert!(plain.contains(" INFO tracing-kineto: wrote /") && !plain.contains('\x1b'), "{plain:?}");
    }),
    ("exit_closes_a_slow_file_at_the_time_limit", || {
        let all = [("slow_exit", "slow.json"), ("slow_exit_gz", "slow.json.gz")];
        for (scenario, name) in all.into_iter().filter(can_be_written) {
            let played = play_by_clock(scenario).succeeded();
            let (slices, is_incomplete) = slices(&played.path(name));
            assert!(is_incomplete && slices > 0 && slices < spans(name), "{scenario}: {slices}: {}", played.stderr);
            assert!(played.stderr.contains("closed at the time limit with"), "{scenario}: {}", played.stderr);
        }
    }),
    ("guard_gives_up_when_a_write_makes_no_progress", || {
        let played = play_by_clock("stuck_drop").succeeded();
        assert_eq!(played.report(), "gave up\n", "{}", played.stderr);
        assert!(played.stderr.contains("stuck://x.json was not written: no progress for 1s"), "{}", played.stderr);
    }),
];

/// Returns whether this build can write the scenario's file.
fn can_be_written((_, name): &(&str, &str)) -> bool {
    cfg!(feature = "gzip") || !name.ends_with(".gz")
}

/// Returns the number of spans for which the sink needs more than twice the time limit; one write takes much less.
///
/// Regular times compress well: 40,000 spans may take 17 writes.
fn spans(name: &str) -> usize {
    if name.ends_with(".gz") { 120_000 } else { 40_000 }
}

const LIMIT: Duration = Duration::from_secs(2);

fn recorded(folder: &Path, name: &str) -> KinetoGuard {
    let guard = record_as(slow(folder, name));
    (0..spans(name)).for_each(|_| work());
    guard
}

fn slow(folder: &Path, name: &str) -> tracing_kineto::KinetoLayerBuilder {
    let open = |url: &str| -> io::Result<Box<dyn Write + Send>> {
        let path = url.strip_prefix("slow://").unwrap_or(url);
        Ok(Box::new(SlowWriter(std::fs::File::create(path)?)))
    };
    let output = format!("slow://{}", folder.join(name).display());
    KinetoLayer::builder().sink("slow", open).output(output).flush_timeout(LIMIT)
}

/// A writer that sleeps after each write.
struct SlowWriter(std::fs::File);

impl Write for SlowWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        sleep(Duration::from_millis(120));
        self.0.write(bytes)
    }
    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// Returns the number of slices in a whole file, and whether it marks missing ones.
fn slices(path: &Path) -> (usize, bool) {
    let file = File::read(path);
    (file.slices("work"), file.json.get("tracing_kineto_incomplete").is_some())
}
