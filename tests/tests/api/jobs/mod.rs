//! Background work.
//!
//! - `triggers`: when a checkpoint is written, where it cuts, what it records
//! - `trigger_bounds`: a tail is read only if a trigger may have been reached
//! - `compact`: checkpoints on request
//! - `rpc_import_checkpoint`: checkpoints of other systems
//! - `counting`: many conversations are counted in one transaction without affecting each other
//! - `counting_batches`: reads, writes and jobs of one such batch
//! - `claims`: which due jobs a worker claims; failing and requeuing during a deletion
//! - `leases`: running jobs during appends, separators, deletions, lost leases and panics
//! - `clock_set_back`: leases and postponements after the database clock was ahead

mod claims;
mod clock_set_back;
mod compact;
mod counting;
mod counting_batches;
mod leases;
mod rpc_import_checkpoint;
mod trigger_bounds;
mod triggers;
