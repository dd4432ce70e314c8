//! Reads any bytes as a trace in Perfetto's format, packet by packet.
#![no_main]

use kineto_trace::analysis::Events;

/// A packet with a clock snapshot's tag: the reader tells the formats apart by the first byte.
const FIRST: u8 = 0x0a;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let bytes = [&[FIRST], bytes].concat();
    if let Ok(events) = Events::from_reader(&bytes[..]) {
        assert!(events.iter().all(|event| event.start() <= event.end()));
    }
});
