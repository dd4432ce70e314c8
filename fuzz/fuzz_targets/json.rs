//! Reads any bytes as a trace; what can be read is written as JSON and read again, with as many events.
#![no_main]

use kineto_trace::Format;
use kineto_trace::analysis::Events;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Ok(events) = Events::from_reader(bytes) else { return };
    let mut text = Vec::new();
    events.write(&mut text, Format::Json).expect("memory takes all bytes");
    let again = Events::from_reader(&text[..]).expect("JSON of this library is read");
    assert_eq!(events.iter().count(), again.iter().count());
});
