//! NVTX: spans as ranges for tools such as Nsight Systems.

mod client;
mod message;

use super::{ObservedSpan, SpanObserver};
use client::{Client, NvtxRange};
use kineto_devices::Unavailable;
use kineto_model::activity::{ActivityType, ArgValue};
use std::cell::Cell;
use std::path::PathBuf;
use std::sync::OnceLock;

/// Pushes and pops NVTX ranges.
///
/// A range's text is torch's (`nvtx_observer.cpp`): the name, `seq`, `op_id` and `sizes`. Its category is the span's activity
/// type. Its colour is the field `nvtx.color`, else derived from the span's target. Its payload is the field `nvtx.payload`.
#[derive(Debug)]
pub(crate) struct Nvtx {
    /// The library of the tool. `NVTX_INJECTION64_PATH`.
    injection: Option<PathBuf>,
    client: OnceLock<Result<Client, Unavailable>>,
}

thread_local! {
    /// Whether the thread has passed its name to the tool.
    static NAMED: Cell<bool> = const { Cell::new(false) };
}

impl Nvtx {
    pub(crate) fn new(injection: Option<PathBuf>) -> Nvtx {
        Nvtx { injection, client: OnceLock::new() }
    }

    fn client(&self) -> Option<&Client> {
        self.client.get().and_then(|client| client.as_ref().ok())
    }
}

impl SpanObserver for Nvtx {
    fn name(&self) -> &'static str {
        "nvtx"
    }

    fn start(&self) -> Result<(), Unavailable> {
        let client = self.client.get_or_init(|| {
            let client = Client::open(self.injection.as_deref())?;
            for kind in ActivityType::ALL.iter().copied().filter(|kind| kind.is_cpu()) {
                client.name_category(category_of(kind), kind.as_str());
            }
            Ok(client)
        });
        client.as_ref().map(|_| ()).map_err(Clone::clone)
    }

    fn enter(&self, span: &ObservedSpan) {
        let Some(client) = self.client() else { return };
        if NAMED.try_with(|named| named.replace(true)) == Ok(false) {
            client.name_thread();
        }
        client.push_range(&range_of(span));
    }

    fn exit(&self, _: &ObservedSpan) {
        if let Some(client) = self.client() {
            client.pop_range();
        }
    }

    fn event(&self, event: &ObservedSpan) {
        if let Some(client) = self.client() {
            client.mark_point(&range_of(event));
        }
    }
}

/// Returns the category of a kind; NVTX reserves 0 for "none".
fn category_of(kind: ActivityType) -> u32 {
    u32::from(kind as u8) + 1
}

fn range_of(span: &ObservedSpan) -> NvtxRange<'_> {
    let color = match span.field("nvtx.color") {
        Some(ArgValue::U64(color)) => u32::try_from(color).ok(),
        Some(ArgValue::I64(color)) => u32::try_from(color).ok(),
        Some(ArgValue::Str(text)) => named_color(text),
        _ => None,
    };
    let color = color.unwrap_or_else(|| color_of(span.metadata().target()));
    NvtxRange {
        text: message::range_text(span),
        category: category_of(span.kind()),
        argb: 0xff00_0000 | color,
        payload: span.field("nvtx.payload"),
    }
}

/// Parses a colour such as "#ff8800" or "green".
fn named_color(text: &str) -> Option<u32> {
    const NAMES: [(&str, u32); 9] = [
        ("red", 0xff_0000),
        ("green", 0x00_ff00),
        ("blue", 0x00_00ff),
        ("yellow", 0xff_ff00),
        ("magenta", 0xff_00ff),
        ("cyan", 0x00_ffff),
        ("orange", 0xff_a500),
        ("purple", 0x80_0080),
        ("white", 0xff_ffff),
    ];
    let hex = text.strip_prefix('#').or_else(|| text.strip_prefix("0x"));
    hex.map_or_else(
        || NAMES.iter().find(|(name, _)| name.eq_ignore_ascii_case(text)).map(|(_, rgb)| *rgb),
        |hex| u32::from_str_radix(hex, 16).ok(),
    )
}

/// Returns a colour for a target: neither dark nor pale, the same in each run.
fn color_of(target: &str) -> u32 {
    // FNV-1a.
    let hash = target.bytes().fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    let channel = |shift: u32| 0x40 + (hash >> shift & 0xff) / 2;
    channel(0) << 16 | channel(8) << 8 | channel(16)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_are_parsed_and_derived() {
        assert_eq!(named_color("#ff8800"), Some(0xff_8800));
        assert_eq!((named_color("Green"), named_color("#no"), named_color("no")), (Some(0x00_ff00), None, None));
        assert_eq!(color_of("a::b"), color_of("a::b"));
        assert_ne!(color_of("a::b"), color_of("a::c"));
        assert!((0x40..0xc0).contains(&(color_of("a") >> 16)) && color_of("a") >> 24 == 0);
    }

    #[test]
    fn categories_are_never_zero() {
        assert_eq!(category_of(ActivityType::CpuOp), 1);
    }
}
