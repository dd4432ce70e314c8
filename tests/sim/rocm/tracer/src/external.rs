//! Ids of the client's own: a stack for each thread.

use crate::shared::counters::count;
use crate::shared::link;
use crate::status::{Status, answer};
use std::cell::RefCell;

thread_local! {
    static STACK: RefCell<Vec<u64>> = const { RefCell::new(Vec::new()) };
}

/// How many ids the calling thread has pushed and not popped.
pub(crate) fn depth() -> u64 {
    STACK.with(|stack| stack.borrow().len() as u64)
}

/// Puts an id on the thread's stack.
#[unsafe(no_mangle)]
pub extern "C" fn roctracer_activity_push_external_correlation_id(id: u64) -> i32 {
    match link::options().push_error {
        0 => {}
        code => return answer(Err(Status::of(code))),
    }
    count(&link::counters().pushes);
    STACK.with(|stack| stack.borrow_mut().push(id));
    0
}

/// Takes the id on top; null where nobody wants to know it.
#[unsafe(no_mangle)]
pub extern "C" fn roctracer_activity_pop_external_correlation_id(id: *mut u64) -> i32 {
    let Some(popped) = STACK.with(|stack| stack.borrow_mut().pop()) else {
        return answer(Err(Status::MISMATCHED_EXTERNAL_CORRELATION_ID));
    };
    count(&link::counters().pops);
    if !id.is_null() {
        // SAFETY: the caller promises a place, or null.
        unsafe { id.write(popped) };
    }
    0
}
