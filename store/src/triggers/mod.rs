//! What decides whether a conversation's jobs are due.
//!
//! - `tail_stats`: the figures of a tail that triggers and GetContextUsage look at.
//! - `trigger_bounds`: stored bounds below which no trigger can have been reached.

pub(crate) mod tail_stats;
pub(crate) mod trigger_bounds;

pub use tail_stats::ContextUsage;
