//! See [`anneal_fuzz::summaries`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| anneal_fuzz::summaries::check(data));
