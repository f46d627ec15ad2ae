//! Compiles proto/anneal/v1 without protoc: protox parses, tonic-prost-build writes Rust code into
//! OUT_DIR.

use std::{env, error::Error, fs, path::Path};

use prost::Message as _;

/// The files to compile. They import the others.
const FILES: [&str; 8] = [
    "anneal/v1/chat_options.proto",
    "anneal/v1/chat_service.proto",
    "anneal/v1/conversation_service.proto",
    "anneal/v1/message_service.proto",
    "anneal/v1/context_service.proto",
    "anneal/v1/erasure_service.proto",
    "anneal/v1/operator_service.proto",
    "anneal/v1/usage.proto",
];

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=anneal");
    let descriptors = protox::compile(FILES, ["."])?;
    let out = env::var("OUT_DIR")?;
    fs::write(
        Path::new(&out).join("anneal.bin"),
        descriptors.encode_to_vec(),
    )?;
    let mut config = tonic_prost_build::Config::new();
    config.enable_type_names();
    tonic_prost_build::configure()
        .codec_path("crate::codec::BoundedCodec")
        .compile_fds_with_config(descriptors, config)?;
    Ok(())
}
