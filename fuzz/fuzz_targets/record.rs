#![no_main]
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| troupemq_codec::fuzzing::record(bytes));
