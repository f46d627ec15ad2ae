//! See [`anneal_fuzz::doors`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| anneal_fuzz::doors::check(data));
