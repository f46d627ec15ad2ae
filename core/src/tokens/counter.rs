//! Exact token counts of text.

use std::sync::{LazyLock, OnceLock};

use bpe::appendable_encoder::AppendableEncoder;
use bpe_openai::Tokenizer;
use rustc_hash::FxHashSet;

use super::{Encoding, Tokens, tables};

/// Longest token of either vocabulary, in bytes: 128 spaces. A text of more than 128 n bytes
/// therefore has more than n tokens.
pub(super) const LONGEST_TOKEN_BYTES: usize = 128;

/// From this length on, in bytes, a run of one repeated byte is counted by its period (see
/// [`period`]) instead of token by token.
const RUN_BYTES: usize = 4096;

/// Fewest bytes of such a run that are still counted token by token. The period holds from 512
/// bytes on.
const RUN_HEAD_BYTES: usize = 1024;

/// Fewest bytes between two calls of `keep_going` in [`Counter::count_while`]. The slowest hostile
/// text takes 50 ms for them.
const BYTES_BETWEEN_CHECKS: usize = 64 * 1024;

static O200K_BASE: LazyLock<Counter> = LazyLock::new(|| Counter::load(Encoding::O200kBase));
static CL100K_BASE: LazyLock<Counter> = LazyLock::new(|| Counter::load(Encoding::Cl100kBase));

impl Encoding {
    /// The counter of this encoding. The first call builds it: decompressing the tables takes 65
    /// ms, the rest about 100 ms and 70 MB (`o200k_base`). A process that counts makes this call
    /// when it starts.
    pub fn counter(self) -> &'static Counter {
        match self {
            Self::O200kBase => &O200K_BASE,
            Self::Cl100kBase => &CL100K_BASE,
        }
    }

    /// Whether its counter has been built.
    pub fn is_loaded(self) -> bool {
        match self {
            Self::O200kBase => LazyLock::get(&O200K_BASE).is_some(),
            Self::Cl100kBase => LazyLock::get(&CL100K_BASE).is_some(),
        }
    }
}

/// Counts, truncates and chunks text by the tokens of one encoding, exactly as tiktoken counts
/// ordinary text.
///
/// Special-token strings (`<|endoftext|>`) count as ordinary text, so text cannot inject a special
/// token. Every method is linear in the length of the text, and none panics on any text.
pub struct Counter {
    pub(super) tokenizer: &'static Tokenizer,
    /// The bytes of every token. A piece in this set is one token. tiktoken too looks a piece up
    /// before it splits it.
    single_tokens: FxHashSet<&'static [u8]>,
    /// For each ASCII byte: how many more of it make one more token in a long run; 0 if there is no
    /// such number. Computed at the first long run of the byte, which takes a millisecond: all of
    /// them together take as long as building the tokenizer.
    period: [OnceLock<usize>; 128],
}

impl std::fmt::Debug for Counter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Counter")
            .field("tokens", &self.single_tokens.len())
            .finish_non_exhaustive()
    }
}

impl Counter {
    fn load(encoding: Encoding) -> Self {
        // The tokenizer lives as long as the process, because `single_tokens` refers to it.
        let tokenizer: &'static Tokenizer = Box::leak(Box::new(tables::tokenizer(encoding)));
        let vocabulary = tokenizer.bpe.num_tokens() as u32;
        let single_tokens = (0..vocabulary)
            .map(|token| tokenizer.bpe.token_bytes(token))
            .collect();
        Self {
            tokenizer,
            single_tokens,
            period: std::array::from_fn(|_| OnceLock::new()),
        }
    }

    /// Number of tokens of the text.
    pub fn count(&self, text: &str) -> Tokens {
        Tokens::new(self.pieces(text).map(|(_, tokens)| tokens as u64).sum())
    }

    /// Number of tokens of the text; `None` as soon as `keep_going` returns false.
    ///
    /// `keep_going` is called before the first piece and then about every 64 kB, between pieces.
    /// One piece (such as 40 MB of one letter) is not interrupted. The slowest known text counts at
    /// 1.4 MB per second.
    pub fn count_while(&self, text: &str, keep_going: &dyn Fn() -> bool) -> Option<Tokens> {
        let (mut tokens, mut bytes_since_check) = (0, BYTES_BETWEEN_CHECKS);
        for piece in self.tokenizer.split(text) {
            if bytes_since_check >= BYTES_BETWEEN_CHECKS {
                bytes_since_check = 0;
                if !keep_going() {
                    return None;
                }
            }
            bytes_since_check += piece.len();
            tokens += self.count_piece(piece.as_bytes()) as u64;
        }
        Some(Tokens::new(tokens))
    }

    /// Number of tokens of the text if that is at most `limit`, else `None`. Stops reading once
    /// `limit` is exceeded.
    pub fn count_up_to(&self, text: &str, limit: Tokens) -> Option<Tokens> {
        let mut tokens = Tokens::ZERO;
        if text.len().div_ceil(LONGEST_TOKEN_BYTES) as u64 > limit.get() {
            return None;
        }
        for (_, more) in self.pieces(text) {
            tokens += Tokens::new(more as u64);
            if tokens > limit {
                return None;
            }
        }
        Some(tokens)
    }

