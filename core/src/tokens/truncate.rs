//! Truncates text to a number of tokens, at its end or its start, and splits it into chunks.
//!
//! A piece is what the pre-tokenizer splits a text into: a word, a number, a run of punctuation. No
//! token reaches from one piece into the next.

use std::ops::Range;

use super::counter::LONGEST_TOKEN_BYTES;
use super::{Counter, Tokens};

/// Fewest tokens of a chunk. A single character takes up to 4, and a chunk must hold at least one
/// character.
pub const MIN_CHUNK: Tokens = Tokens::new(16);

/// Longest distance in bytes between the last anchor and the cut at which a longer prefix is
/// searched for. An anchor is a position where the counts of both sides sum to the count of the
/// whole.
const ANCHOR_BYTES: usize = 512;

impl Counter {
    /// The longest prefix of whole characters that has at most `n` tokens, and its count.
    ///
    /// Reads about as much text as it returns. Inside one piece of more than 512 bytes (base64, a
    /// long run) the prefix ends at a token's end, and may be a character or two shorter than
    /// possible.
    pub fn truncate<'t>(&self, text: &'t str, n: Tokens) -> (&'t str, Tokens) {
        let n = n.get().min(text.len() as u64) as usize;
        // Most texts have fewer than eight bytes in a token. For others the window is doubled.
        let mut window_bytes = n.saturating_mul(8) + 2 * ANCHOR_BYTES;
        loop {
            let window = &text[..text.floor_char_boundary(window_bytes)];
            let (prefix, tokens) = self.prefix(window, n);
            // Near the end of the window a piece of the text may be cut. So the prefix must end
            // well before, unless the window is the whole text.
            if window.len() == text.len() || prefix.len() + LONGEST_TOKEN_BYTES <= window.len() {
                return (prefix, Tokens::new(tokens as u64));
            }
            window_bytes = window_bytes.saturating_mul(2);
        }
    }

    /// A suffix of whole characters that has at most `n` tokens, and its count. If the text is
    /// longer, the count is within a few tokens of `n`. Reads about as much text as it returns.
    pub fn truncate_start<'t>(&self, text: &'t str, n: Tokens) -> (&'t str, Tokens) {
        let n = n.get().min(text.len() as u64) as usize;
        let mut window_bytes = n.saturating_mul(8) + 2 * ANCHOR_BYTES;
        loop {
            let window = &text[text.ceil_char_boundary(text.len().saturating_sub(window_bytes))..];
            let tokens = self.count(window).get() as usize;
            if tokens > n || window.len() == text.len() {
                let (suffix, tokens) = self.suffix(window, tokens, n);
                return (suffix, Tokens::new(tokens as u64));
            }
            window_bytes = window_bytes.saturating_mul(2);
        }
    }

    /// Consecutive byte ranges that cover the text. Each has at most `n` tokens by itself; an `n`
    /// below [`MIN_CHUNK`] is raised to it. A range ends at a word or line if there is one in its
    /// last eighth.
    ///
    /// The counts of the ranges may sum to a few tokens more than the text's count, because a cut
    /// may split a token.
    pub fn chunks<'t>(
        &'t self,
        text: &'t str,
        n: Tokens,
    ) -> impl Iterator<Item = Range<usize>> + 't {
        let n = n.max(MIN_CHUNK);
        let mut start = 0;
        std::iter::from_fn(move || {
            let rest = &text[start..];
            if rest.is_empty() {
                return None;
            }
            let (prefix, _) = self.truncate(rest, n);
            let mut len = prefix.len();
            if len < rest.len() {
                len = safe_cut(prefix.as_bytes()).unwrap_or(len);
            }
            let chunk = start..start + len;
            start = chunk.end;
            Some(chunk)
        })
    }

    /// A prefix of the text that has at most `n` tokens, and its count.
    fn prefix<'t>(&self, text: &'t str, n: usize) -> (&'t str, usize) {
        let (mut tokens, mut end) = (0, 0);
        // The byte offset of the last anchor, and the tokens before it.
        let mut anchor = (0, 0);
        for (piece, more) in self.pieces(text) {
            // A position after white space is no anchor: if the text is cut after further white
            // space, both form one piece.
            if !text[..end].ends_with(char::is_whitespace) {
                anchor = (end, tokens);
            }
            if tokens + more > n {
                end += self.piece_prefix(piece, n - tokens);
                let (from, tokens_before) = anchor;
                let (len, tokens) = self.fit(&text[from..], end - from, n - tokens_before);
                return (&text[..from + len], tokens_before + tokens);
            }
            tokens += more;
            end += piece.len();
        }
        (text, tokens)
    }

    /// The length of the longest prefix near `len` that has at most `n` tokens, and its count.
    fn fit(&self, text: &str, len: usize, n: usize) -> (usize, usize) {
        let counted = |end: usize| (end, self.count(&text[..end]).get() as usize);
        let mut longest = None;
        if len <= ANCHOR_BYTES {
            // One more character can reduce the count by one token (by completing a word), but
            // hardly by three.
            let longer = (len + 1..=text.len().min(len + LONGEST_TOKEN_BYTES))
                .filter(|end| text.is_char_boundary(*end));
            longest = longer
                .map(counted)
                .take_while(|(_, tokens)| *tokens <= n + 2)
                .filter(|(_, tokens)| *tokens <= n)
                .last();
        }
        let shorter = || {
            (0..=len)
                .rev()
                .filter(|end| text.is_char_boundary(*end))
                .map(counted)
                .find(|(_, tokens)| *tokens <= n)
        };
        longest.or_else(shorter).unwrap_or_default()
    }

    /// A suffix of the text that has at most `n` tokens, and its count. `tokens`: the count of the
    /// text.
    fn suffix<'t>(&self, text: &'t str, tokens: usize, n: usize) -> (&'t str, usize) {
        if tokens <= n {
            return (text, tokens);
        }
        let (mut rest_tokens, mut start) = (tokens, 0);
        for (piece, less) in self.pieces(text) {
            rest_tokens -= less;
            start += piece.len();
            if rest_tokens <= n {
                // The end of a piece may split into other pieces than the whole piece did, so it is
                // counted again.
                let suffix = |limit| &text[start - self.piece_suffix(piece, limit)..];
                // The longest suffix of the piece may not fit after all. Four are tried.
                let mut suffixes = (1..=n - rest_tokens)
                    .rev()
                    .take(4)
                    .map(suffix)
                    .map(|suffix| (suffix, self.count(suffix).get() as usize));
                return suffixes
                    .find(|(_, tokens)| *tokens <= n)
                    .unwrap_or((&text[start..], rest_tokens));
            }
        }
        ("", 0)
    }

    /// Byte length of a piece's prefix of `limit` tokens, or slightly less if a token ends inside a
    /// character.
    fn piece_prefix(&self, piece: &str, limit: usize) -> usize {
        if let Some(len) = self.run_within(piece.as_bytes(), limit) {
            return len;
        }
        let bpe = &self.tokenizer.bpe;
        let mut window_bytes = limit * 8 + 256;
        loop {
            let window = &piece[..piece.floor_char_boundary(window_bytes)];
            let tokens = bpe.encode_via_backtracking(window.as_bytes());
            if tokens.len() > limit || window.len() == piece.len() {
                let lens = tokens
                    .into_iter()
                    .take(limit)
                    .map(|token| bpe.token_len(token));
                return ends(lens)
                    .filter(|end| piece.is_char_boundary(*end))
                    .last()
                    .unwrap_or(0);
            }
            window_bytes *= 2;
        }
    }

    /// Byte length of a piece's suffix of `limit` tokens, or slightly less if a token starts inside
    /// a character.
    fn piece_suffix(&self, piece: &str, limit: usize) -> usize {
        if let Some(len) = self.run_within(piece.as_bytes(), limit) {
            return len;
        }
        let bpe = &self.tokenizer.bpe;
        let mut window_bytes = limit * 8 + 256;
        loop {
            let window =
                &piece[piece.ceil_char_boundary(piece.len().saturating_sub(window_bytes))..];
            let tokens = bpe.encode_via_backtracking(window.as_bytes());
            if tokens.len() > limit || window.len() == piece.len() {
                let lens = tokens
                    .into_iter()
                    .rev()
                    .take(limit)
                    .map(|token| bpe.token_len(token));
                let starts_char = |len: &usize| piece.is_char_boundary(piece.len() - len);
                return ends(lens).filter(starts_char).last().unwrap_or(0);
            }
            window_bytes *= 2;
        }
    }
}

