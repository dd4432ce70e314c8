//! Names and numbers of the process and of the host, the process's age, and whether it runs with elevated rights.
#![allow(unsafe_code, reason = "gethostname, kill, getauxval, user ids and the clock since boot have no safe form")]

use super::{fork, platform};
use std::hash::{BuildHasher, RandomState};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, Ordering};
#[cfg(target_os = "linux")]
use std::time::Duration;

/// Returns the program's name: the last component of the path with which it was started, as in libkineto.
pub fn program_name() -> String {
    let first = std::env::args_os().next().unwrap_or_default();
    let path = std::path::PathBuf::from(first);
    path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned()
}

/// Returns the host's name; empty if unknown.
#[cfg(unix)]
pub fn host_name() -> String {
    let mut name = [0u8; 256];
    // SAFETY: the buffer is valid for its length less 1, so that it always ends with a 0 byte.
    let failed = unsafe { libc::gethostname(name.as_mut_ptr().cast(), name.len() - 1) } != 0;
    let end = name.iter().position(|byte| *byte == 0).unwrap_or(0);
    if failed { String::new() } else { String::from_utf8_lossy(name.get(..end).unwrap_or_default()).into_owned() }
}

/// Returns the host's name; empty if unknown.
#[cfg(not(unix))]
pub fn host_name() -> String {
    String::new()
}

/// Returns a random number that identifies this process: a forked child has another one.
pub fn uuid() -> u128 {
    static RANDOM: LazyLock<RandomState> = LazyLock::new(RandomState::new);
    let half = |half: u8| u128::from(RANDOM.hash_one((platform::process_id(), fork::generation(), half)));
    half(0) << 64 | half(1)
}

/// Returns the number of this start of the machine; 0 if unknown.
pub fn boot_id() -> u128 {
    let id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    u128::from_str_radix(&id.trim().replace('-', ""), 16).unwrap_or(0)
}

/// Returns a number that identifies the namespace of process numbers; 0 if unknown.
pub fn id_namespace() -> u64 {
    let link = std::fs::read_link("/proc/self/ns/pid").unwrap_or_default();
    let name = link.to_string_lossy().into_owned();
    name.trim_matches(|char: char| !char.is_ascii_digit()).parse().unwrap_or(0)
}

/// Whether the program trusts its caller with its own rights.
static IS_CALLER_TRUSTED: AtomicBool = AtomicBool::new(false);

/// Sets whether the program trusts its caller.
pub fn trust_caller(is_trusted: bool) {
    IS_CALLER_TRUSTED.store(is_trusted, Ordering::Relaxed);
}

/// Returns whether the environment and the working folder are untrusted: the program has more rights than its caller
/// (set-user-ID, file capabilities), and does not trust it.
pub fn has_untrusted_caller() -> bool {
    !IS_CALLER_TRUSTED.load(Ordering::Relaxed) && has_more_rights()
}

fn has_more_rights() -> bool {
    #[cfg(target_os = "linux")]
    // SAFETY: getauxval takes a number, and returns 0 for missing entries.
    return unsafe { libc::getauxval(libc::AT_SECURE) != 0 };
    #[cfg(all(unix, not(target_os = "linux")))]
    {
        // SAFETY: takes nothing and cannot fail.
        let users = unsafe { (libc::getuid(), libc::getgid()) };
        // SAFETY: takes nothing and cannot fail.
        let effective = unsafe { (libc::geteuid(), libc::getegid()) };
        return users != effective;
    }
    #[cfg(not(unix))]
    false
}

/// Returns whether a process with that number exists; `true` where the system does not say.
pub fn is_alive(id: u32) -> bool {
    #[cfg(unix)]
    if let Ok(id) = i32::try_from(id) {
        // SAFETY: takes numbers, and signal 0 is not delivered.
        let failed = unsafe { libc::kill(id, 0) } != 0;
        return !failed || std::io::Error::last_os_error().raw_os_error() != Some(libc::ESRCH);
    }
    id != 0
}

/// Returns how long this process has been running, to a hundredth of a second; `None` without `/proc`.
#[cfg(target_os = "linux")]
pub fn age() -> Option<Duration> {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `now` is valid for writes.
    let failed = unsafe { libc::clock_gettime(libc::CLOCK_BOOTTIME, &raw mut now) } != 0;
    // SAFETY: sysconf takes a number.
    let hertz =
        u64::try_from(unsafe { libc::sysconf(libc::_SC_CLK_TCK) }).ok().filter(|hertz| !failed && *hertz > 0)?;
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    // The command's name may contain any character; after it, the start time is the 20th word.
    let begin: u64 = stat.rsplit_once(')')?.1.split_ascii_whitespace().nth(19)?.parse().ok()?;
    let begin = Duration::from_millis(begin.saturating_mul(1000) / hertz);
    let now = Duration::new(u64::try_from(now.tv_sec).ok()?, u32::try_from(now.tv_nsec).ok()?);
    Some(now.saturating_sub(begin))
}

#[cfg(test)]
mod tests {
    #[test]
    #[cfg(all(target_os = "linux", not(miri)))]
    fn process_age_is_the_time_since_its_start() {
        use std::os::unix::fs::MetadataExt;
        use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
        let (before, early, after) = (Instant::now(), super::age().unwrap(), Instant::now());
        std::thread::sleep(Duration::from_millis(50));
        // The thread may lose its processor between any two readings.
        let (least, late, most) = (after.elapsed(), super::age().unwrap(), before.elapsed());
        let (grown, error) = (late - early, Duration::from_millis(20));
        assert!(grown + error > least && grown < most + error, "{grown:?} in {least:?} to {most:?}");
        // A running process started after the machine, and after its program's file was written.
        let file = std::fs::metadata("/proc/self/exe").unwrap().ctime();
        let begin = SystemTime::now() - early;
        assert!(begin > UNIX_EPOCH + Duration::from_secs(file.cast_unsigned()));
    }

    #[test]
    fn program_has_a_name() {
        assert!(super::program_name().starts_with("kineto_base"), "{}", super::program_name());
    }
}
