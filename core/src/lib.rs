//! What anneal decides. Pure: no async, no I/O, no clock, no protobuf, no SQL.

pub mod admission;
pub mod adoption;
pub mod boundary;
pub mod breaker;
pub mod caller;
pub mod context;
pub mod cooling;
pub mod cut;
pub mod digest;
pub mod economics;
pub mod job;
pub mod limits;
pub mod media_access;
pub mod message;
pub mod model;
pub mod policy;
pub mod render;
pub mod session_key;
pub mod title;
pub mod tokens;
pub mod trigger;
pub mod turn;
pub mod usage;
