//! What metrics must survive: captures, further contexts, many annotations, and a stop during a launch.

use crate::kernels::PTX;
use crate::metrics::{Unit, value};
use crate::program::{Gpu, Machine};
use crate::report::Report;
use crate::view::{Row, View};
use cudarc::driver::{CudaStream, DriverError, LaunchConfig, PushKernelArg, result, sys};
use std::error::Error;
use std::ffi::CString;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use tracing_kineto::{Profiler, annotate};

/// A machine whose work is measured, in further recordings.
pub struct Checks<'c> {
    pub unit: Unit,
    /// The first metric: a sum.
    pub metric: &'c str,
    pub machine: &'c mut Machine,
    pub profiler: &'c Profiler,
    pub report: &'c mut Report,
    /// What the collector noted in the last recording.
    pub notes: Vec<String>,
}

/// A check and its name.
type Check<'c> = (&'static str, fn(&mut Checks<'c>) -> Outcome);
type Outcome = Result<(), Box<dyn Error>>;

/// Annotations in a row.
const ANNOTATIONS: usize = 300;
/// How long the long kernel runs at least, in cycles of a multiprocessor: about 0.7 s.
const LONG_CYCLES: u64 = 1_200_000_000;
/// How far counts of equal work may be apart.
const TOLERANCE: f64 = 0.05;

impl<'c> Checks<'c> {
    /// Runs all; a check that fails to run is a failed check.
    pub fn run(&mut self) {
        let checks: &[Check<'c>] = match self.unit {
            Unit::Kernel => &[
                ("capture while kernels are measured", Self::check_graph),
                ("second context", Self::check_second_context),
                ("stop during a launch", Self::check_stop),
                ("stop in a capture", Self::check_stop_in_capture),
            ],
            Unit::Annotation => &[
                ("annotation that a capture cuts", Self::check_cut_annotation),
                ("stop in a capture", Self::check_stop_in_capture),
                ("annotations in a row", Self::check_many_annotations),
                ("second context", Self::check_second_context),
            ],
        };
        for (name, check) in checks {
            if let Err(error) = check(self) {
                self.report.check(name, false, error);
            }
        }
    }

    fn gpu(&mut self) -> Result<&mut Gpu, &'static str> {
        let gpu = self.machine.gpus.first_mut().ok_or("no GPU")?;
        if gpu.lanes.len() < 2 { Err("fewer than two streams") } else { Ok(gpu) }
    }

    /// Records what `work` does; returns the trace, with what `work` returns.
    fn record<R>(
        &mut self,
        work: impl FnOnce(&mut Self) -> Result<R, Box<dyn Error>>,
    ) -> Result<(View, R), Box<dyn Error>> {
        self.profiler.start()?;
        let outcome = work(self);
        let view = self.stop();
        Ok((view?, outcome?))
    }

    /// Stops the recording, and prints what the collector notes.
    fn stop(&mut self) -> Result<View, Box<dyn Error>> {
        let trace = self.profiler.stop()?;
        let stats = trace.stats();
        let cupti = stats.collectors.iter().find(|collector| collector.name == "cupti");
        self.notes = cupti.map(|cupti| cupti.notes.clone()).unwrap_or_default();
        self.notes.iter().for_each(|note| self.report.say(format_args!("      {note}")));
        self.report.say(format_args!("      losses: {:?}", stats.losses));
        View::new(&trace)
    }

    /// Returns name, launches and value of each row of the first GPU.
    fn rows(&self, view: &View) -> Vec<(String, i64, f64)> {
        let category = match self.unit {
            Unit::Kernel => "cuda_profiler_range",
            Unit::Annotation => "gpu_user_annotation",
        };
        let mut rows: Vec<&Row> = view.of(category).filter(|row| row.process == 0).collect();
        rows.sort_unstable_by_key(|row| row.start);
        let about = |row: &&Row| {
            (row.name.clone(), row.int("launches").unwrap_or(1), value(row, self.metric).unwrap_or(f64::NAN))
        };
        rows.iter().map(about).collect()
    }

    /// A capture in one stream while another one launches: the capture ends well, its graph computes, kernels are measured.
    fn check_graph(&mut self) -> Outcome {
        let (view, (wrong, error)) = self.record(|this| {
            let gpu = this.gpu()?;
            gpu.lanes[0].upload()?;
            gpu.lanes[0].add()?;
            gpu.lanes[0].clear()?;
            gpu.lanes[0].begin_capture()?;
            let captured = gpu.lanes[0].add();
            let other = gpu.lanes[1].add();
            let graph = gpu.lanes[0].end_capture();
            let error = captured.and(other).err().or_else(|| graph.as_ref().err().copied());
            if let Ok(graph) = &graph {
                graph.launch()?;
            }
            let wrong = gpu.lanes[0].download()?;
            gpu.lanes[0].add()?;
            Ok((wrong, error))
        })?;
        let is_right = wrong == 0 || self.machine.is_simulated();
        self.report.check("capture ends well", error.is_none(), format_args!("{error:?}"));
        self.report.check("graph computes", is_right, format_args!("{wrong} wrong elements"));
        let rows = self.rows(&view);
        self.report.check("kernels around the capture", rows.len() == 2, format_args!("{rows:?}"));
        Ok(())
    }

    /// An annotation ends while a stream is captured; the next one has its own values.
    fn check_cut_annotation(&mut self) -> Outcome {
        let (view, error) = self.record(|this| {
            let gpu = this.gpu()?;
            annotate!("one").in_scope(|| gpu.lanes[0].add())?;
            let cut = annotate!("cut").entered();
            gpu.lanes[0].add()?;
            gpu.lanes[1].begin_capture()?;
            drop(cut);
            let captured = gpu.lanes[1].add();
            let ended = gpu.lanes[1].end_capture().map(drop);
            annotate!("two").in_scope(|| gpu.lanes[0].add().and_then(|()| gpu.lanes[0].add()))?;
            Ok(captured.and(ended).err())
        })?;
        self.report.check("capture ends well", error.is_none(), format_args!("{error:?}"));
        let rows = self.rows(&view);
        let is_right = match &rows[..] {
            [(one, 1, single), (two, 2, double)] => {
                one == "one" && two == "two" && (double - 2.0 * single).abs() <= TOLERANCE * double
            }
            _ => false,
        };
        self.report.check("annotation after a cut one", is_right, format_args!("{rows:?}"));
        Ok(())
    }

    fn check_many_annotations(&mut self) -> Outcome {
        let (view, took) = self.record(|this| {
            let lane = &mut this.gpu()?.lanes[0];
            annotate!("first").in_scope(|| lane.add())?;
            let begun = Instant::now();
            (0..ANNOTATIONS).try_for_each(|nth| annotate!("row {}", nth).in_scope(|| lane.add()))?;
            Ok(begun.elapsed())
        })?;
        let rows = self.rows(&view);
        let each = took / ANNOTATIONS as u32;
        self.report.figure("annotation with metrics", each.as_micros() as u64, "us");
        let low = rows.iter().map(|row| row.2).fold(f64::MAX, f64::min);
        let high = rows.iter().map(|row| row.2).fold(0.0, f64::max);
        let is_right = rows.len() == ANNOTATIONS + 1 && high > 0.0 && high - low <= TOLERANCE * high;
        let figures = format_args!("{} rows, {low} to {high}, {each:.1?} an annotation", rows.len());
        self.report.check("annotations in a row", is_right, figures);
        Ok(())
    }

    /// A kernel of each of two contexts of a GPU, in turn.
    fn check_second_context(&mut self) -> Outcome {
        let (view, error) = self.record(|this| {
            let gpu = this.gpu()?;
            let launch = |stream: &CudaStream, gpu: &Gpu| -> Result<(), DriverError> {
                stream.context().bind_to_thread()?;
                let mut launch = gpu.lanes[0].stream.launch_builder(&gpu.empty);
                // SAFETY: the kernel takes nothing.
                unsafe { launch.launch(LaunchConfig::for_num_elems(1 << 20)) }.map(drop)
            };
            let primary = gpu.lanes[0].stream.clone();
            annotate!("primary").in_scope(|| launch(&primary, gpu))?;
            let other = in_second_context(|launch| (0..2).try_for_each(|_| annotate!("other").in_scope(launch)));
            annotate!("primary again").in_scope(|| launch(&primary, gpu))?;
            Ok(other.err())
        })?;
        self.report.check("second context works", error.is_none(), format_args!("{error:?}"));
        let rows = self.rows(&view);
        let counted = rows.iter().filter(|row| row.2 > 0.0).count();
        // A GPU may refuse to measure two contexts at once, with a reason.
        let is_explained = counted == 4 || self.notes.iter().any(|note| note.contains("of a context are not measured"));
        self.report.check("rows of both contexts, or a reason", is_explained, format_args!("{rows:?}"));
        Ok(())
    }

    /// The recording stops while a stream is captured: the capture ends well, and the next recording measures.
    fn check_stop_in_capture(&mut self) -> Outcome {
        self.profiler.start()?;
        let open = annotate!("open").entered();
        self.gpu()?.lanes[0].add()?;
        self.gpu()?.lanes[1].begin_capture()?;
        let stopped = self.stop();
        let captured = self.gpu()?.lanes[1].add();
        let ended = self.gpu()?.lanes[1].end_capture().map(drop);
        drop(open);
        stopped?;
        let error = captured.and(ended).err();
        self.report.check("capture outlives the recording", error.is_none(), format_args!("{error:?}"));
        let (view, ()) = self.record(|this| {
            let lane = &mut this.gpu()?.lanes[0];
            Ok(annotate!("next").in_scope(|| lane.add())?)
        })?;
        let rows = self.rows(&view);
        self.report.check("recording after the capture", rows.len() == 1, format_args!("{rows:?}"));
        Ok(())
    }

    /// The recording stops while another thread's launch is replayed; the next recording measures.
    fn check_stop(&mut self) -> Outcome {
        self.profiler.start()?;
        let is_begun = AtomicBool::new(false);
        let gpu = self.gpu()?;
        let (stream, spin) = (gpu.lanes[0].stream.clone(), gpu.spin.clone());
        let launch = |cycles: u64| -> Result<Duration, DriverError> {
            stream.context().bind_to_thread()?;
            is_begun.store(true, Ordering::Release);
            let begun = Instant::now();
            let mut launch = stream.launch_builder(&spin);
            launch.arg(&cycles);
            // SAFETY: the argument is the kernel's parameter.
            unsafe { launch.launch(LaunchConfig::for_num_elems(32)) }?;
            Ok(begun.elapsed())
        };
        // The first launch of a context takes longer.
        let first = launch(1);
        is_begun.store(false, Ordering::Release);
        let (view, launched, stopped) = thread::scope(|scope| {
            let launched = scope.spawn(|| launch(LONG_CYCLES));
            while !is_begun.load(Ordering::Acquire) {
                thread::yield_now();
            }
            thread::sleep(Duration::from_millis(100));
            let begun = Instant::now();
            let view = self.stop();
            let stopped = begun.elapsed();
            (view, launched.join(), stopped)
        });
        let rows = view.map(|view| self.rows(&view));
        let launched = launched.map_err(|_| "the thread failed")?;
        let ok = first.is_ok() && launched.is_ok() && rows.as_ref().is_ok_and(|rows| !rows.is_empty());
        let figures = format_args!("launch {launched:?}, stop {stopped:.1?}, {rows:?}");
        self.report.check("stop during a launch", ok, figures);
        let (view, ()) = self.record(|this| Ok(this.gpu()?.lanes[0].add()?))?;
        let rows = self.rows(&view);
        self.report.check("recording after it", rows.len() == 1, format_args!("{rows:?}"));
        Ok(())
    }
}

