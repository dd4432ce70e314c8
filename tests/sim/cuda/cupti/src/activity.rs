//! The activity kinds and API calls that a client has enabled.

use crate::code::{Code, Outcome, since};
use crate::layout::{self, kind};
use crate::link;
use crate::shared::tracer::{DRIVER_API, RUNTIME_API};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{PoisonError, RwLock};
use std::time::Duration;

/// What a client records.
#[derive(Debug, Default)]
pub(crate) struct Activity {
    /// The enabled kinds, as bits.
    enabled: AtomicU64,
    /// Whether event records get the device's time.
    event_times: AtomicBool,
    /// Calls enabled or disabled regardless of their domain, by domain and callback id.
    calls: RwLock<HashMap<(u32, u32), bool>>,
}

fn bit(kind: u32) -> Outcome<u64> {
    let known = kind < u64::BITS && layout::length(kind, link::options().cupti).is_some();
    if known { Ok(1 << kind) } else { Err(Code::INVALID_KIND) }
}

impl Activity {
    pub(crate) fn enable(&self, kind: u32) -> Outcome {
        let options = link::options();
        if options.privileges {
            return Err(Code::INSUFFICIENT_PRIVILEGES);
        }
        Code::unless(options.enable_error.code_for(kind))?;
        // Before CUDA 12.0 there is one of these or the other.
        let rivals = [kind::MARKER, kind::MARKER_DATA];
        let has_rival = rivals.contains(&kind) && rivals.iter().any(|rival| *rival != kind && self.is_enabled(*rival));
        if has_rival && !options.cupti.is_since("12.0") {
            return Err(Code::NOT_COMPATIBLE);
        }
        self.enabled.fetch_or(bit(kind)?, Ordering::Relaxed);
        sim_core::clock::sleep(Duration::from_millis(options.slow_enable));
        Ok(())
    }

    pub(crate) fn disable(&self, kind: u32) -> Outcome {
        self.enabled.fetch_and(!bit(kind)?, Ordering::Relaxed);
        Ok(())
    }

    pub(crate) fn is_enabled(&self, kind: u32) -> bool {
        self.enabled.load(Ordering::Relaxed) & (1 << kind) != 0
    }

    pub(crate) fn is_any_enabled(&self) -> bool {
        self.enabled.load(Ordering::Relaxed) != 0
    }

    /// Returns the kind under which kernels are recorded, if enabled.
    pub(crate) fn kernels(&self) -> Option<u32> {
        [kind::CONCURRENT_KERNEL, kind::KERNEL].into_iter().find(|kind| self.is_enabled(*kind))
    }

    /// Returns the kind under which a call is recorded, if enabled.
    pub(crate) fn call(&self, domain: u32, cbid: u32) -> Option<u32> {
        let kind = match domain {
            DRIVER_API => kind::DRIVER,
            RUNTIME_API => kind::RUNTIME,
            _ => return None,
        };
        let calls = self.calls.read().unwrap_or_else(PoisonError::into_inner);
        let recorded = calls.get(&(domain, cbid)).copied().unwrap_or_else(|| self.is_enabled(kind));
        recorded.then_some(kind)
    }

    /// Enables or disables a call regardless of its domain.
    pub(crate) fn set_call(&self, domain: u32, cbid: u32, enable: bool) {
        self.calls.write().unwrap_or_else(PoisonError::into_inner).insert((domain, cbid), enable);
    }

    pub(crate) fn set_event_times(&self, enable: bool) {
        self.event_times.store(enable, Ordering::Relaxed);
    }

    pub(crate) fn event_times(&self) -> bool {
        self.event_times.load(Ordering::Relaxed) && since("13.0").is_ok()
    }

    /// Resets to the initial state.
    pub(crate) fn reset(&self) {
        self.enabled.store(0, Ordering::Relaxed);
        self.set_event_times(false);
        self.calls.write().unwrap_or_else(PoisonError::into_inner).clear();
    }
}
