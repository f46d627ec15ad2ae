//! Limits what callers use of this server, for gRPC and HTTP alike: calls and bytes per second, and
//! the bytes that wait in memory because a client sends or reads slowly.
//!
//! - `accounting`: one account for each tenant; admits calls and counts bytes
//! - `layer`: the tower layer around every call
//! - `metered_io`: counts the bytes of a connection that was taken over by another protocol
//! - `rate`: rates with bursts; `recent_traffic`: how often each tenant calls, for operators
//! - `request_body`: limits the time, size and number of frames of a request; reserves its memory
//! - `response_body`: chunks of an answer, and the memory of bytes that are not read yet

mod accounting;
mod layer;
mod metered_io;
mod rate;
mod recent_traffic;
mod request_body;
mod response_body;

pub(crate) use self::{
    accounting::{RequestAccounting, RequestMemory, TrafficLimits},
    layer::{TrafficLayer, TrafficService},
    metered_io::{Meter, MeteredIo},
    rate::{Rate, RateDebt, RateFigures},
    response_body::CHUNK_BYTES,
};
