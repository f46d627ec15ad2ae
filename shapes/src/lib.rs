//! What model providers refuse, as checkers of request bodies, for tests.
//!
//! Each checker is written from what a provider publishes and from the messages of its errors, and knows nothing of what
//! renders the bodies. Where a provider's models or servers differ, the strictest counts, and the rule says so. Only the
//! conversation is checked: model, tools and limits are the caller's, and a body that holds them is refused.
//!
//! Rules that all providers share: `type` (a value of another JSON type), `missing` (a required key), `unknown-key` (a key
//! that the checker does not know; providers answer "Extra inputs are not permitted", "Unrecognized request argument
//! supplied" or "Unknown name: Cannot find field"). Keys that a provider knows but a conversation of ours never holds,
//! such as citations and the blocks of server tools, count as unknown.

mod address;
mod anthropic;
mod base64;
mod gemini;
mod node;
mod openai;

pub use anthropic::anthropic_messages;
pub use gemini::gemini_contents;
pub use openai::openai_chat;

/// One thing that a provider would answer with status 400.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// The rule's name, in lower case with dashes; stable, for tests to compare.
    pub rule: &'static str,
    /// Where: a JSON pointer into the body, empty for the body itself.
    pub at: String,
    /// What the provider says, or would say, about it.
    pub says: String,
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{} at {}: {}", self.rule, self.at, self.says)
    }
}
