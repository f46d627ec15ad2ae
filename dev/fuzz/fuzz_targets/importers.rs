//! See [`anneal_fuzz::importers`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| anneal_fuzz::importers::check(data));
