//! Tests of reading and writing files of other systems.
//!
//! - `foreign`, `foreign_pi`, `foreign_zeroclaw`: files as other systems write them.
//! - `hostile`: broken, truncated and malicious files.
//! - `round_trips`: every format preserves every message that anneal can store.
//! - `unmapped_fields`: no field of a file is lost without a remark.
//! - `remark_locations`: remarks give the right location.
//! - `shared`: helpers for these tests.

mod foreign;
mod foreign_pi;
mod foreign_zeroclaw;
mod hostile;
mod remark_locations;
mod round_trips;
mod shared;
mod unmapped_fields;
