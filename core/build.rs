//! Writes the tokenizers' tables for `src/tokens/tables.rs`: the tables that `bpe-openai` builds,
//! compressed. In a release they add 19 MB to the program file. The form in which that crate embeds
//! them adds 47 MB.

use std::{env, fs, path::PathBuf};

/// zstd's levels 20 to 22 make smaller tables, but need much more memory. Level 19 writes both
/// tables in 23 seconds.
const RELEASE_LEVEL: i32 = 19;
/// A fast level: debug builds are made often, and their size does not matter.
const DEBUG_LEVEL: i32 = 1;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let folder = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let is_release = env::var("PROFILE").is_ok_and(|profile| profile == "release");
    let level = if is_release {
        RELEASE_LEVEL
    } else {
        DEBUG_LEVEL
    };
    for (name, tokenizer) in [
        ("o200k_base", bpe_openai::o200k_base()),
        ("cl100k_base", bpe_openai::cl100k_base()),
    ] {
        let tables = rmp_serde::to_vec(&tokenizer.bpe).expect("the tables can be serialized");
        let compressed = zstd::encode_all(tables.as_slice(), level)
            .expect("compressing into memory cannot fail");
        fs::write(folder.join(format!("{name}.zst")), compressed)
            .expect("OUT_DIR can be written to");
    }
}
