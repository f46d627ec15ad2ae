//! A sketch of a vocabulary, from which tokens are estimated: which short pieces of text are one
//! token, and how many tokens a single character has.

use super::Encoding;

/// Bytes of the piece filter. It consists of 64-bit words. A hash of a piece sets [`BITS_PER_HASH`]
/// bits of one word.
const FILTER_BYTES: usize = 1 << 18;

/// Number of code points with a stored cost: up to the end of the emoji. Higher ones are rare and
/// cost [`RARE_CHARACTER`].
const CHARACTERS: usize = 0x1_FC00;

/// Tokens of a character above [`CHARACTERS`]: one for each of its bytes.
const RARE_CHARACTER: u32 = 4;

/// Bits that a hash sets. With this number the filter reports about 2 % of other pieces as known.
const BITS_PER_HASH: u32 = 4;

/// Longest ASCII piece in the filter, in bytes.
const MAX_PIECE_BYTES: usize = 16;

/// Longest piece in the filter that holds a wide letter, in bytes: twelve Cyrillic letters, or
/// eight Korean ones.
const MAX_WIDE_PIECE_BYTES: usize = 24;

/// From this length on, in bytes, a piece sets the bits of two hashes: its own, and that of the
/// piece with a NUL byte after it.
const LONG_PIECE_BYTES: usize = 6;

/// Most characters of a piece in the filter that has no letter of a word, such as Chinese ones.
pub(super) const MAX_WIDE_CHARACTERS: usize = 2;

/// Characters whose costs one byte of the table holds: two bits for each, which are its cost less
/// one.
const PER_BYTE: usize = 4;

const FILE_BYTES: usize = FILTER_BYTES + CHARACTERS / PER_BYTE;

static O200K_BASE: Sketch = Sketch(include_bytes!("sketch/o200k_base.bin"));
static CL100K_BASE: Sketch = Sketch(include_bytes!("sketch/cl100k_base.bin"));

/// About 300 kB derived from a vocabulary of 100,000 or 200,000 tokens: a filter of its most common
/// short pieces, with some false positives, and the cost of each character.
pub(super) struct Sketch(&'static [u8; FILE_BYTES]);

impl Sketch {
    pub(super) const fn of(encoding: Encoding) -> &'static Self {
        match encoding {
            Encoding::O200kBase => &O200K_BASE,
            Encoding::Cl100kBase => &CL100K_BASE,
        }
    }

    /// Whether a piece of this hash and length in bytes is one token, according to the filter.
    ///
    /// A false positive hides about half as many tokens as the piece has bytes, so long pieces must
    /// match in two hashes.
    #[inline]
    pub(super) fn contains(&self, hash: PieceHash, len: usize) -> bool {
        len <= MAX_PIECE_BYTES
            && self.has(hash)
            && (len < LONG_PIECE_BYTES || self.has(hash.with(0)))
    }

    /// Whether a piece with a non-ASCII character is one token, according to the filter. It must
    /// always match in two hashes, because every stretch of such a text is looked up.
    #[inline]
    pub(super) fn contains_wide(&self, hash: PieceHash, len: usize) -> bool {
        len <= MAX_WIDE_PIECE_BYTES && self.has(hash) && self.has(hash.with(0))
    }

    #[inline]
    fn has(&self, hash: PieceHash) -> bool {
        let (at, bits) = hash.word_and_bits();
        let word = self.0[at..at + 8]
            .iter()
            .rev()
            .fold(0, |word, byte| (word << 8) | u64::from(*byte));
        word & bits == bits
    }

    /// Tokens of a single character: 1 to 4.
    #[inline]
    pub(super) fn cost(&self, character: char) -> u32 {
        let code_point = character as usize;
        if code_point >= CHARACTERS {
            return RARE_CHARACTER;
        }
        let packed = self.0[FILTER_BYTES + code_point / PER_BYTE];
        u32::from(packed >> (code_point % PER_BYTE * 2) & 3) + 1
    }
}

/// Hash of a piece, extended byte by byte.
#[derive(Clone, Copy)]
pub(super) struct PieceHash(u64);

impl PieceHash {
    /// Not 0, because NUL bytes would leave a hash of 0 unchanged.
    pub(super) const EMPTY: Self = Self(0x9e37_79b9_7f4a_7c15);

    #[inline]
    pub(super) const fn with(self, byte: u8) -> Self {
        Self((self.0.rotate_left(5) ^ byte as u64).wrapping_mul(0x517c_c1b7_2722_0a95))
    }

    /// The hash of the piece with these bytes after it.
    #[inline]
    pub(super) fn with_all(self, bytes: &[u8]) -> Self {
        bytes.iter().fold(self, |hash, byte| hash.with(*byte))
    }

    pub(super) fn of(bytes: &[u8]) -> Self {
        Self::EMPTY.with_all(bytes)
    }

    /// Byte offset of the filter's word for this hash, and the bits that the hash sets in it.
    #[inline]
    const fn word_and_bits(self) -> (usize, u64) {
        let mixed = self.0 ^ (self.0 >> 32);
        let fraction = mixed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        let at = ((fraction * (FILTER_BYTES as u64 / 8)) >> 32) as usize * 8;
        // Each six bits of the hash, from its highest bit on, are the number of a bit to set.
        let mut bits = 0;
        let mut nth = 0;
        while nth < BITS_PER_HASH {
            bits |= 1 << ((self.0 >> (58 - 6 * nth)) & 63);
            nth += 1;
        }
        (at, bits)
    }
}

