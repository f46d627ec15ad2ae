//! What the estimate remembers of a vocabulary: which short pieces are one token, and what a character costs alone.

use super::Encoding;

/// Bytes of the piece filter. It divides into words of 64 bits, of which a piece sets [`MARKS`] bits.
const FILTER_BYTES: usize = 1 << 17;

/// Code points with a cost of their own: up to the end of the emoji. What lies above is rare and costs
/// [`RARE_CHARACTER`].
const CHARACTERS: usize = 0x1_FC00;

/// Tokens of a character above [`CHARACTERS`]: one for each of its bytes.
const RARE_CHARACTER: u32 = 4;

/// Bits that a piece sets: so that about 2 % of other pieces seem to be known.
const MARKS: u32 = 4;

/// Longest piece that is remembered.
const PIECE_BYTES: usize = 16;

/// From this length on, a piece sets the bits of two hashes.
const LONG_PIECE_BYTES: usize = 6;

/// Most characters of a remembered piece that is not ASCII.
pub(super) const WIDE_CHARACTERS: usize = 2;

/// Characters per byte of the table of costs.
const PER_BYTE: usize = 4;

const FILE_BYTES: usize = FILTER_BYTES + CHARACTERS / PER_BYTE;

static O200K_BASE: Sketch = Sketch(include_bytes!("sketch/o200k_base.bin"));
static CL100K_BASE: Sketch = Sketch(include_bytes!("sketch/cl100k_base.bin"));

/// About 160 kB drawn from a vocabulary of 100,000 or 200,000 tokens: a filter that knows its commonest short pieces
/// (and takes a few others for one of them), and the cost of each character.
pub(super) struct Sketch(&'static [u8; FILE_BYTES]);

impl Sketch {
    pub(super) const fn of(encoding: Encoding) -> &'static Self {
        match encoding {
            Encoding::O200kBase => &O200K_BASE,
            Encoding::Cl100kBase => &CL100K_BASE,
        }
    }

    /// Whether a piece of this hash and length in bytes is one token, as far as is remembered.
    ///
    /// A piece taken wrongly hides about half as many tokens as it has bytes, so long ones have to agree in two hashes.
    #[inline]
    pub(super) fn knows(&self, hash: Hash, len: usize) -> bool {
        len <= PIECE_BYTES && self.has(hash) && (len < LONG_PIECE_BYTES || self.has(hash.with(0)))
    }

    /// Whether some characters that are not ASCII are one token, as far as is remembered. Always asked in two hashes,
    /// because of such a text every stretch is asked for.
    #[inline]
    pub(super) fn knows_wide(&self, hash: Hash) -> bool {
        self.has(hash) && self.has(hash.with(0))
    }

    #[inline]
    fn has(&self, hash: Hash) -> bool {
        let (place, marks) = hash.place();
        let word = self.0[place..place + 8].iter().rev().fold(0, |word, byte| (word << 8) | u64::from(*byte));
        word & marks == marks
    }

    /// Tokens of the character on its own: 1 to 4.
    #[inline]
    pub(super) fn cost(&self, character: char) -> u32 {
        let place = character as usize;
        if place >= CHARACTERS {
            return RARE_CHARACTER;
        }
        let packed = self.0[FILTER_BYTES + place / PER_BYTE];
        u32::from(packed >> (place % PER_BYTE * 2) & 3) + 1
    }
}

/// Hash of a piece, grown byte by byte.
#[derive(Clone, Copy)]
pub(super) struct Hash(u64);

impl Hash {
    /// Not 0, of which NUL bytes would make 0 again.
    pub(super) const EMPTY: Self = Self(0x9e37_79b9_7f4a_7c15);

    #[inline]
    pub(super) const fn with(self, byte: u8) -> Self {
        Self((self.0.rotate_left(5) ^ byte as u64).wrapping_mul(0x517c_c1b7_2722_0a95))
    }

    pub(super) fn of(bytes: &[u8]) -> Self {
        bytes.iter().fold(Self::EMPTY, |hash, byte| hash.with(*byte))
    }

