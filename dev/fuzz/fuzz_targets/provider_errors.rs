//! See [`anneal_fuzz::provider_errors`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| anneal_fuzz::provider_errors::check(data));
