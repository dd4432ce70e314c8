//! The hooks where slices have more than times: stacks, and what the processor has counted.

use super::home::Busy;
use super::{Hook, KinetoLayer};
use crate::buffer::{Head, Tag};
use crate::clock;
use crate::os::backtrace;
use crate::recorder::Companions;
use crate::recorder::listeners::Own;
use tracing_core::Subscriber;
use tracing_core::span::Id;
use tracing_subscriber::layer::Context;
use tracing_subscriber::registry::LookupSpan;

/// So many frames at the end of a stack are this crate's and tracing's, at most; they are not shown.
const OWN_FRAMES: usize = if cfg!(debug_assertions) { 20 } else { 12 };
/// The most frames that a walk up a stack has room for.
const FRAMES: usize = Companions::FRAMES_MAX + OWN_FRAMES;

impl KinetoLayer {
    /// Enters a span: from where, then what has been counted, then the clock.
    #[inline(never)]
    pub(super) fn enter_accompanied<S>(&self, key: u64, ctx: Context<'_, S>, epoch: u64)
    where
        S: Subscriber + for<'a> LookupSpan<'a>,
    {
        let hook = self.hook(epoch);
        let mut addresses = [0; FRAMES];
        let stack = stack(key, &ctx, &hook, &mut addresses);
        self.retry(key, &ctx, hook, |lane| lane.enter_carefully(key, stack, &self.recorder));
        hook.take_back();
    }

    /// Leaves a span: the clock, then what has been counted.
    #[inline(never)]
    pub(super) fn leave_counted<S>(&self, key: u64, ctx: Context<'_, S>, epoch: u64)
    where
        S: Subscriber + for<'a> LookupSpan<'a>,
    {
        let (end, hook) = (clock::now(), self.hook(epoch));
        let counted = hook.with(|lane| Ok(lane.counted(key))).flatten();
        self.leave_carefully(key, end, &ctx, hook);
        if let Some((slice, reading)) = counted {
            hook.put(Head::new(Tag::Counts, 0, 0), [slice, 0, 0], reading.words());
        }
    }
}

/// From where the thread enters a span; empty if its callsite is to have no stacks.
fn stack<'a, S>(key: u64, ctx: &Context<'_, S>, hook: &Hook<'_>, addresses: &'a mut [u64; FRAMES]) -> &'a [u64]
where
    S: Subscriber + for<'s> LookupSpan<'s>,
{
    let wanted = hook.recorder.companions.frames;
    let has_stacks = |id| ctx.metadata(id).map(|metadata| hook.site(metadata)).is_some_and(|site| site.has_stacks);
    if wanted == 0 || !has_stacks(&Id::from_u64(key)) {
        return &[];
    }
    // What the unwinder allocates is not the program's.
    let (Some(_busy), _own) = (Busy::begin(), Own::begin()) else { return &[] };
    let addresses = addresses.get_mut(..wanted + OWN_FRAMES).unwrap_or_default();
    let count = backtrace::capture(addresses);
    addresses.get(..count).unwrap_or_default()
}