/// End offsets of consecutive stretches with these lengths.
fn ends(lens: impl Iterator<Item = usize>) -> impl Iterator<Item = usize> {
    lens.scan(0, |end, len| {
        *end += len;
        Some(*end)
    })
}

/// The last position in the last eighth of the text where the counts of both sides sum to the count
/// of the whole.
fn safe_cut(text: &[u8]) -> Option<usize> {
    let from = (text.len() - text.len() / 8).max(1);
    (from..text.len())
        .rev()
        .find(|&at| is_safe_cut(text[at - 1], text[at]))
}

/// Whether a cut between the two bytes leaves the count unchanged, in both encodings and any
/// surrounding text.
///
/// The pre-tokenizer does not look at text before a piece. So it suffices that a piece always
/// starts at `after`, and that the left part does not end in a blank, except for a line end before
/// a letter or digit.
const fn is_safe_cut(before: u8, after: u8) -> bool {
    match after {
        b' ' | b'\t' => before.is_ascii_graphic(),
        b'0'..=b'9' => before.is_ascii_alphabetic() || before == b'\n',
        b'a'..=b'z' | b'A'..=b'Z' => before == b'\n',
        b'.' | b',' | b';' | b':' | b'(' | b')' | b'"' | b'/' | b'-' | b'_' | b'=' | b'+'
        | b'{' | b'}' | b'[' | b']' | b'<' | b'>' | b'#' | b'*' | b'\\' => {
            before.is_ascii_alphanumeric()
        }
        _ => false,
    }
}
