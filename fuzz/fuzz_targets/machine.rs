#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| shootdown_fuzz::check("machine", bytes));
