//! The jobs that workers run: counting, summaries, checkpoints.
//!
//! - `triggers`: when a checkpoint is written, where it cuts, what it records
//! - `trigger_bounds`: a tail is read only if a trigger may have been reached
//! - `compact`: checkpoints on request
//! - `rpc_import_checkpoint`: checkpoints made of other systems' summaries
//! - `counting`: many conversations are counted in one transaction, and none affects the others
//! - `counting_batches`: what such a transaction reads, writes and queues
//! - `claims`: which due jobs a worker claims; failing and requeuing during a deletion
//! - `leases`: running jobs during appends, separators, deletions, lost leases, panics and crashes
//! - `clock_set_back`: leases and due times when the database's clock was ahead and is set back

mod claims;
mod clock_set_back;
mod compact;
mod counting;
mod counting_batches;
mod leases;
mod rpc_import_checkpoint;
mod trigger_bounds;
mod triggers;
