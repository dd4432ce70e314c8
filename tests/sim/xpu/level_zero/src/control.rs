//! The machine, and its controls for tests.

use crate::shared::counters::Counters;
use crate::shared::options::Options;
use crate::shared::tracer::{Event, Xpu};
use crate::{engine, sysman};

sim_core::machine!(Xpu, finish, engine::forget, sysman::count);

fn finish() {
    engine::finish();
    // A hung flush ends.
    MACHINE.tell(Event::Configured);
}
