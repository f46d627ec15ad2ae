//! See [`anneal_fuzz::renderers`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| anneal_fuzz::renderers::check(data));
