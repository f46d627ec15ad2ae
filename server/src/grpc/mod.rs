//! The gRPC edge: HTTP/2 connections and the services.
//!
//! - [`server`]: serves HTTP/2, with its limits; assembles the services and their layers
//! - [`dispatch`]: passes each call to its service; refuses calls above the concurrency limit
//!   before they are decoded
//! - [`services`]: the six services; admits, runs and answers each RPC
//! - [`rpc`]: one file per RPC
//! - [`paging`]: page sizes and page tokens
//! - [`encoded_response`]: encodes long answers off the async threads
//! - [`status`]: converts a failure to a gRPC status
//! - [`malformed_requests`]: replaces tonic's answers to malformed requests by answers with a
//!   stable reason
//! - [`health`]: the service `grpc.health.v1`

mod dispatch;
pub(crate) mod encoded_response;
pub(crate) mod health;
pub(crate) mod malformed_requests;
pub(crate) mod paging;
pub(crate) mod rpc;
mod server;
pub(crate) mod services;
mod status;

#[cfg(feature = "fuzzing")]
pub(crate) use server::{LayeredServices, layer_services};
pub(crate) use server::{build_services, serve};
