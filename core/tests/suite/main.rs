//! Properties of the pure core, on generated and real conversations.
//!
//! - `contexts`: a context's manifest has every message; contexts keep the budget, can be built
//!   again with the same result, and are accepted by providers.
//! - `caches`: a context expects in the cache what a reference cache finds there.
//! - `prefixes`: equal prefix hashes mean equal beginnings; stepped cooling never undoes a swap.
//! - `tokens`: counts are those of tiktoken; truncated texts and chunks fit their limits.
//!   `estimate`: the bounds of estimates.
//! - `session_keys`: scopes share a key only if they mean the same chat.
//! - `texts`: texts in many scripts.

mod caches;
mod contexts;
mod estimate;
mod prefixes;
mod session_keys;
mod texts;
mod tokens;
