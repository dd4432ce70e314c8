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

/// So many frames at the end of a stack are this crate's and tracing's, which are not shown: three in a program that was
/// optimized, and one for some layers. Where there are more, a stack that is cut off is shorter.
const OWN_FRAMES: usize = if cfg!(debug_assertions) { 20 } else { 6 };
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
        let enter =
            |stack: &[u64]| self.retry(key, &ctx, hook, |lane| lane.enter_carefully(key, stack, &self.recorder));
        if has_stacks(key, &ctx, &hook) {
            let mut addresses = [0; FRAMES];
            enter(capture(&hook, &mut addresses));
        } else {
            enter(&[]);
        }
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

/// Whether slices of that span are to have a stack.
fn has_stacks<S>(key: u64, ctx: &Context<'_, S>, hook: &Hook<'_>) -> bool
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    let site = || ctx.metadata(&Id::from_u64(key)).map(|metadata| hook.site(metadata));
    hook.recorder.companions.frames > 0 && site().is_some_and(|site| site.has_stacks && site.is_recorded())
}

/// From where the thread comes; empty in the midst of another hook.
fn capture<'a>(hook: &Hook<'_>, addresses: &'a mut [u64; FRAMES]) -> &'a [u64] {
    // What the unwinder allocates is not the program's.
    let (Some(_busy), _own) = (Busy::begin(), Own::begin()) else { return &[] };
    let addresses = addresses.get_mut(..hook.recorder.companions.frames + OWN_FRAMES).unwrap_or_default();
    let count = backtrace::capture(addresses);
    addresses.get(..count).unwrap_or_default()
}
