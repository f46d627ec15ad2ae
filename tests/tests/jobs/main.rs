//! What workers do and when: triggers, checkpoints, leases, and jobs under way while the world changes.

mod claims;
mod clock;
mod compact;
mod counting;
mod leases;
mod quiet;
mod rpc_import_checkpoint;
mod triggers;
