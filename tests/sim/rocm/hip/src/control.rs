//! The machine, and its controls for tests.

use crate::shared::clock::now;
use crate::shared::counters::Counters;
use crate::shared::options::Options;
use crate::shared::tracer::Rocm;
use crate::{engine, state};

sim_core::machine!(Rocm, finish, || (), |_| None);

fn finish() {
    let finished = state::lock().objects.engine.finish(now());
    MACHINE.tell_finished(finished, |at| engine::stamp(options(), at));
}
