//! The GPU's part: each batch is copied to the device, and each layer launches kernels there, on two streams.
//!
//! The kernels stand in for a model's: they have its names and its order, and access its data. The CUDA driver launches them,
//! as in cudarc, candle and cubecl. Without an NVIDIA GPU, the simulator of this project's tests replaces it, and the output
//! reports it.
#![expect(unsafe_code, reason = "the driver's functions are C functions")]

use std::error::Error;
use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::fmt::Write as _;
use std::path::PathBuf;
use std::ptr;

use libloading::Library;
use tracing::info_span;

const KERNELS: [&str; 5] = ["linear_forward", "relu", "linear_backward_input", "linear_backward_weight", "sgd_update"];
const ELEMENTS: u32 = 1 << 18;
const THREADS: u32 = 256;

type Handle = *mut c_void;

/// A device with the resources of a step.
pub(crate) struct Gpu {
    /// The driver's name for it.
    pub(crate) name: String,
    /// Whether it is the simulator.
    pub(crate) simulated: bool,
    driver: Driver,
    copies: Handle,
    compute: Handle,
    copied: Handle,
    memory: u64,
    kernels: Vec<Handle>,
}

/// The driver functions in use.
struct Driver {
    launch: unsafe extern "C" fn(
        Handle,
        c_uint,
        c_uint,
        c_uint,
        c_uint,
        c_uint,
        c_uint,
        c_uint,
        Handle,
        *mut *mut c_void,
        *mut *mut c_void,
    ) -> c_int,
    copy: unsafe extern "C" fn(u64, *const c_void, usize, Handle) -> c_int,
    record: unsafe extern "C" fn(Handle, Handle) -> c_int,
    wait: unsafe extern "C" fn(Handle, Handle, c_uint) -> c_int,
    synchronize: unsafe extern "C" fn(Handle) -> c_int,
}

impl Gpu {
    /// Opens the first GPU, or else the simulated one; `None` if there is neither.
    pub(crate) fn open() -> Option<Gpu> {
        let real = open_library("libcuda.so.1".into()).and_then(|library| Gpu::on(library, false).ok());
        real.or_else(|| {
            // CUPTI first: the collector finds a library that is loaded already.
            open_library(simulator("sim_cupti")?)?;
            Gpu::on(open_library(simulator("sim_cuda")?)?, true).ok()
        })
    }

    fn on(library: &'static Library, simulated: bool) -> Result<Gpu, Box<dyn Error>> {
        let name = first_device(library)?;
        let (mut copies, mut compute, mut copied) = (ptr::null_mut(), ptr::null_mut(), ptr::null_mut());
        let (mut memory, mut module) = (0_u64, ptr::null_mut());
        const NON_BLOCKING: c_uint = 1;
        let bytes = ELEMENTS as usize * size_of::<f32>();
        // SAFETY: the functions have these types, and the result variables outlive the calls.
        unsafe {
            type New = unsafe extern "C" fn(*mut Handle, c_uint) -> c_int;
            let stream = library.get::<New>(b"cuStreamCreate\0")?;
            done(stream(&raw mut copies, NON_BLOCKING))?;
            done(stream(&raw mut compute, NON_BLOCKING))?;
            done(library.get::<New>(b"cuEventCreate\0")?(&raw mut copied, 0))?;
            type Allocate = unsafe extern "C" fn(*mut u64, usize) -> c_int;
            done(library.get::<Allocate>(b"cuMemAlloc_v2\0")?(&raw mut memory, bytes))?;
            type Load = unsafe extern "C" fn(*mut Handle, *const c_char) -> c_int;
            done(library.get::<Load>(b"cuModuleLoadData\0")?(&raw mut module, ptx()?.as_ptr()))?;
        }
        let kernel = |name: &&str| -> Result<Handle, Box<dyn Error>> {
            type Get = unsafe extern "C" fn(*mut Handle, Handle, *const c_char) -> c_int;
            let (mut kernel, name) = (ptr::null_mut(), CString::new(*name)?);
            // SAFETY: the function has this type, and `kernel` outlives the call.
            unsafe { done(library.get::<Get>(b"cuModuleGetFunction\0")?(&raw mut kernel, module, name.as_ptr()))? };
            Ok(kernel)
        };
        let kernels = KERNELS.iter().map(kernel).collect::<Result<_, _>>()?;
        // SAFETY: the functions have these types.
        let driver = unsafe {
            Driver {
                launch: *library.get(b"cuLaunchKernel\0")?,
                copy: *library.get(b"cuMemcpyHtoDAsync_v2\0")?,
                record: *library.get(b"cuEventRecord\0")?,
                wait: *library.get(b"cuStreamWaitEvent\0")?,
                synchronize: *library.get(b"cuStreamSynchronize\0")?,
            }
        };
        Ok(Gpu { name, simulated, driver, copies, compute, copied, memory, kernels })
    }

