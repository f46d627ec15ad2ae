//! The beginning of a digest, which identifies conversations, requests and files.

use anneal_core::digest::Digest;

/// Identifies a conversation across runs: the beginning of a digest.
pub(super) type Key = [u8; 16];

/// The beginning of a digest.
pub(super) fn digest_prefix(digest: &Digest) -> Key {
    std::array::from_fn(|place| digest[place])
}

/// The first 16 bytes as 32 hex digits.
pub(super) fn hex(bytes: &[u8]) -> String {
    hex::encode(&bytes[..16])
}
