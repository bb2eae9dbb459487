#![no_main]

libfuzzer_sys::fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, seed: u32| {
    caldera_fuzz::json::mutate(data, size, max_size, seed, 0)
});

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| caldera_fuzz_checks::selector::check_input(bytes));
