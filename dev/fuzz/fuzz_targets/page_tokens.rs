//! See [`anneal_fuzz::page_tokens`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| anneal_fuzz::page_tokens::check(data));
