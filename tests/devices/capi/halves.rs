//! C and Rust in one program: the package `tracing-kineto-capi` provides the C functions.

use std::ffi::{CStr, c_char, c_int};
use support::gpu::in_child;
use support::{File, name_of};
use tracing::info_span;
use tracing_kineto::KinetoLayer;
use tracing_kineto_capi as _;
use tracing_subscriber::prelude::*;

unsafe extern "C" {
    safe fn tracing_kineto_init() -> c_int;
    safe fn tracing_kineto_shutdown() -> c_int;
    safe fn tracing_kineto_start() -> c_int;
    safe fn tracing_kineto_pop_range() -> c_int;
    safe fn tracing_kineto_last_error() -> *const c_char;
    fn tracing_kineto_push_range(name: *const c_char, kind: c_int) -> c_int;
    fn tracing_kineto_arg_int(key: *const c_char, value: i64) -> c_int;
}

const ALREADY_INITIALIZED: c_int = 4;
const NO_LAYER: c_int = 5;
const NOT_INITIALIZED: c_int = 1;
const SHUT_DOWN: c_int = 3;
const ALREADY_RECORDING: c_int = 10;
const OP: c_int = 1;

fn push(name: &CStr) -> c_int {
    // SAFETY: `name` is a C string.
    unsafe { tracing_kineto_push_range(name.as_ptr(), OP) }
}

fn last_error() -> String {
    // SAFETY: the function returns a C string, which stays valid until this thread's next call.
    unsafe { CStr::from_ptr(tracing_kineto_last_error()) }.to_str().unwrap().to_owned()
}

#[test]
fn ranges_of_c_nest_with_spans_of_rust() {
    in_child(name_of(child_with_a_layer), &[]);
}

#[test]
#[ignore = "run by another test"]
fn child_with_a_layer() {
    let (layer, guard) = KinetoLayer::builder().no_output().build().unwrap();
    tracing_subscriber::registry().with(layer).init();
    assert_eq!(tracing_kineto_init(), ALREADY_INITIALIZED);
    assert!(last_error().contains("its own KinetoLayer"), "{}", last_error());
    assert_eq!(tracing_kineto_start(), ALREADY_RECORDING);
    info_span!("rust").in_scope(|| {
        assert_eq!(push(c"c"), 0);
        // SAFETY: the key is a C string.
        assert_eq!(unsafe { tracing_kineto_arg_int(c"n".as_ptr(), 3) }, 0);
        info_span!("rust again", n = 4).in_scope(|| ());
        assert_eq!(tracing_kineto_pop_range(), 0);
        assert_eq!(push(c"open"), 0);
        assert_eq!((tracing_kineto_shutdown(), push(c"too late")), (0, SHUT_DOWN));
        assert_eq!((tracing_kineto_pop_range(), tracing_kineto_pop_range()), (0, SHUT_DOWN));
    });
    info_span!("afterwards").in_scope(|| ());
    let file = File::of(guard.finish().unwrap());
    assert_eq!(file.parents(), "rust< c<rust rust again<c open<rust afterwards<");
    assert_eq!(file.slice("c").args["n"], 3);
}

#[test]
fn init_fails_when_the_subscriber_has_no_layer() {
    in_child(name_of(child_without_a_layer), &[("KINETO_ENABLED", "1")]);
}

#[test]
#[ignore = "run by another test"]
fn child_without_a_layer() {
    tracing_subscriber::registry().init();
    assert_eq!(tracing_kineto_init(), NO_LAYER);
    assert!(last_error().contains("without a KinetoLayer"), "{}", last_error());
    assert_eq!(push(c"a"), NOT_INITIALIZED);
}
