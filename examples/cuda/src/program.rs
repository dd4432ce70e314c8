//! The recorded program: copies, a fill, kernels, events and graphs on two streams of each GPU.

use crate::kernels::PTX;
use cudarc::driver::sys::{CUevent_flags, CUgraphInstantiate_flags, CUstreamCaptureMode};
use cudarc::driver::{
    CudaContext, CudaFunction, CudaGraph, CudaSlice, CudaStream, DriverError, LaunchConfig, PushKernelArg,
};
use cudarc::runtime;
use std::error::Error;
use std::sync::Arc;
use tracing::info_span;
use tracing_kineto::annotate;

/// The number of elements of a vector.
pub const ELEMENTS: u32 = 1 << 20;
pub const BYTES: u64 = 4 << 20;
/// The number of streams of each GPU.
pub const STREAMS: usize = 2;
pub const PLAIN_KERNELS: usize = 3;
pub const GRAPH_KERNELS: usize = 4;
pub const GRAPH_LAUNCHES: usize = 2;

/// The GPUs that CUDA shows to this process.
pub struct Machine {
    pub gpus: Vec<Gpu>,
}

pub struct Gpu {
    pub name: String,
    pub lanes: Vec<Lane>,
    pub empty: CudaFunction,
    /// Runs for a number of cycles.
    pub spin: CudaFunction,
}

/// A stream with its vectors.
pub struct Lane {
    pub stream: Arc<CudaStream>,
    add: CudaFunction,
    a: CudaSlice<f32>,
    b: CudaSlice<f32>,
    c: CudaSlice<f32>,
    result: Vec<f32>,
}

/// The results of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Done {
    pub steps: usize,
    /// Copies, fills and waits through the CUDA runtime; `None` if that is missing.
    pub runtime: Option<u64>,
    pub peer_copies: usize,
    /// The number of wrong elements.
    pub wrong: usize,
}

/// Returns whether there is a CUDA driver.
pub fn has_driver() -> bool {
    // SAFETY: the library's initializers are NVIDIA's.
    unsafe { cudarc::driver::sys::is_culib_present() }
}

impl Machine {
    pub fn open() -> Result<Machine, Box<dyn Error>> {
        let count = usize::try_from(CudaContext::device_count()?)?;
        Ok(Machine { gpus: (0..count).map(Gpu::open).collect::<Result<_, _>>()? })
    }

    /// Returns whether the GPU is simulated and computes nothing.
    pub fn is_simulated(&self) -> bool {
        self.gpus.iter().any(|gpu| gpu.name.contains("Simulated"))
    }

    /// Runs the program: a step for each stream, then the work across streams and GPUs.
    pub fn run(&mut self) -> Result<Done, Box<dyn Error>> {
        let mut done = Done::default();
        for (gpu, on) in self.gpus.iter_mut().enumerate() {
            for lane in 0..on.lanes.len() {
                let _step = annotate!("ProfilerStep#{}", done.steps; gpu, stream = lane).entered();
                done.wrong += on.step(lane)?;
                done.steps += 1;
            }
        }
        let _step = annotate!("ProfilerStep#{}", done.steps).entered();
        done.steps += 1;
        done.runtime = use_runtime()?;
        if let [first, second, ..] = &mut self.gpus[..] {
            info_span!("peer copy").in_scope(|| second.copy_from(first))?;
            done.peer_copies += 1;
        }
        Ok(done)
    }
}

impl Gpu {
    fn open(number: usize) -> Result<Gpu, Box<dyn Error>> {
        let context = CudaContext::new(number)?;
        // SAFETY: each vector belongs to one stream, and its use by another stream is synchronized.
        unsafe { context.disable_event_tracking() };
        let module = context.load_module(PTX.into())?;
        let (add, empty) = (module.load_function("vecadd")?, module.load_function("empty")?);
        let spin = module.load_function("spin")?;
        let lane = |_| Lane::new(context.new_stream()?, add.clone());
        let lanes = (0..STREAMS).map(lane).collect::<Result<_, DriverError>>()?;
        Ok(Gpu { name: context.name()?, lanes, empty, spin })
    }

    /// Runs a step on one stream; returns how many elements of the result are wrong.
    ///
    /// Each wait happens while there is work to wait for: CUPTI records no others.
    fn step(&mut self, lane: usize) -> Result<usize, DriverError> {
        let other = self.lanes[(lane + 1) % self.lanes.len()].stream.clone();
        let lane = &mut self.lanes[lane];
        lane.upload()?;
        for kernel in 0..PLAIN_KERNELS {
            info_span!("add", kernel).in_scope(|| lane.add())?;
        }
        info_span!("finish").in_scope(|| lane.stream.synchronize())?;
        let wrong = lane.download()?;
        let graph = info_span!("capture").in_scope(|| {
            lane.begin_capture()?;
            (0..GRAPH_KERNELS).try_for_each(|_| lane.add())?;
            lane.end_capture()
        })?;
        for launch in 0..GRAPH_LAUNCHES {
            annotate!("replay"; launch).in_scope(|| graph.launch())?;
        }
        info_span!("events").in_scope(|| {
            let event = lane.stream.record_event(Some(CUevent_flags::CU_EVENT_DEFAULT))?;
            other.wait(&event)?;
            event.synchronize()
        })?;
        Ok(wrong)
    }

