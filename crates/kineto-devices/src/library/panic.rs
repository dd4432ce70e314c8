//! Turns panics of foreign code into reasons.

use crate::{Unavailable, Why};
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs code that may panic.
///
/// # Errors
/// The panic, as a reason.
pub fn catch_panic<R>(what: &str, call: impl FnOnce() -> R) -> Result<R, Unavailable> {
    catch_unwind(AssertUnwindSafe(call)).map_err(|panic| panic_reason(what, panic))
}

#[cold]
fn panic_reason(what: &str, panic: Box<dyn Any + Send>) -> Unavailable {
    // The payload is the program's too, and may panic when it is dropped.
    let message = format!("it panicked in `{what}`: {}", panic_text(Box::leak(panic)));
    Unavailable::new(Why::Failed, message, "fix that code")
}

fn panic_text(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no text")
}
