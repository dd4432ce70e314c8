//! Reads any bytes as a buffer of activity records, each of the same length.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let whole = kineto_devices::read_cupti_buffer(bytes);
    assert!(whole.records.len() <= bytes.len());
});
