//! Reads any text as a configuration file.
#![no_main]

libfuzzer_sys::fuzz_target!(|text: &str| tracing_kineto::fuzzing::read_configuration(text));
