//! The cost of a conversation at a model provider with a prefix cache, by token counts alone: rules
//! that swap large messages for their summaries, and the cache that bills the resulting contexts.
//!
//! - `counted_conversation`: a conversation as token counts. `rules`: when a message is swapped.
//! - `meter`: a prefix cache. `prices`: what providers charge for input tokens.

pub mod counted_conversation;
pub mod meter;
pub mod prices;
pub mod rules;
