#![no_main]
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| troupemq_store::testing::recover_from(bytes));