    /// The pieces that the pre-tokenizer splits the text into, each with its number of tokens.
    pub(super) fn pieces<'t>(&self, text: &'t str) -> impl Iterator<Item = (&'t str, usize)> {
        self.tokenizer
            .split(text)
            .map(|piece| (piece, self.count_piece(piece.as_bytes())))
    }

    fn count_piece(&self, piece: &[u8]) -> usize {
        if piece.len() <= LONGEST_TOKEN_BYTES && self.single_tokens.contains(piece) {
            return 1;
        }
        match self.run_period(piece) {
            Some(period) => {
                let head = RUN_HEAD_BYTES + (piece.len() - RUN_HEAD_BYTES) % period;
                self.tokenizer.bpe.count(&piece[..head]) + (piece.len() - head) / period
            }
            None => self.tokenizer.bpe.count(piece),
        }
    }

    /// For a long run of one repeated byte: the length, in bytes, of a part of it that has at most
    /// `limit` tokens. The longest such part is less than one period longer. `None` for other
    /// pieces, or if `limit` is too small for the period to hold.
    pub(super) fn run_within(&self, piece: &[u8], limit: usize) -> Option<usize> {
        let period = self.run_period(piece)?;
        let head = self.tokenizer.bpe.count(&piece[..RUN_HEAD_BYTES]);
        let periods = limit
            .checked_sub(head)?
            .min((piece.len() - RUN_HEAD_BYTES) / period);
        Some(RUN_HEAD_BYTES + periods * period)
    }

    fn run_period(&self, piece: &[u8]) -> Option<usize> {
        let first = *piece.first()?;
        if piece.len() < RUN_BYTES || piece.iter().any(|byte| *byte != first) {
            return None;
        }
        let period = self
            .period
            .get(usize::from(first))?
            .get_or_init(|| period(self.tokenizer, first));
        (*period > 0).then_some(*period)
    }
}

/// The smallest number of bytes that always adds one token to a run of `byte`; 0 if there is none.
///
/// The period is not the length of the longest token of that byte: for `-` this token has 112
/// bytes, and the period is 64. Token by token, the engine counts 1.5 MB of `-` in a second. By the
/// period, 40 MB take a tenth of a second.
fn period(tokenizer: &Tokenizer, byte: u8) -> usize {
    /// Length of the run, in bytes, on which the period is checked.
    const CHECKED_BYTES: usize = 6000;
    let mut encoder = AppendableEncoder::new(&tokenizer.bpe);
    let mut counts = vec![0];
    for _ in 0..CHECKED_BYTES {
        encoder.push(byte);
        counts.push(encoder.token_count());
    }
    let holds = |p: &usize| (512..CHECKED_BYTES - p).all(|n| counts[n + p] == counts[n] + 1);
    (1..=LONGEST_TOKEN_BYTES).find(holds).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counting_a_run_by_its_period_gives_the_engines_count() {
        for encoding in Encoding::ALL {
            let counter = encoding.counter();
            // No digits: a piece has at most three of them, so they form no long run.
            for byte in b" -=a/*_.\t#\n" {
                for len in [RUN_BYTES - 1, RUN_BYTES, RUN_BYTES + 1, 9_999, 12_345] {
                    let run = vec![*byte; len];
                    let by_engine = counter.tokenizer.bpe.count(&run);
                    assert_eq!(
                        counter.count_piece(&run),
                        by_engine,
                        "{} x {len} in {encoding:?}",
                        char::from(*byte)
                    );
                }
            }
        }
    }

    #[test]
    fn counting_stops_when_keep_going_returns_false() {
        let counter = Encoding::O200kBase.counter();
        let text = "word ".repeat(100_000);
        let calls = std::cell::Cell::new(0);
        let until_third_call = || {
            calls.set(calls.get() + 1);
            calls.get() < 3
        };
        assert_eq!(counter.count_while(&text, &until_third_call), None);
        assert_eq!(calls.get(), 3);
        assert_eq!(
            counter.count_while(&text, &|| true),
            Some(counter.count(&text))
        );
        assert_eq!(counter.count_while("hello", &|| false), None);
    }

    #[test]
    fn a_count_up_to_a_limit_is_the_exact_count_or_none() {
        let counter = Encoding::O200kBase.counter();
        for text in ["", "hello world, this is a text", "混合 text \u{1f600}"] {
            let tokens = counter.count(text);
            assert_eq!(counter.count_up_to(text, tokens), Some(tokens));
            if tokens > Tokens::ZERO {
                assert_eq!(counter.count_up_to(text, tokens.less(Tokens::new(1))), None);
            }
        }
    }

    #[test]
    fn the_longest_token_of_each_vocabulary_has_128_bytes() {
        for encoding in Encoding::ALL {
            let longest = encoding
                .counter()
                .single_tokens
                .iter()
                .map(|token| token.len())
                .max();
            assert_eq!(longest, Some(LONGEST_TOKEN_BYTES));
        }
    }
}
