//! The beginning of a digest, which identifies conversations, requests and files.

use anneal_core::digest::Digest;

/// The beginning of a digest, as a key that identifies a conversation or a content in every run.
pub(super) type Key = [u8; 16];

/// The first 16 bytes of a digest.
pub(super) fn digest_prefix(digest: &Digest) -> Key {
    std::array::from_fn(|index| digest[index])
}

/// The first 16 bytes as 32 hex digits.
pub(super) fn hex_prefix(bytes: &[u8]) -> String {
    hex::encode(&bytes[..16])
}
