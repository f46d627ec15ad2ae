//! Calls of language models under the operator's limits. The server's turns and the worker's
//! summaries call models only through [`ModelGateway`]. No database connection is held while a
//! model answers.
//!
//! - `gateway`: a call is admitted, holds a lease, and is settled when it ends.
//! - `provider_calls`: the requests to the provider under one lease, and their cost.
//! - `call_end`: what the end of a call says about the model, and its name in metrics.
//! - `call_metrics`: the number and the duration of calls.
//!
//! Which calls may start is decided in `core/src/admission.rs`, which breakers open in
//! `core/src/breaker.rs`, what an unanswered call costs in `llm/src/provider/call_cost.rs`.

mod call_end;
mod call_metrics;
mod gateway;
mod provider_calls;

pub use call_end::CallEnd;
pub use gateway::{AdmittedCall, CallLease, LeaseLost, ModelGateway};
pub use provider_calls::{CallStream, ProviderCalls};
