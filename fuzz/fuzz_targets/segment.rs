//! Reads any bytes as a segment, and makes a file of what was read.
#![no_main]

use tracing_kineto::{Format, Trace};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    if let Ok(segment) = Trace::read_segment_from(bytes, "fuzzed.kseg") {
        let _can_lack_memory = segment.trace.write(std::io::sink(), Format::Json);
    }
});