    fn copy_from(&mut self, other: &Gpu) -> Result<(), DriverError> {
        let (target, source) = (&mut self.lanes[0], &other.lanes[0]);
        target.stream.memcpy_dtod(&source.c, &mut target.c)?;
        target.stream.synchronize()
    }
}

impl Lane {
    fn new(stream: Arc<CudaStream>, add: CudaFunction) -> Result<Lane, DriverError> {
        // SAFETY: each vector is written before it is read.
        let vector = || unsafe { stream.alloc::<f32>(ELEMENTS as usize) };
        let (a, b, c) = (vector()?, vector()?, vector()?);
        stream.synchronize()?;
        Ok(Lane { stream: stream.clone(), add, a, b, c, result: vec![0.0; ELEMENTS as usize] })
    }

    /// Copies both vectors to the GPU, and clears the sum.
    pub fn upload(&mut self) -> Result<(), DriverError> {
        let _span = info_span!("upload").entered();
        let values = |times: u32| -> Vec<f32> { (0..ELEMENTS).map(|at| (at * times) as f32).collect() };
        let (a, b) = info_span!("make").in_scope(|| (values(1), values(2)));
        self.stream.memcpy_htod(&a, &mut self.a)?;
        self.stream.memcpy_htod(&b, &mut self.b)?;
        self.clear()?;
        // The host vectors must outlive the copies.
        self.stream.synchronize()
    }

    pub fn clear(&mut self) -> Result<(), DriverError> {
        self.stream.memset_zeros(&mut self.c)
    }

    /// Launches the kernel.
    pub fn add(&mut self) -> Result<(), DriverError> {
        let mut launch = self.stream.launch_builder(&self.add);
        launch.arg(&self.a).arg(&self.b).arg(&mut self.c).arg(&ELEMENTS);
        // SAFETY: the arguments match the kernel's parameters, and the vectors have `ELEMENTS` elements.
        unsafe { launch.launch(LaunchConfig::for_num_elems(ELEMENTS)) }.map(drop)
    }

    /// Downloads the sum; returns how many of its elements are wrong.
    pub fn download(&mut self) -> Result<usize, DriverError> {
        let _span = info_span!("download").entered();
        self.stream.memcpy_dtoh(&self.c, &mut self.result)?;
        self.stream.synchronize()?;
        let wrong = |(at, sum): (u32, &f32)| *sum != (at * 3) as f32;
        Ok((0..ELEMENTS).zip(&self.result).filter(|element| wrong(*element)).count())
    }

    /// Begins a capture that calls of any thread can invalidate.
    pub fn begin_capture(&self) -> Result<(), DriverError> {
        self.stream.begin_capture(CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_GLOBAL)
    }

    pub fn end_capture(&self) -> Result<CudaGraph, DriverError> {
        let graph = self.stream.end_capture(CUgraphInstantiate_flags(0))?;
        graph.ok_or(DriverError(cudarc::driver::sys::CUresult::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED))
    }
}

/// Copies and fills through the CUDA runtime, if present; returns the number of bytes of each.
fn use_runtime() -> Result<Option<u64>, Box<dyn Error>> {
    // SAFETY: the library's initializers are NVIDIA's.
    if !unsafe { runtime::sys::is_culib_present() } {
        return Ok(None);
    }
    let _span = info_span!("runtime").entered();
    let source = vec![1u8; 1 << 20];
    // SAFETY: the allocation is freed below.
    let target = unsafe { runtime::result::malloc_sync(source.len()) }?;
    let stream = std::ptr::null_mut();
    // SAFETY: the stream is synchronized before the source is dropped, and the target is as long.
    unsafe { runtime::result::memcpy_htod_async(target, &source, stream) }?;
    // SAFETY: the target has `source.len()` bytes.
    unsafe { runtime::result::memset_d8_async(target, 0, source.len(), stream) }?;
    // SAFETY: null is the default stream.
    unsafe { runtime::result::stream::synchronize(stream) }?;
    // SAFETY: it was allocated above, and is not used any more.
    unsafe { runtime::result::free_sync(target) }?;
    Ok(Some(source.len() as u64))
}