/// Calls `act` with a function that launches a kernel, in a new context of the first GPU, which ends then.
fn in_second_context(
    act: impl FnOnce(&dyn Fn() -> Result<(), DriverError>) -> Result<(), DriverError>,
) -> Result<(), Box<dyn Error>> {
    let (text, name) = (CString::new(PTX)?, CString::new("empty")?);
    let mut context = null_mut();
    // SAFETY: the pointer is a valid place for a context, which becomes the thread's.
    unsafe { sys::cuCtxCreate_v2(&raw mut context, 0, 0) }.result()?;
    let work = || {
        // SAFETY: the text ends with a zero, and the context is current.
        let module = unsafe { result::module::load_data(text.as_ptr().cast()) }?;
        // SAFETY: the module was loaded above.
        let kernel = unsafe { result::module::get_function(module, name) }?;
        act(&|| {
            // SAFETY: the kernel takes nothing, and its context is current.
            unsafe { result::launch_kernel(kernel, (4096, 1, 1), (256, 1, 1), 0, null_mut(), &mut []) }
        })?;
        result::ctx::synchronize()
    };
    let outcome = work();
    // SAFETY: the context was created above, and nothing of it is used any more.
    unsafe { sys::cuCtxDestroy_v2(context) }.result()?;
    Ok(outcome?)
}
