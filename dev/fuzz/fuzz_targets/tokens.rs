//! See [`anneal_fuzz::tokens`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| anneal_fuzz::tokens::check(data));
