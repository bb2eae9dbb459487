#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| caldera_fuzz_checks::quantity::check_input(bytes));
