//! The figures from which it is decided whether a conversation's jobs are due.
//!
//! - `tail_stats`: the figures of a tail, for triggers and for GetContextUsage.
//! - `trigger_bounds`: stored bounds below which no trigger is reached.

pub(crate) mod tail_stats;
pub(crate) mod trigger_bounds;

pub use tail_stats::ContextUsage;
