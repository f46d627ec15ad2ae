//! Checkers of request bodies for tests: they report what model providers would refuse.
//!
//! Each checker is based on what a provider documents and on its error messages, independently of
//! the code that renders the bodies. If models or servers of one provider differ, the checker
//! follows the strictest one, and the comment on the rule says so. Only the conversation is
//! checked: model, tools and limits belong to the caller, and a body that contains them is refused.
//!
//! Rules that all checkers share:
//! - `type`: a value has the wrong JSON type.
//! - `missing`: a required key is absent.
//! - `unknown-key`: a key is unknown to the checker. Providers answer "Extra inputs are not
//!   permitted", "Unrecognized request argument supplied" or "Unknown name: Cannot find field".
//!
//! Keys that a provider knows but our conversations never contain, such as citations and the blocks
//! of server tools, count as unknown.
//!
//! - `anthropic`, `gemini`, `openai`: the rules of one provider each.
//! - `node`: JSON values with their positions. `base64`, `address`: base64 texts, addresses of
//!   media.

mod address;
mod anthropic;
mod base64;
mod gemini;
mod node;
mod openai;

pub use anthropic::anthropic_messages;
pub use gemini::gemini_contents;
pub use openai::openai_chat;

/// One problem for which a provider would answer with status 400.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// The rule's name, in lower case with dashes. It is stable, so that tests can compare it.
    pub rule: &'static str,
    /// A JSON pointer to the problem's place in the body; empty for the body itself.
    pub at: String,
    /// The provider's error message, perhaps shortened, or the rule in our own words.
    pub says: String,
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{} at {}: {}", self.rule, self.at, self.says)
    }
}
