//! The measurements, one file per scenario.
//!
//! - `append`: appends per second, beside pgbench. `dead_model`: the same while a model is
//!   unreachable. `write_cost`: bytes of PostgreSQL's log per append.
//! - `jobs`: how soon tokens are counted. `count`: how fast they are counted on one thread.
//! - `context`: BuildContext on histories of different lengths.
//! - `lists`, `resolve`: ListConversations and ResolveSession.
//! - `isolation`: what a silent model costs other calls. `overload`: ten times the possible load.
//! - `memory`, `footprint`: bytes in memory and on disk. `start`: how soon a process works.

pub(crate) mod append;
pub(crate) mod context;
pub(crate) mod count;
pub(crate) mod dead_model;
pub(crate) mod footprint;
pub(crate) mod isolation;
pub(crate) mod jobs;
pub(crate) mod lists;
pub(crate) mod memory;
pub(crate) mod overload;
pub(crate) mod resolve;
pub(crate) mod start;
pub(crate) mod write_cost;
