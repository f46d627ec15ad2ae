//! See [`anneal_fuzz::requests`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| anneal_fuzz::requests::check(data));
