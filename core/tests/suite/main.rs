//! Properties of the pure core, on generated and real conversations.
//!
//! - `contexts`: contexts are complete, within the budget, repeatable, and accepted by providers.
//! - `prefixes`: equal prefix hashes mean equal beginnings; stepped cooling never undoes a swap.
//! - `tokens`: counting and truncating agree with tiktoken. `estimate`: the bounds of estimates.
//! - `session_keys`: scopes share a key only if they mean the same chat.
//! - `texts`: texts in many scripts.

mod contexts;
mod estimate;
mod prefixes;
mod session_keys;
mod texts;
mod tokens;
