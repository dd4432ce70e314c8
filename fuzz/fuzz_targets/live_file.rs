//! Reads any bytes as a live file, as the kernel keeps it for a process that was killed, and makes a file of what was read.
#![no_main]

use tracing_kineto::{Format, Trace};

const MAGIC: &[u8] = b"KINELIVE";

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let bytes = [MAGIC, bytes.strip_prefix(MAGIC).unwrap_or(bytes)].concat();
    if let Ok(segment) = Trace::read_segment_from(&bytes[..], "fuzzed.live") {
        let _can_lack_memory = segment.trace.write(std::io::sink(), Format::Json);
    }
});
