//! The simulated GPU is there for every test: its libraries are built, and loaded they have the real ones' names.
#![allow(unsafe_code, reason = "the loader is asked which libraries there are")]

use support::cuda::{self, Stream};
use support::gpu::machine;

/// Whether a library of that name is loaded.
fn is_loaded(name: &std::ffi::CStr) -> bool {
    // SAFETY: a C string; a library that is not loaded is not loaded by this.
    let library = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
    !library.is_null()
}

#[test]
fn a_program_runs_on_it() {
    let cuda = machine("devices=2");
    assert!(is_loaded(c"libcuda.so.1") && is_loaded(c"libcupti.so.13"));
    let (stream, memory) = (cuda.stream(), cuda.allocate(1024));
    let mut back = [0; 1024];
    cuda.memcpy_htod(memory, &[3; 1024], stream);
    cuda.launch(cuda.only_kernel("add"), 16, stream);
    cuda.memcpy_dtoh(&mut back, memory, stream);
    cuda.synchronize_stream(stream);
    cuda.launch(cuda.only_kernel("mul"), 16, Stream::NULL);
    cuda.synchronize();
    assert_eq!(back, [3; 1024]);
    let counts = ["launches", "kernels", "memcpys", "memsets", "synchronizes"].map(cuda::count);
    assert_eq!(counts, [2, 2, 2, 0, 2]);
}
