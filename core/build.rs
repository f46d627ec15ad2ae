//! Writes the tokenizers' tables for `src/tokens/tables.rs`: those that `bpe-openai` builds,
//! compressed. As that crate embeds them, they take 47 MB of the program file; compressed 19 MB.

use std::{env, fs, path::PathBuf};

/// As small as zstd makes them; both take 23 seconds to write.
const RELEASE_LEVEL: i32 = 19;
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
        let tables = rmp_serde::to_vec(&tokenizer.bpe).expect("the tables can be serialised");
        let compressed = zstd::encode_all(tables.as_slice(), level).expect("memory is no file");
        fs::write(folder.join(format!("{name}.zst")), compressed)
            .expect("OUT_DIR can be written to");
    }
}
