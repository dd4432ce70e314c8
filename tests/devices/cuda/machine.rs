//! The simulated GPU is available to every test: its libraries are built, and load under the real names.
#![allow(unsafe_code, reason = "the test asks the loader for loaded libraries")]

use support::cuda::{self, Stream};
use support::gpu::machine;
use support::virtual_time;

/// Returns whether a library of that name is loaded.
fn is_loaded(name: &std::ffi::CStr) -> bool {
    // SAFETY: `name` is a C string, and RTLD_NOLOAD loads no library.
    let library = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
    !library.is_null()
}

#[virtual_time]
fn program_runs_on_the_simulated_gpu() {
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
