//! The service under faults: nothing that it has acknowledged is lost or done twice.
//!
//! - `campaigns/`: processes are killed, suspended and cut off under load.
//! - `races/`: two operations on the same rows, in an order that the test controls.
//! - `simulation/`: random lists of operations, with all invariants checked.
//! - `stops.rs`: turns that are stopped after each event of an answer.

mod campaigns;
mod races;
mod simulation;
mod stops;
