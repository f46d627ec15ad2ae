//! See [`anneal_fuzz::markdown`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| anneal_fuzz::markdown::check(data));
