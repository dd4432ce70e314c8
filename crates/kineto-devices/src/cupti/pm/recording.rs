//! The thread that samples, and its recording.

use super::super::profiler::ffi::{CallFailure, ProfilerApi};
use super::super::profiler::lease::ProfilerLease;
use super::device::{DeviceSampling, SamplesUntil};
use super::ffi::PmApi;
use super::settings::PmSettings;
use crate::buffered::commands::EndLimits;
use crate::clock::to_vendor_clock;
use crate::cupti::ffi::Api;
use crate::library::contained::run_reader;
use crate::{DeviceDescription, RecordSink, Recording, Unavailable, Why};
use kineto_base::channel::{Receiver, Sender, channel};
use kineto_base::os::thread;
use kineto_base::text::count_with_noun;
use kineto_base::time::Timestamp;
use kineto_base::wait::steady;
use std::fmt::Write as _;
use std::sync::mpsc::RecvTimeoutError;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// A recording, whose thread calls the library until it has ended.
#[derive(Debug)]
pub(super) struct PmRecording {
    cupti: &'static Api,
    commands: Mutex<Sender<SamplingCommand>>,
    sink: RecordSink,
    devices: Vec<DeviceDescription>,
}

/// A command to the thread. Its sender is dropped when it is done.
#[derive(Debug)]
enum SamplingCommand {
    Drain(Sender<()>),
    End(SamplesUntil, Sender<()>),
}

/// The inputs of the thread.
#[derive(Clone, Debug)]
pub(super) struct SamplingPlan {
    pub(super) cupti: &'static Api,
    pub(super) profiler: &'static ProfilerApi,
    pub(super) api: &'static PmApi,
    pub(super) version: u32,
    pub(super) settings: PmSettings,
    pub(super) devices: Vec<DeviceDescription>,
    pub(super) sink: RecordSink,
    /// The bound of the clock's error; `None` if the clock cannot be read.
    pub(super) clock_bound: Option<u64>,
}

/// The outcome of a start: the numbers of the sampled devices, and the reasons for the others.
#[derive(Debug, Default)]
pub(super) struct StartOutcome {
    pub(super) sampled: Vec<i32>,
    pub(super) failed: Vec<(i32, Unavailable)>,
    pub(super) notes: Vec<String>,
}

/// How long the start waits for the library. Enabling takes 0.1 s for a device.
const START_LIMIT: Duration = Duration::from_secs(20);
/// How long at least and at most passes between two decodes.
const SHORTEST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_millis(100);
/// How long a drain waits for the thread.
const DRAIN_LIMIT: Duration = Duration::from_secs(1);

/// How far the times of samples may differ from those of kernels, as measured on an H200.
pub(super) const CLOCK_BOUND_NS: u64 = 2_400;

/// The state of the thread.
#[derive(Debug)]
struct SamplingThread {
    plan: SamplingPlan,
    devices: Vec<DeviceSampling>,
    /// Dropped after the devices, so that the next recording starts only then.
    lease: ProfilerLease,
}

/// The devices' turns between two pauses.
#[derive(Clone, Copy, Debug, Default)]
struct SamplingRound {
    /// The index of the next device.
    next: usize,
    /// Whether an earlier device may have more samples.
    has_more: bool,
}

impl PmRecording {
    /// Starts the thread, and waits until it samples.
    ///
    /// # Errors
    /// Why no device is sampled.
    pub(super) fn start(plan: SamplingPlan, lease: ProfilerLease) -> Result<(StartOutcome, PmRecording), Unavailable> {
        let (commands, received) = channel();
        let (ready, answer) = channel();
        let recording = PmRecording {
            cupti: plan.cupti,
            commands: Mutex::new(commands),
            sink: plan.sink.clone(),
            devices: plan.devices.clone(),
        };
        let run = move || {
            let sink = plan.sink.clone();
            run_reader(&sink, || SamplingThread::run(plan, lease, &ready, &received));
        };
        let thread = thread::spawn("kineto-cupti-pm", Box::new(run));
        thread.map_err(|error| Unavailable::no_thread(&error))?;
        let started = answer.recv_timeout(START_LIMIT).unwrap_or_else(|_| {
            let advice = "stop other profilers of this GPU; CUPTI cannot be used for samples before the process ends";
            Err(Unavailable::new(Why::Failed, "libcupti hung or panicked while PM sampling was set up", advice))
        })?;
        Ok((started, recording))
    }

    /// Sends a command; returns whether it was done in that time.
    fn command(&self, command: impl FnOnce(Sender<()>) -> SamplingCommand, patience: Duration) -> bool {
        let (done, answer) = channel();
        let sent = self.commands.lock().unwrap_or_else(PoisonError::into_inner).send(command(done));
        // A thread that has ended takes no command.
        sent.is_err() || answer.recv_timeout(patience) == Err(RecvTimeoutError::Disconnected)
    }
}

impl Recording for PmRecording {
    fn takes_slices(&self) -> bool {
        false
    }

    fn drain(&self, _: Duration) {
        self.command(SamplingCommand::Drain, DRAIN_LIMIT);
    }

