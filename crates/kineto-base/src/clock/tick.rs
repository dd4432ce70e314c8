//! Reads the tick counter: TSC, cntvct, or the monotonic clock if neither is reliable.
#![allow(unsafe_code, reason = "the counter is read by an instruction that has no safe form")]

use crate::time::Ticks;
use crate::wait::{steady, virtual_nanos};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Whether the counter ticks at a constant rate, also in sleep states and on all cores; false until [`source_name`] has determined
/// it.
static INVARIANT: AtomicBool = AtomicBool::new(false);

/// Reads the counter now.
#[inline(always)]
pub fn now() -> Ticks {
    // Relaxed: a thread that misses the change checks again.
    if INVARIANT.load(Ordering::Relaxed) || is_counter() { read_counter() } else { read_monotonic() }
}

/// Returns whether [`read_counter`] may replace [`now`], so that the span path need not check each time.
#[cold]
pub fn is_counter() -> bool {
    source_name();
    INVARIANT.load(Ordering::Relaxed)
}

/// Returns the name of the clock that [`now`] reads. Determining it takes long in virtual machines, so it is done on first
/// use.
pub fn source_name() -> &'static str {
    static SOURCE: LazyLock<&'static str> = LazyLock::new(|| {
        let invariant = is_invariant() && !is_rejected();
        INVARIANT.store(invariant, Ordering::Relaxed);
        match (invariant, cfg!(target_arch = "x86_64")) {
            (true, true) => "tsc",
            (true, false) => "cntvct",
            (false, _) => "monotonic",
        }
    });
    *SOURCE
}

/// Returns nanoseconds since the first reading, plus one.
#[cold]
pub(super) fn read_monotonic() -> Ticks {
    static ORIGIN: LazyLock<Instant> = LazyLock::new(steady);
    ticks_of(steady().saturating_duration_since(*ORIGIN))
}

/// Returns nanoseconds plus one: 0 means "no time" in records.
fn ticks_of(elapsed: Duration) -> Ticks {
    Ticks(elapsed.as_secs() * 1_000_000_000 + u64::from(elapsed.subsec_nanos()) + 1)
}

/// Reads the processor's counter, in one instruction. Valid only if [`is_counter`] returns true.
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[inline(always)]
pub fn read_counter() -> Ticks {
    if let Some(ticks) = virtual_nanos() {
        return Ticks(ticks);
    }
    // SAFETY: rdtsc has no precondition; where the OS forbids it (PR_SET_TSC), programs that use it are not started.
    Ticks(unsafe { core::arch::x86_64::_rdtsc() })
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
fn is_invariant() -> bool {
    const ADVANCED_POWER_MANAGEMENT: u32 = 0x8000_0007;
    const INVARIANT_TSC: u32 = 1 << 8;
    #[allow(unused_unsafe, reason = "cpuid is a safe function from Rust 1.94 on")]
    // SAFETY: every x86_64 processor has cpuid.
    let highest = unsafe { core::arch::x86_64::__cpuid(0x8000_0000) }.eax;
    #[allow(unused_unsafe, reason = "as above")]
    // SAFETY: every x86_64 processor has cpuid, and the leaf exists.
    let leaf = || unsafe { core::arch::x86_64::__cpuid(ADVANCED_POWER_MANAGEMENT) };
    highest >= ADVANCED_POWER_MANAGEMENT && leaf().edx & INVARIANT_TSC != 0
}

/// Returns whether the kernel has found the counter to be unstable, as on some machines with several sockets.
fn is_rejected() -> bool {
    const AVAILABLE: &str = "/sys/devices/system/clocksource/clocksource0/available_clocksource";
    let is_asked = cfg!(all(target_os = "linux", target_arch = "x86_64", not(miri)));
    is_asked && std::fs::read_to_string(AVAILABLE).is_ok_and(|sources| lacks_counter(&sources))
}

/// Returns whether the kernel's list of clocks lacks the counter: the kernel removes an unstable one. Hyper-V's reference
/// page is based on the counter.
fn lacks_counter(sources: &str) -> bool {
    let mut sources = sources.split_whitespace().peekable();
    sources.peek().is_some() && !sources.any(|source| matches!(source, "tsc" | "hyperv_clocksource_tsc_page"))
}

/// Reads the processor's counter, in one instruction. Valid only if [`is_counter`] returns true.
#[cfg(all(target_arch = "aarch64", not(miri)))]
#[inline(always)]
pub fn read_counter() -> Ticks {
    if let Some(ticks) = virtual_nanos() {
        return Ticks(ticks);
    }
    let ticks: u64;
    // SAFETY: the virtual counter is readable from user space on every OS that std supports there.
    unsafe { core::arch::asm!("mrs {}, cntvct_el0", out(reg) ticks, options(nomem, nostack, preserves_flags)) };
    Ticks(ticks)
}

/// Returns true: the generic timer's counter runs at a constant rate by architecture.
#[cfg(all(target_arch = "aarch64", not(miri)))]
fn is_invariant() -> bool {
    true
}

/// Reads the monotonic clock: there is no counter that can be used.
#[cfg(any(miri, not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
pub fn read_counter() -> Ticks {
    virtual_nanos().map_or_else(read_monotonic, Ticks)
}

#[cfg(any(miri, not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
fn is_invariant() -> bool {
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counter_never_decreases_and_is_never_zero() {
        let mut last = now();
        assert_ne!(last, Ticks(0));
        for _ in 0..1000 {
            let next = now();
            assert!(next >= last);
            last = next;
        }
    }

    #[test]
    fn first_monotonic_reading_is_a_time() {
        assert_eq!(ticks_of(Duration::ZERO), Ticks(1));
        assert_eq!(ticks_of(Duration::new(2, 3)), Ticks(2_000_000_004));
    }

    #[test]
    fn counter_rejected_by_the_kernel_is_not_used() {
        assert!(lacks_counter("hpet acpi_pm \n") && lacks_counter("kvm-clock acpi_pm\n"));
        assert!(!lacks_counter("tsc hpet acpi_pm \n") && !lacks_counter("kvm-clock tsc acpi_pm\n"));
        assert!(!lacks_counter("hyperv_clocksource_tsc_page acpi_pm\n") && !lacks_counter("\n"));
    }

    #[test]
    #[cfg(all(target_os = "linux", target_arch = "x86_64", not(miri)))]
    fn counter_is_invariant_where_the_kernel_says_so() {
        let processors = std::fs::read_to_string("/proc/cpuinfo").unwrap();
        let flags = processors.lines().find_map(|line| line.strip_prefix("flags")).unwrap();
        assert_eq!(is_invariant(), flags.split_whitespace().any(|flag| flag == "nonstop_tsc"));
    }

    #[test]
    fn source_and_counter_agree() {
        assert_eq!(is_counter(), source_name() != "monotonic");
    }

    #[test]
    fn counter_advances() {
        let before = now();
        test_base::poll_until(|| now() > before);
    }
}
