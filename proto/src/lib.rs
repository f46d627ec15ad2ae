//! The gRPC interface of anneal. The `.proto` files in this crate's folder are the reference.
//! Generated code is not in git.
//!
//! - `v1`: the generated types
//! - `convert/`: conversions between them and the domain
//! - `codec.rs`: refuses requests with too many fields or entries before they are decoded

pub mod codec;
pub mod convert;

/// Package `anneal.v1`.
#[expect(
    missing_docs,
    clippy::pedantic,
    clippy::large_enum_variant,
    reason = "generated code; the .proto files have the documentation"
)]
pub mod v1 {
    tonic::include_proto!("anneal.v1");
}

/// The encoded file descriptor set, for server reflection.
pub const DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/anneal.bin"));
