//! A command encoder whose passes are timed.

use crate::queries::Queries;
use crate::timestamps::Inner;
use std::sync::Arc;
use tracing_kineto::ActivityType;
use tracing_kineto::integration::Submission;
use wgpu::{
    CommandBuffer, CommandEncoder, ComputePass, ComputePassDescriptor, ComputePassTimestampWrites, Features,
    RenderPass, RenderPassDescriptor, RenderPassTimestampWrites,
};

/// A command encoder whose passes and copies are timed while a recording runs.
///
/// Each pass is a row on the thread that encodes it, in the span around it, and a row of the GPU.
/// [Submit](crate::Timestamps::submit) the encoder itself, so that its timestamps are read.
#[derive(Debug)]
pub struct TimedEncoder {
    inner: Arc<Inner>,
    encoder: CommandEncoder,
    timed: Vec<(Queries, Vec<Pass>)>,
}

/// The work between two timestamps.
#[derive(Debug)]
pub(crate) struct Pass {
    pub(crate) submission: Submission,
    pub(crate) kind: ActivityType,
    pub(crate) name: String,
}

/// wgpu has a single stream.
const STREAM: u32 = 0;

impl TimedEncoder {
    pub(crate) fn new(inner: Arc<Inner>, encoder: CommandEncoder) -> TimedEncoder {
        TimedEncoder { inner, encoder, timed: Vec::new() }
    }

    /// Encodes a compute pass, which becomes a kernel of that name.
    pub fn compute_pass<R>(&mut self, name: &str, encode: impl FnOnce(&mut ComputePass<'_>) -> R) -> R {
        self.timed("compute_pass", name, ActivityType::ConcurrentKernel, Features::TIMESTAMP_QUERY, |encoder, at| {
            let timestamp_writes = at.map(|(queries, [begin, end])| ComputePassTimestampWrites {
                query_set: &queries.set,
                beginning_of_pass_write_index: Some(begin),
                end_of_pass_write_index: Some(end),
            });
            encode(&mut encoder.begin_compute_pass(&ComputePassDescriptor { label: Some(name), timestamp_writes }))
        })
    }

    /// Encodes a render pass, which becomes a kernel of that name. The descriptor's own timestamps are not written.
    pub fn render_pass<R>(
        &mut self,
        name: &str,
        descriptor: &RenderPassDescriptor<'_>,
        encode: impl FnOnce(&mut RenderPass<'_>) -> R,
    ) -> R {
        self.timed("render_pass", name, ActivityType::ConcurrentKernel, Features::TIMESTAMP_QUERY, |encoder, at| {
            let timestamp_writes = at.map(|(queries, [begin, end])| RenderPassTimestampWrites {
                query_set: &queries.set,
                beginning_of_pass_write_index: Some(begin),
                end_of_pass_write_index: Some(end),
            });
            encode(&mut encoder.begin_render_pass(&RenderPassDescriptor { timestamp_writes, ..descriptor.clone() }))
        })
    }

    /// Encodes other commands, such as a copy ([`ActivityType::GpuMemcpy`]) or a fill ([`ActivityType::GpuMemset`]); timed if
    /// the device has `TIMESTAMP_QUERY_INSIDE_ENCODERS`.
    pub fn commands<R>(&mut self, kind: ActivityType, name: &str, encode: impl FnOnce(&mut CommandEncoder) -> R) -> R {
        let needs = Features::TIMESTAMP_QUERY | Features::TIMESTAMP_QUERY_INSIDE_ENCODERS;
        self.timed("commands", name, kind, needs, |encoder, at| {
            at.iter().for_each(|(queries, [begin, _])| encoder.write_timestamp(&queries.set, *begin));
            let encoded = encode(encoder);
            at.iter().for_each(|(queries, [_, end])| encoder.write_timestamp(&queries.set, *end));
            encoded
        })
    }

    /// Returns the encoder itself, for untimed commands.
    pub fn untimed(&mut self) -> &mut CommandEncoder {
        &mut self.encoder
    }

    /// Encodes commands between two timestamps, if the device has them and a recording runs.
    fn timed<R>(
        &mut self,
        call: &str,
        name: &str,
        kind: ActivityType,
        needs: Features,
        encode: impl FnOnce(&mut CommandEncoder, Option<(&Queries, [u32; 2])>) -> R,
    ) -> R {
        let TimedEncoder { inner, encoder, timed } = self;
        if !inner.events.is_recording() || !inner.device.features().contains(needs) {
            return encode(encoder, None);
        }
        let (at, (queries, passes)) = loop {
            let taken = timed.last_mut().and_then(|(queries, _)| queries.take());
            if let Some(found) = taken.zip(timed.last_mut()) {
                break found;
            }
            timed.push((inner.queries(), Vec::new()));
        };
        let (submission, encoded) =
            inner.events.submit_as(inner.call(call, kind), STREAM, || encode(encoder, Some((queries, at))));
        passes.push(Pass { submission, kind, name: name.to_owned() });
        encoded
    }

    /// Ends encoding; returns the queries to read after execution.
    pub(crate) fn finish(mut self) -> (CommandBuffer, Vec<(Queries, Vec<Pass>)>) {
        self.timed.iter().for_each(|(queries, _)| queries.resolve(&mut self.encoder));
        (self.encoder.finish(), self.timed)
    }
}

impl Inner {
    /// Returns the name of the host's row.
    fn call<'c>(&self, call: &'c str, kind: ActivityType) -> &'c str {
        match kind {
            _ if !self.as_cuda => call,
            ActivityType::GpuMemcpy => "cudaMemcpyAsync",
            ActivityType::GpuMemset => "cudaMemsetAsync",
            _ => "cudaLaunchKernel",
        }
    }
}
