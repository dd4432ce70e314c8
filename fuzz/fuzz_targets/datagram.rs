//! Decodes a datagram of the daemon, and reads the request in it. A first byte of 0 means that the header is right.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    match bytes.split_first() {
        Some((0, payload)) => {
            let mut datagram = [0; 40];
            datagram[..8].copy_from_slice(&(payload.len() as u64).to_ne_bytes());
            datagram[8..11].copy_from_slice(b"req");
            tracing_kineto::fuzzing::read_datagram(&[&datagram, payload].concat());
        }
        _ => tracing_kineto::fuzzing::read_datagram(bytes),
    }
});
