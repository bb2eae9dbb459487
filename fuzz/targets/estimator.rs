#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| caldera_fuzz_checks::estimator::check_input(bytes));
