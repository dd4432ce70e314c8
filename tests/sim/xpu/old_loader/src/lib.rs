//! A loader of Level Zero from before `zesInit`, as Debian 12 has one: it finds devices, and PTI does not work with it.
#![cfg(target_os = "linux")]
#![allow(non_snake_case, reason = "the exported names are C's")]

#[path = "../../shared/mod.rs"]
mod shared;

#[path = "../../level_zero/src/device.rs"]
mod device;
#[path = "../../level_zero/src/properties.rs"]
mod properties;

/// What the devices' functions ask for; here there is nothing but the environment.
mod control {
    use crate::shared::counters::Counters;
    use crate::shared::options::Options;
    use sim_core::options::OptionsStore;

    static OPTIONS: OptionsStore<Options> = OptionsStore::new("sim-xpu", "SIM_XPU", Options::parse);
    static COUNTERS: Counters = Counters::new();

    pub(crate) fn options() -> &'static Options {
        OPTIONS.get()
    }

    pub(crate) fn counters() -> &'static Counters {
        &COUNTERS
    }
}
