//! The tokenizers of both encodings, built from the compressed tables that `build.rs` writes.

use bpe::byte_pair_encoding::BytePairEncoding;
use bpe_openai::Tokenizer;

use super::Encoding;

const O200K_BASE: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/o200k_base.zst"));
const CL100K_BASE: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/cl100k_base.zst"));

/// Patterns that split a text into pieces, in order of precedence, as `bpe-openai` has them. The
/// flag says that the last character of a match belongs to the next piece.
type Patterns = [(&'static str, bool); 3];

const O200K_PATTERNS: Patterns = [
    (
        concat!(
            r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
            r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
            r"|\p{N}{1,3}",
            r"| ?[^\s\p{L}\p{N}]+[\r\n/]*",
            r"|\s*[\r\n]+",
            r"|\s+$",
        ),
        false,
    ),
    (r"\s+\s", true),
    (r"\s+", false),
];
const CL100K_PATTERNS: Patterns = [
    (
        concat!(
            r"(?i:'s|'t|'re|'ve|'m|'ll|'d)",
            r"|[^\r\n\p{L}\p{N}]?\p{L}+",
            r"|\p{N}{1,3}",
            r"| ?[^\s\p{L}\p{N}]+[\r\n]*",
            r"|\s*[\r\n]+",
            r"|\s+$",
        ),
        false,
    ),
    (r"\s+\s", true),
    (r"\s+", false),
];

/// Builds the tokenizer of an encoding.
pub(super) fn tokenizer(encoding: Encoding) -> Tokenizer {
    let (compressed, patterns) = match encoding {
        Encoding::O200kBase => (O200K_BASE, O200K_PATTERNS),
        Encoding::Cl100kBase => (CL100K_BASE, CL100K_PATTERNS),
    };
    let tables = zstd::decode_all(compressed).expect("build.rs has compressed it");
    let bpe: BytePairEncoding = rmp_serde::from_slice(&tables).expect("build.rs has serialized it");
    Tokenizer::new_lookahead(bpe, &patterns, false).expect("the patterns are valid")
}
