//! The gRPC interface of anneal. The `.proto` files in this crate's folder are the reference.
//! Generated code is not in git.

pub mod codec;

/// Package `anneal.v1`.
#[expect(
    missing_docs,
    clippy::pedantic,
    reason = "generated code; the .proto files have the documentation"
)]
pub mod v1 {
    tonic::include_proto!("anneal.v1");
}

/// The encoded file descriptor set, for server reflection.
pub const DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/anneal.bin"));
