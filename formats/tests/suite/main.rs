//! Tests of reading and writing files of other systems.

mod foreign;
mod foreign_pi;
mod foreign_zeroclaw;
mod hostile;
mod remark_locations;
mod round_trips;
mod shared;
mod unmapped_fields;
