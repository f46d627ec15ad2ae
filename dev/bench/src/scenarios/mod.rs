//! The measurements, one file per scenario.
//!
//! - `append`: appends per second, compared with pgbench. `dead_model`: appends while jobs wait for
//!   an unreachable model. `write_cost`: bytes of PostgreSQL's log per append. `peers`: other
//!   libraries that store conversations in PostgreSQL.
//! - `jobs`: how soon tokens are counted, and whether the worker keeps up with the appends.
//! - `count`: how fast tokens are counted on one thread.
//! - `context`: BuildContext on histories of different lengths. `fork`: ForkConversation.
//!   `changes`: withdrawn, restored and edited messages. `erasure`: EraseUser and EraseMessages.
//!   `retention`: idle conversations that are deleted beside appends.
//! - `chat`: turns with a model that answers at once, and turns that are stopped. `responses`:
//!   turns of POST /v1/responses, in long chains and side by side.
//! - `builds`: appends and contexts of two builds.
//! - `lists`, `resolve`: ListConversations and ResolveSession. `page`: the pages for browsers.
//! - `isolation`: how a model that does not answer affects other calls. `overload`: ten times the
//!   possible load.
//! - `memory`, `footprint`: bytes in memory and on disk. `start`: how soon a process works,
//!   and the size of the binary.

pub(crate) mod append;
pub(crate) mod builds;
pub(crate) mod changes;
pub(crate) mod chat;
pub(crate) mod context;
pub(crate) mod count;
pub(crate) mod dead_model;
pub(crate) mod erasure;
pub(crate) mod footprint;
pub(crate) mod fork;
pub(crate) mod isolation;
pub(crate) mod jobs;
pub(crate) mod lists;
pub(crate) mod memory;
pub(crate) mod overload;
pub(crate) mod page;
pub(crate) mod peers;
pub(crate) mod resolve;
pub(crate) mod responses;
pub(crate) mod retention;
pub(crate) mod start;
pub(crate) mod write_cost;
