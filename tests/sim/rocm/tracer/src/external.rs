//! External correlation ids: a stack for each thread.

use crate::shared::counters::count;
use crate::shared::link;
use crate::status::{Status, answer};
use sim_core::external::{pop, push};

/// roctracer has no kinds of ids.
const KIND: u32 = 0;

/// Puts an id on the thread's stack.
#[unsafe(no_mangle)]
pub extern "C" fn roctracer_activity_push_external_correlation_id(id: u64) -> i32 {
    match link::options().push_error {
        0 => {}
        code => return answer(Err(Status::of(code))),
    }
    count(&link::counters().pushes);
    push(KIND, id);
    0
}

/// Pops the top id; `last` may be null.
#[unsafe(no_mangle)]
pub extern "C" fn roctracer_activity_pop_external_correlation_id(id: *mut u64) -> i32 {
    let Some(popped) = pop(KIND) else {
        return answer(Err(Status::MISMATCHED_EXTERNAL_CORRELATION_ID));
    };
    count(&link::counters().pops);
    if !id.is_null() {
        // SAFETY: the caller promises null or a valid place.
        unsafe { id.write(popped) };
    }
    0
}
