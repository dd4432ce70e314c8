//! The machine, and its controls for tests.

use crate::shared::clock::now;
use crate::shared::counters::Counters;
use crate::shared::options::Options;
use crate::shared::tracer::Cuda;
use crate::{engine, state};

sim_core::machine!(Cuda, finish, || (), |_| None);

fn finish() {
    let finished = state::lock().objects.engine.finish(now());
    MACHINE.tell_finished(finished, |at| engine::stamp(options(), at));
}
