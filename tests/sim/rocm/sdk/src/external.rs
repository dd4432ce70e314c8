//! External correlation ids: a stack for each context and thread.

use crate::context;
use crate::shared::clock::thread;
use crate::shared::counters::count;
use crate::shared::link;
use crate::status::{Status, answer};
use std::collections::HashMap;
use std::sync::{LazyLock, Mutex, PoisonError};

/// By context and thread.
type Stacks = HashMap<(u64, u64), Vec<u64>>;

static STACKS: LazyLock<Mutex<Stacks>> = LazyLock::new(Mutex::default);

/// The id on top, 0 without.
pub(crate) fn top(context: u64, thread: u64) -> u64 {
    let stacks = STACKS.lock().unwrap_or_else(PoisonError::into_inner);
    stacks.get(&(context, thread)).and_then(|stack| stack.last().copied()).unwrap_or(0)
}

/// How many ids the calling thread has pushed and not popped.
pub(crate) fn depth() -> u64 {
    let stacks = STACKS.lock().unwrap_or_else(PoisonError::into_inner);
    stacks.iter().filter(|((_, owner), _)| *owner == thread()).map(|(_, stack)| stack.len() as u64).sum()
}

fn push(context: u64, thread: u64, id: u64) -> Result<(), Status> {
    context::exists(context)?;
    match link::options().push_error {
        0 => {}
        code => return Err(Status::of(code)),
    }
    count(&link::counters().pushes);
    STACKS.lock().unwrap_or_else(PoisonError::into_inner).entry((context, thread)).or_default().push(id);
    Ok(())
}

/// Puts an id on the stack of a thread.
#[unsafe(no_mangle)]
pub extern "C" fn rocprofiler_push_external_correlation_id(context: u64, thread: u64, id: u64) -> i32 {
    answer(push(context, thread, id))
}

/// Pops the top id; `last` may be null.
#[unsafe(no_mangle)]
pub extern "C" fn rocprofiler_pop_external_correlation_id(context: u64, thread: u64, id: *mut u64) -> i32 {
    let mut stacks = STACKS.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(popped) = stacks.get_mut(&(context, thread)).and_then(Vec::pop) else {
        return Status::INVALID_ARGUMENT.code();
    };
    count(&link::counters().pops);
    if !id.is_null() {
        // SAFETY: the caller promises null or a valid place.
        unsafe { id.write(popped) };
    }
    0
}
