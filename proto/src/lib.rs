//! The gRPC interface of anneal. The `.proto` files beside this crate are the reference; nothing generated is in git.

pub mod codec;

/// Package `anneal.v1`.
#[expect(missing_docs, clippy::pedantic, reason = "generated from the .proto files, which document themselves")]
pub mod v1 {
    tonic::include_proto!("anneal.v1");
}

/// The encoded file descriptor set, for server reflection.
pub const DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/anneal.bin"));
