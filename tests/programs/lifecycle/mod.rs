//! What a program leaves behind, however it ends.
//!
//! Each test plays a scenario in a process of its own (`--play <name> <folder>`), so that `main` really returns, panics, forks or is
//! killed, and then checks the folder.

#[cfg(target_os = "linux")]
mod allocations;
#[cfg(target_os = "linux")]
mod descriptors;
mod dumps;
mod ends;
mod environment;
mod faults;
mod forks;
mod full_disk;
#[cfg(target_os = "linux")]
mod hostile_folders;
#[cfg(all(target_os = "linux", target_env = "gnu"))]
mod injected;
#[cfg(target_os = "linux")]
mod live;
#[cfg(target_os = "linux")]
mod live_exit;
#[cfg(all(target_os = "linux", feature = "cuda"))]
mod live_gpu;
#[cfg(target_os = "linux")]
mod live_limits;
mod play;
#[cfg(all(target_os = "linux", feature = "plugins"))]
mod privileged;
#[cfg(target_os = "linux")]
mod sandbox;
mod schedules;
mod signals;
mod slow;
mod sys;
mod threads;
#[cfg(target_os = "linux")]
mod toy;

use support::harness::Test;

/// A scenario's name, and its body, which gets a folder.
type Scenario = (&'static str, fn(&std::path::Path));

const SCENARIOS: &[&[Scenario]] = &[
    #[cfg(target_os = "linux")]
    allocations::SCENARIOS,
    #[cfg(target_os = "linux")]
    descriptors::SCENARIOS,
    dumps::SCENARIOS,
    ends::SCENARIOS,
    environment::SCENARIOS,
    faults::SCENARIOS,
    forks::SCENARIOS,
    full_disk::SCENARIOS,
    #[cfg(target_os = "linux")]
    hostile_folders::SCENARIOS,
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    injected::SCENARIOS,
    #[cfg(target_os = "linux")]
    live::SCENARIOS,
    #[cfg(target_os = "linux")]
    live_exit::SCENARIOS,
    #[cfg(all(target_os = "linux", feature = "cuda"))]
    live_gpu::SCENARIOS,
    #[cfg(all(target_os = "linux", feature = "plugins"))]
    privileged::SCENARIOS,
    #[cfg(target_os = "linux")]
    live_limits::SCENARIOS,
    #[cfg(target_os = "linux")]
    sandbox::SCENARIOS,
    schedules::SCENARIOS,
    signals::SCENARIOS,
    slow::SCENARIOS,
    threads::SCENARIOS,
];

pub(super) const TESTS: &[&[Test]] = &[
    #[cfg(target_os = "linux")]
    allocations::TESTS,
    #[cfg(target_os = "linux")]
    descriptors::TESTS,
    dumps::TESTS,
    ends::TESTS,
    environment::TESTS,
    faults::TESTS,
    forks::TESTS,
    full_disk::TESTS,
    #[cfg(target_os = "linux")]
    hostile_folders::TESTS,
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    injected::TESTS,
    #[cfg(target_os = "linux")]
    live::TESTS,
    #[cfg(target_os = "linux")]
    live_exit::TESTS,
    #[cfg(all(target_os = "linux", feature = "cuda"))]
    live_gpu::TESTS,
    #[cfg(all(target_os = "linux", feature = "plugins"))]
    privileged::TESTS,
    #[cfg(target_os = "linux")]
    live_limits::TESTS,
    #[cfg(target_os = "linux")]
    sandbox::TESTS,
    schedules::TESTS,
    signals::TESTS,
    slow::TESTS,
    threads::TESTS,
];

/// Plays the scenario of that name in a folder.
pub(super) fn play(name: &str, folder: &std::path::Path) {
    [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGUSR2, libc::SIGXFSZ].into_iter().for_each(sys::restore);
    let scenario = SCENARIOS.iter().copied().flatten().find(|(known, _)| *known == name);
    scenario.expect("a scenario of that name").1(folder);
}
