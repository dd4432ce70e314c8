//! NVTX mode with libcupti as the tool: its marker records, read as another profiler would.

use std::ffi::{CStr, c_char};
use support::cupti_client::{self, MARKER, MARKER_DATA, Record, of_kind};
use support::virtual_time;
use support::{child, cuda, name_of};
use tracing::{info, info_span, subscriber};
use tracing_kineto::{KinetoLayer, Mode, annotate};
use tracing_subscriber::layer::SubscriberExt;

#[virtual_time]
fn libcupti_receives_the_same_calls_as_other_tools() {
    let mut command = child::command(name_of(child_under_cupti));
    child::run(command.env("NVTX_INJECTION64_PATH", cuda::library("sim_cupti")));
}

/// Makes the same spans as `nvtx.rs`.
fn work() {
    let (layer, guard) =
        KinetoLayer::builder().no_output().mode(Mode::Nvtx).events(tracing_core::Level::INFO).build().unwrap();
    subscriber::with_default(tracing_subscriber::registry().with(layer), || {
        let _step = annotate!("ProfilerStep#{}", 1).entered();
        let matmul = info_span!("aten::mm", seq = 5, dims = "[[2, 3], [3, 4]]", nvtx.color = "#ff8800");
        matmul.in_scope(|| info!(nvtx.payload = 9_u64, "half way"));
    });
    assert!(guard.finish().unwrap().why_empty().unwrap().contains("excludes kineto"));
}

fn text(address: u64) -> String {
    let address = std::ptr::with_exposed_provenance::<c_char>(usize::try_from(address).unwrap());
    // SAFETY: the address is null or that of a C string that is never freed.
    #[allow(unsafe_code, reason = "a record holds the address of its text")]
    let text = (!address.is_null()).then(|| unsafe { CStr::from_ptr(address) });
    text.map(|text| text.to_str().unwrap().to_owned()).unwrap_or_default()
}

/// Formats a marker with its category, colour and payload, and its text without the span's number.
fn format_marker(marker: &Record, data: &[Record]) -> String {
    let what = ["mark", "push", "pop"][marker.u32(4).trailing_zeros() as usize];
    let details = data.iter().find(|data| data.u32(8) == marker.u32(16));
    let details = details.map(|data| format!(" {} {:08x} {}", data.u32(28), data.u32(24), data.u64(16)));
    let details = if what == "pop" { String::new() } else { details.unwrap_or_default() };
    let text = text(marker.u64(40));
    let (name, number) = text.split_once(", op_id = ").unwrap_or((&text, ""));
    format!("{what}{details} {name}{}", number.trim_start_matches(|character: char| character.is_ascii_digit()))
}

#[test]
#[ignore = "run by another test"]
fn child_under_cupti() {
    let versions = ["12.0", "12.9", "13.0", "13.4"];
    for version in versions {
        let _session = cupti_client::session(&format!("cupti={version},driver=13040"), &[MARKER, MARKER_DATA]);
        work();
        cupti_client::flush(true);
        let records = cupti_client::records();
        let (markers, data) = (of_kind(&records, MARKER), of_kind(&records, MARKER_DATA));
        let lines: Vec<_> = markers.iter().map(|marker| format_marker(marker, &data)).collect();
        let expected = [
            ("push 2 ff", " 0 ProfilerStep#1"),
            ("push 1 ffff8800 0 aten::mm, seq = 5, sizes = [[2, 3], [3, 4]]", ""),
            ("mark 1 ff", " 9 event tests/devices/cuda/nvtx_cupti.rs"),
            ("pop ", ""),
            ("pop ", ""),
        ];
        assert_eq!(lines.len(), expected.len(), "{version}: {lines:?}");
        for (lines, (begin, rest)) in lines.iter().zip(expected) {
            assert!(lines.starts_with(begin) && lines.contains(rest), "{version}: {lines}");
        }
        assert!(markers.iter().all(|marker| text(marker.u64(48)) == "tracing-kineto"), "{version}");
        assert_eq!(data.len(), 3, "{version}");
    }
}
