//! Properties of the pure core, on generated and real conversations.

mod contexts;
mod estimate;
mod prefixes;
mod session_keys;
mod texts;
mod tokens;