    /// Copies a batch on the copy stream; later launches wait for it.
    pub(crate) fn upload(&self, batch: &[f32]) {
        let _span = info_span!("upload", floats = batch.len()).entered();
        let batch = batch.get(..ELEMENTS as usize).unwrap_or(batch);
        // SAFETY: the device memory holds at least as many floats; the call reads pageable memory before it returns.
        unsafe {
            (self.driver.copy)(self.memory, batch.as_ptr().cast(), size_of_val(batch), self.copies);
            (self.driver.record)(self.copied, self.copies);
            (self.driver.wait)(self.compute, self.copied, 0);
        }
    }

    /// Launches a kernel over all elements.
    pub(crate) fn launch(&self, kernel: &str) {
        let found = KERNELS.iter().zip(&self.kernels).find(|(name, _)| **name == kernel);
        let Some((_, function)) = found else { return };
        let (mut memory, mut elements) = (self.memory, ELEMENTS);
        let mut arguments = [(&raw mut memory).cast::<c_void>(), (&raw mut elements).cast()];
        let (arguments, none) = (arguments.as_mut_ptr(), ptr::null_mut());
        let blocks = ELEMENTS / THREADS;
        // SAFETY: the kernel takes a pointer and a number, which are read before the call returns.
        unsafe { (self.driver.launch)(*function, blocks, 1, 1, THREADS, 1, 1, 0, self.compute, arguments, none) };
    }

    /// Waits for all launched work.
    pub(crate) fn wait(&self) {
        let _span = info_span!("wait for the device").entered();
        // SAFETY: the stream lives as long as the program.
        unsafe { (self.driver.synchronize)(self.compute) };
    }
}

/// Makes the first device's primary context current on the thread, and returns the device's name.
fn first_device(library: &Library) -> Result<String, Box<dyn Error>> {
    let (mut device, mut context, mut name) = (0, ptr::null_mut(), [0_u8; 256]);
    // SAFETY: the functions have these types; the driver ends the name with a zero within its length.
    unsafe {
        type Init = unsafe extern "C" fn(c_uint) -> c_int;
        done(library.get::<Init>(b"cuInit\0")?(0))?;
        type Get = unsafe extern "C" fn(*mut c_int, c_int) -> c_int;
        done(library.get::<Get>(b"cuDeviceGet\0")?(&raw mut device, 0))?;
        type Name = unsafe extern "C" fn(*mut u8, c_int, c_int) -> c_int;
        done(library.get::<Name>(b"cuDeviceGetName\0")?(name.as_mut_ptr(), 256, device))?;
        type Retain = unsafe extern "C" fn(*mut Handle, c_int) -> c_int;
        done(library.get::<Retain>(b"cuDevicePrimaryCtxRetain\0")?(&raw mut context, device))?;
        type Set = unsafe extern "C" fn(Handle) -> c_int;
        done(library.get::<Set>(b"cuCtxSetCurrent\0")?(context))?;
    }
    Ok(CStr::from_bytes_until_nul(&name)?.to_string_lossy().into_owned())
}

fn done(code: c_int) -> Result<(), Box<dyn Error>> {
    if code == 0 { Ok(()) } else { Err(format!("the driver reports error {code}").into()) }
}

/// Opens a library for the rest of the program.
fn open_library(path: PathBuf) -> Option<&'static Library> {
    // SAFETY: the driver's initializers are sound.
    let library = unsafe { Library::new(path) }.ok()?;
    Some(Box::leak(Box::new(library)))
}

/// Returns the path of a simulator library that cargo built: next to the example, or one folder up.
fn simulator(name: &str) -> Option<PathBuf> {
    let program = std::env::current_exe().ok()?;
    let folders = program.ancestors().skip(1).map(|folder| folder.join("deps"));
    folders.map(|folder| folder.join(format!("lib{name}.so"))).find(|path| path.exists())
}

/// Returns kernels that scale each element towards zero, one for each name.
fn ptx() -> Result<CString, Box<dyn Error>> {
    let mut text = ".version 6.0\n.target sm_50\n.address_size 64\n".to_owned();
    for name in KERNELS {
        write!(
            text,
            ".visible .entry {name}(.param .u64 data, .param .u32 elements) {{
  .reg .pred %p; .reg .b32 %r<6>; .reg .f32 %f<3>; .reg .b64 %d<4>;
  ld.param.u64 %d0, [data]; ld.param.u32 %r0, [elements];
  mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ntid.x; mov.u32 %r3, %tid.x; mad.lo.u32 %r4, %r1, %r2, %r3;
  setp.ge.u32 %p, %r4, %r0; @%p bra DONE;
  cvta.to.global.u64 %d1, %d0; mul.wide.u32 %d2, %r4, 4; add.u64 %d3, %d1, %d2;
  ld.global.f32 %f0, [%d3]; mul.f32 %f1, %f0, 0f3F7FBE77; st.global.f32 [%d3], %f1;
DONE: ret;
}}
"
        )?;
    }
    Ok(CString::new(text)?)
}