    fn clock(&self) -> Option<u64> {
        self.cupti.timestamp()
    }

    fn stop(&self, end: Timestamp, deadline: Instant) {
        let limit = EndLimits::new(steady(), deadline).library;
        let until = SamplesUntil { at: to_vendor_clock(end, self.cupti.timestamp()) };
        if !self.command(|done| SamplingCommand::End(until, done), limit) {
            self.sink.note("libcupti hung while PM sampling was stopped; the samples that it had are lost");
        }
    }

    fn devices(&self) -> Vec<DeviceDescription> {
        self.devices.clone()
    }
}

impl SamplingThread {
    fn run(
        plan: SamplingPlan,
        lease: ProfilerLease,
        ready: &Sender<Result<StartOutcome, Unavailable>>,
        commands: &Receiver<SamplingCommand>,
    ) {
        let mut thread = SamplingThread { plan, devices: Vec::new(), lease };
        match thread.start_devices() {
            Ok(started) => {
                if ready.send(Ok(started)).is_ok() {
                    thread.sample_until_end(commands);
                }
            }
            Err(reason) => {
                // The next start finds all released.
                drop(thread);
                let _ = ready.send(Err(reason));
            }
        }
    }

    fn start_devices(&mut self) -> Result<StartOutcome, Unavailable> {
        let SamplingPlan { profiler, api, version, settings, devices, sink, .. } = &self.plan;
        self.lease.initialize(profiler).map_err(CallFailure::to_unavailable)?;
        let mut started = StartOutcome::default();
        for device in devices {
            match DeviceSampling::start((profiler, api), *version, device, settings, sink) {
                Ok(sampling) => {
                    started.sampled.push(sampling.number());
                    started.notes.extend(sampling.interval_note());
                    self.devices.push(sampling);
                }
                Err(reason) => started.failed.push((device.id, reason)),
            }
        }
        match started.failed.first() {
            Some((number, reason)) if started.sampled.is_empty() => {
                let message = format!("GPU {number}: {}", reason.message());
                Err(Unavailable::new(reason.why(), message, reason.advice()))
            }
            _ => Ok(started),
        }
    }

    fn sample_until_end(mut self, commands: &Receiver<SamplingCommand>) {
        let interval = Duration::from_nanos(self.plan.settings.interval_ns);
        let intervals = self.devices.iter().map(DeviceSampling::intervals_per_decode).min().unwrap_or(1);
        let pause = interval.saturating_mul(intervals).clamp(SHORTEST_PAUSE, LONGEST_PAUSE);
        let mut round = SamplingRound::default();
        // Dropped when no device has a full image.
        let mut drains = Vec::new();
        let mut wait = pause;
        // Commands are read between two devices: the images of all may take longer than a stop waits.
        loop {
            match commands.recv_timeout(wait) {
                Ok(SamplingCommand::Drain(done)) => {
                    // Its devices are all read after the command.
                    round = SamplingRound::default();
                    drains.push(done);
                }
                Err(RecvTimeoutError::Timeout) => {}
                Ok(SamplingCommand::End(until, done)) => {
                    self.finish(until);
                    // The answer is given when all is released.
                    drop(self);
                    drop(done);
                    return;
                }
                Err(RecvTimeoutError::Disconnected) => return,
            }
            wait = Duration::ZERO;
            // After a failure, the next device has the number of the one that was removed.
            if let Some(has_more) = self.call_device(round.next, DeviceSampling::deliver_image) {
                round = SamplingRound { next: round.next + 1, has_more: round.has_more | has_more };
            }
            if round.next >= self.devices.len() {
                if !round.has_more {
                    drains.clear();
                    wait = pause;
                }
                round = SamplingRound::default();
            }
        }
    }

    fn finish(&mut self, until: SamplesUntil) {
        let mut next = 0;
        while next < self.devices.len() {
            next += usize::from(self.call_device(next, |device, sink| device.finish(until, sink)).is_some());
        }
        self.devices.iter().for_each(|device| self.plan.sink.note(summary_of(device)));
    }

    /// Calls a device. One that fails is dropped, and the others continue.
    fn call_device<R>(
        &mut self,
        index: usize,
        call: impl FnOnce(&mut DeviceSampling, &RecordSink) -> Result<R, String>,
    ) -> Option<R> {
        let sink = &self.plan.sink;
        self.plan.clock_bound.into_iter().for_each(|bound| sink.clock_error(bound));
        let device = self.devices.get_mut(index)?;
        match call(device, sink) {
            Ok(result) => Some(result),
            Err(why) => {
                sink.note(format!("PM sampling of GPU {} ended: {why}", device.number()));
                sink.note(summary_of(device));
                self.devices.remove(index);
                None
            }
        }
    }
}

/// Returns how many samples a device has delivered and lost.
fn summary_of(device: &DeviceSampling) -> String {
    let counts = device.counts();
    let mut text = format!("GPU {}: {}", device.number(), count_with_noun(counts.delivered, "sample"));
    if counts.lost > 0 {
        let _ = write!(text, ", {} lost", counts.lost);
    }
    if counts.restarts > 0 {
        let _ = write!(text, ", {} restarts", counts.restarts);
    }
    text
}