    /// Where the filter's word of this hash starts, and which of its bits the hash sets.
    #[inline]
    const fn place(self) -> (usize, u64) {
        let mixed = self.0 ^ (self.0 >> 32);
        let place = (mixed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 44) as usize % (FILTER_BYTES / 8) * 8;
        let mut marks = 0;
        let mut at = 0;
        while at < MARKS {
            marks |= 1 << ((self.0 >> (58 - 6 * at)) & 63);
            at += 1;
        }
        (place, marks)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Most pieces that are remembered, by the bytes of their first character: those of the lowest rank, which are the
    /// commonest. Chinese, Japanese and Korean have three.
    const PIECES: [usize; 5] = [0, 38_000, 4_000, 12_000, 1_000];

    /// Whether the estimate asks for pieces of this shape: one word of one case after at most one other ASCII
    /// character; a run of punctuation; or a few characters that are not ASCII.
    fn is_asked_for(token: &str) -> bool {
        if (2..=WIDE_CHARACTERS).contains(&token.chars().count()) && token.chars().all(|c| !c.is_ascii()) {
            return true;
        }
        if token.len() > PIECE_BYTES || !token.is_ascii() || token.len() < 2 {
            return false;
        }
        let first_is_letter = token.as_bytes()[0].is_ascii_alphabetic();
        let (first, rest) = token.split_at(usize::from(!first_is_letter));
        let word = !first.starts_with(|c: char| c.is_ascii_digit() || c == '\n' || c == '\r')
            && rest.bytes().all(|b| b.is_ascii_alphabetic())
            && (rest[1.min(rest.len())..].bytes().all(|b| b.is_ascii_lowercase())
                || rest.bytes().all(|b| b.is_ascii_uppercase()));
        let marks = token.strip_prefix(' ').unwrap_or(token).trim_end_matches(['\r', '\n']);
        let marks = !marks.is_empty() && marks.bytes().all(|b| b.is_ascii_punctuation());
        word || marks
    }

    /// The sketch as the vocabulary has it.
    fn draw(encoding: Encoding) -> Vec<u8> {
        let counter = encoding.counter();
        let bpe = &counter.tokenizer.bpe;
        let tokens = (0..bpe.num_tokens() as u32).filter_map(|token| std::str::from_utf8(bpe.token_bytes(token)).ok());
        let mut file = vec![0_u8; FILE_BYTES];
        let mut left = PIECES;
        for piece in tokens.filter(|token| is_asked_for(token)) {
            let kind = &mut left[piece.chars().next().map_or(0, char::len_utf8)];
            if *kind == 0 {
                continue;
            }
            *kind -= 1;
            let hash = Hash::of(piece.as_bytes());
            set(&mut file, hash);
            if piece.len() >= LONG_PIECE_BYTES || !piece.is_ascii() {
                set(&mut file, hash.with(0));
            }
        }
        for character in (0..CHARACTERS as u32).filter_map(char::from_u32) {
            let cost = bpe.count(character.encode_utf8(&mut [0; 4]).as_bytes()).clamp(1, 4) as u8 - 1;
            let place = character as usize;
            file[FILTER_BYTES + place / PER_BYTE] |= cost << (place % PER_BYTE * 2);
        }
        file
    }

    fn set(file: &mut [u8], hash: Hash) {
        let (place, marks) = hash.place();
        for (byte, mark) in file[place..].iter_mut().zip(marks.to_le_bytes()) {
            *byte |= mark;
        }
    }

    /// Draws them anew when ANNEAL_DRAW_SKETCHES is set, as is needed after a change to what is asked for.
    #[test]
    fn the_sketches_are_what_the_vocabularies_say() {
        for encoding in Encoding::ALL {
            let drawn = draw(encoding);
            if std::env::var_os("ANNEAL_DRAW_SKETCHES").is_some() {
                let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src/tokens/sketch");
                std::fs::write(format!("{folder}/{}.bin", encoding.name()), &drawn).expect("the folder is writable");
            } else {
                assert!(drawn == Sketch::of(encoding).0, "{}: run with ANNEAL_DRAW_SKETCHES=1", encoding.name());
            }
        }
    }
}
