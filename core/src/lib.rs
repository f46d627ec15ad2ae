//! What anneal decides. Pure: no async, no I/O, no clock, no protobuf, no SQL.

pub mod message;
pub mod tokens;
