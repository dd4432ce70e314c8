//! The GPU: a thread that launches one kernel after another, in the order in which they were asked for.
//!
//! The kernels stand in for a model's. They take 20 ns for each of their blocks, on a real GPU as on the simulated one.

use std::error::Error;
use std::sync::mpsc;
use std::thread;

use cudarc::driver::{CudaContext, DriverError, LaunchConfig};
use libloading::Library;
use tokio::sync::oneshot;
use tracing::{Span, info_span, instrument};

const PTX: &str = "\
.version 6.0
.target sm_50
.address_size 64
.visible .entry NAME()
{
  .reg .pred %is_over; .reg .b32 %r<2>; .reg .b64 %start, %now, %time;
  mov.u32 %r0, %ctaid.x; setp.ne.u32 %is_over, %r0, 0; @%is_over bra DONE;
  mov.u32 %r1, %nctaid.x; mul.wide.u32 %time, %r1, 20; mov.u64 %start, %globaltimer;
WAIT:
  mov.u64 %now, %globaltimer; sub.u64 %now, %now, %start; setp.lt.u64 %is_over, %now, %time; @%is_over bra WAIT;
DONE:
  ret;
}
";

/// A kernel's name, and how many blocks it has.
pub type Work = (&'static str, u32);

/// The way to the GPU's thread.
#[derive(Clone)]
pub struct Gpu(mpsc::Sender<(Work, Span, oneshot::Sender<()>)>);

impl Gpu {
    /// Opens the first GPU, or else the simulated one; also returns its name.
    pub fn open(kernels: [&'static str; 2]) -> Result<(Gpu, String), Box<dyn Error>> {
        // SAFETY: the initializers of the driver, CUPTI and their simulators are sound.
        let open = |name: String| unsafe { Library::new(name) };
        if open("libcuda.so.1".into()).is_err() {
            // cargo has built both. From now on, the loader finds them by the names of NVIDIA's.
            let folder = std::env::current_exe()?.with_file_name("deps");
            for library in ["libsim_cupti.so", "libsim_cuda.so"] {
                std::mem::forget(open(folder.join(library).display().to_string())?);
            }
        }
        let context = CudaContext::new(0)?;
        let load = |name| context.load_module(PTX.replace("NAME", name).into())?.load_function(name);
        let kernels = kernels.map(|name| load(name).map(|kernel| (name, kernel)));
        let kernels = kernels.into_iter().collect::<Result<Vec<_>, DriverError>>()?;
        let (name, stream) = (context.name()?, context.new_stream()?);
        let (jobs, queue) = mpsc::channel::<(Work, Span, oneshot::Sender<()>)>();
        let run = move || -> Result<(), DriverError> {
            context.bind_to_thread()?;
            for ((name, blocks), caller, done) in queue {
                let _span = info_span!(parent: &caller, "run", name, blocks).entered();
                let Some((_, kernel)) = kernels.iter().find(|(known, _)| *known == name) else { continue };
                let shape = LaunchConfig { grid_dim: (blocks, 1, 1), block_dim: (32, 1, 1), shared_mem_bytes: 0 };
                // SAFETY: the kernel takes no arguments and accesses no memory.
                unsafe { stream.launch_builder(kernel).launch(shape) }?;
                stream.synchronize()?;
                let _ = done.send(());
            }
            Ok(())
        };
        let run = move || run().unwrap_or_else(|error| eprintln!("the GPU failed: {error}"));
        thread::Builder::new().name("gpu".into()).spawn(run)?;
        Ok((Gpu(jobs), name))
    }

    /// Runs a kernel after those that were asked for earlier; returns when it has ended.
    #[instrument(name = "wait for the GPU", skip_all, err)]
    pub async fn run(&self, work: Work) -> Result<(), Box<dyn Error + Send + Sync>> {
        let (done, ended) = oneshot::channel();
        self.0.send((work, Span::current(), done))?;
        Ok(ended.await?)
    }
}
