//! The beginnings of a request, each as a hash and a number of tokens.

use std::{
    collections::HashMap,
    hash::{DefaultHasher, Hash as _, Hasher as _},
};

use anneal_core::tokens::{Encoding, FRAMING_PER_MESSAGE};

/// Everything up to the end of a block of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Prefix {
    /// Equal for equal beginnings.
    pub(super) hash: u64,
    /// Tokens of the beginning.
    pub(super) tokens: u64,
}

/// Token counts of texts, each counted once.
#[derive(Debug, Default)]
pub(super) struct TextCounts(HashMap<String, u64>);

/// The beginning of the line before the summary of a message or of a conversation.
const SUMMARY_MARK: &str = "[Summary of ";
/// Tokens that anneal counts for the place where such a line and the summary meet.
const SUMMARY_JOIN_TOKENS: u64 = 2;

impl TextCounts {
    /// The tokens of a text. The tokenizer is anneal's, and a summary behind its line is counted as
    /// anneal counts it, because otherwise the provider's figures could not be compared with
    /// anneal's.
    fn count(&mut self, text: &str) -> u64 {
        if let Some(known) = self.0.get(text) {
            return *known;
        }
        let count = |text: &str| Encoding::O200kBase.counter().count(text).get();
        let tokens = match text.split_once('\n') {
            Some((mark, summary)) if mark.starts_with(SUMMARY_MARK) => {
                count(&text[..=mark.len()]) + SUMMARY_JOIN_TOKENS + count(summary)
            }
            _ => count(text),
        };
        self.0.insert(text.to_owned(), tokens);
        tokens
    }
}

/// Reads a request from its beginning on.
pub(super) struct PrefixReader<'c> {
    hasher: DefaultHasher,
    tokens: u64,
    counts: &'c mut TextCounts,
}

impl<'c> PrefixReader<'c> {
    pub(super) fn new(counts: &'c mut TextCounts) -> Self {
        Self {
            hasher: DefaultHasher::new(),
            tokens: 0,
            counts,
        }
    }

    /// Reads what belongs to the beginning without tokens of its own.
    pub(super) fn read_key(&mut self, key: &str) {
        key.hash(&mut self.hasher);
    }

    /// Reads the beginning of a message: what the provider adds to each. No provider publishes its
    /// tokens, so they are those that anneal counts.
    pub(super) fn read_framing(&mut self, role: &str) {
        role.hash(&mut self.hasher);
        self.tokens += FRAMING_PER_MESSAGE.get();
    }

    /// Reads a text.
    pub(super) fn read_text(&mut self, text: &str) {
        text.hash(&mut self.hasher);
        self.count_text(text);
    }

    /// Counts a text whose content was read as a key.
    pub(super) fn count_text(&mut self, text: &str) {
        self.tokens += self.counts.count(text);
    }

    /// Counts tokens of something else than text.
    pub(super) fn count_tokens(&mut self, tokens: u64) {
        self.tokens += tokens;
    }

    /// The content that was read so far.
    pub(super) fn prefix(&self) -> Prefix {
        Prefix {
            hash: self.hasher.finish(),
            tokens: self.tokens,
        }
    }
}