/// The length in bytes of the wide letter with which the text begins; 0: it begins with none. These
/// are the letters outside of ASCII that form words: Latin ones (U+00C0 to U+027F, with two signs
/// among them), Cyrillic ones (U+0400 to U+053F) and Korean syllables.
#[inline]
pub(super) const fn wide_letter_len(text: &[u8]) -> usize {
    match text {
        [0xC3..=0xC9 | 0xD0..=0xD4, _, ..] => 2,
        [0xEA, 0xB0..=0xBF, _, ..] | [0xEB | 0xEC, _, _, ..] | [0xED, 0x80..=0x9E, _, ..] => 3,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Most pieces in the filter: first those of words with wide letters, then the others by the
    /// byte length of their first character. Pieces of the lowest rank are kept, which are the most
    /// common. Chinese and Japanese characters have three bytes.
    const PIECES: [usize; 5] = [30_000, 38_000, 4_000, 12_000, 1_000];

    /// Whether the estimate looks up pieces of this shape: a part of a word with a wide letter,
    /// lowercase or capitalized, perhaps after a blank.
    fn is_wide_word(token: &str) -> bool {
        let word = token.strip_prefix(' ').unwrap_or(token);
        let is_letter = |letter: char| {
            letter.is_ascii_alphabetic()
                || wide_letter_len(letter.encode_utf8(&mut [0; 4]).as_bytes()) > 0
        };
        token.len() <= MAX_WIDE_PIECE_BYTES
            && token.chars().count() >= 2
            && !word.is_ascii()
            && word.chars().all(is_letter)
            && word
                .chars()
                .skip(1)
                .all(|letter| !letter.is_ascii_uppercase())
    }

    /// The place in [`PIECES`] of the pieces among which this one is. None: the estimate looks up
    /// no piece of this shape.
    fn kind(token: &str) -> Option<usize> {
        if is_wide_word(token) {
            return Some(0);
        }
        is_looked_up(token).then(|| token.chars().next().map_or(0, char::len_utf8))
    }

    /// Whether the estimate looks up pieces of this shape, other than [`is_wide_word`]: one word,
    /// lowercase, capitalized or uppercase, after at most one other ASCII character; a run of
    /// punctuation, perhaps after a blank and before line ends; or two to [`MAX_WIDE_CHARACTERS`]
    /// non-ASCII characters.
    fn is_looked_up(token: &str) -> bool {
        if (2..=MAX_WIDE_CHARACTERS).contains(&token.chars().count())
            && token.chars().all(|c| !c.is_ascii())
        {
            return true;
        }
        if token.len() > MAX_PIECE_BYTES || !token.is_ascii() || token.len() < 2 {
            return false;
        }
        let first_is_letter = token.as_bytes()[0].is_ascii_alphabetic();
        let (first, rest) = token.split_at(usize::from(!first_is_letter));
        let is_word = !first.starts_with(|c: char| c.is_ascii_digit() || c == '\n' || c == '\r')
            && rest.bytes().all(|b| b.is_ascii_alphabetic())
            && (rest[1.min(rest.len())..]
                .bytes()
                .all(|b| b.is_ascii_lowercase())
                || rest.bytes().all(|b| b.is_ascii_uppercase()));
        let marks = token
            .strip_prefix(' ')
            .unwrap_or(token)
            .trim_end_matches(['\r', '\n']);
        let is_punctuation = !marks.is_empty() && marks.bytes().all(|b| b.is_ascii_punctuation());
        is_word || is_punctuation
    }

    /// The sketch computed from the vocabulary.
    fn compute_sketch(encoding: Encoding) -> Vec<u8> {
        let counter = encoding.counter();
        let bpe = &counter.tokenizer.bpe;
        let tokens = (0..bpe.num_tokens() as u32)
            .filter_map(|token| std::str::from_utf8(bpe.token_bytes(token)).ok());
        let mut file = vec![0_u8; FILE_BYTES];
        let mut remaining = PIECES;
        for (piece, kind) in tokens.filter_map(|token| Some((token, kind(token)?))) {
            let remaining_of_kind = &mut remaining[kind];
            if *remaining_of_kind == 0 {
                continue;
            }
            *remaining_of_kind -= 1;
            let hash = PieceHash::of(piece.as_bytes());
            set(&mut file, hash);
            if piece.len() >= LONG_PIECE_BYTES || !piece.is_ascii() {
                set(&mut file, hash.with(0));
            }
        }
        for character in (0..CHARACTERS as u32).filter_map(char::from_u32) {
            let cost = bpe
                .count(character.encode_utf8(&mut [0; 4]).as_bytes())
                .clamp(1, 4) as u8
                - 1;
            let code_point = character as usize;
            file[FILTER_BYTES + code_point / PER_BYTE] |= cost << (code_point % PER_BYTE * 2);
        }
        file
    }

    fn set(file: &mut [u8], hash: PieceHash) {
        let (at, bits) = hash.word_and_bits();
        for (byte, bits) in file[at..].iter_mut().zip(bits.to_le_bytes()) {
            *byte |= bits;
        }
    }

    /// With ANNEAL_DRAW_SKETCHES set, this writes the sketches anew instead of checking them. That
    /// is needed when other pieces are looked up than before.
    #[test]
    fn the_sketches_match_the_vocabularies() {
        for encoding in Encoding::ALL {
            let computed = compute_sketch(encoding);
            if std::env::var_os("ANNEAL_DRAW_SKETCHES").is_some() {
                let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src/tokens/sketch");
                std::fs::write(format!("{folder}/{}.bin", encoding.name()), &computed)
                    .expect("the folder is writable");
            } else {
                assert!(
                    computed == Sketch::of(encoding).0,
                    "{}: run with ANNEAL_DRAW_SKETCHES=1",
                    encoding.name()
                );
            }
        }
    }
}
