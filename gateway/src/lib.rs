//! Calls of language models under the operator's limits. The server's turns and the worker's
//! summaries call models only through [`ModelGateway`]. No database connection is held while a
//! model answers.
//!
//! - `gateway`: admits a call, holds its lease, and settles it when it ends.
//! - `summary_calls`: the calls of one summary.
//! - `provider_calls`: the requests to the provider under one lease, and their cost.
//! - `call_end`: what the end of a call says about the model, and its name in metrics.
//! - `call_metrics`: the number, the durations and the tokens of calls, and whether a call hangs.
//!
//! Decided elsewhere:
//!
//! - which calls may start: `core/src/admission.rs`;
//! - which breakers open: `core/src/breaker.rs`;
//! - what a call without a complete answer costs: `llm/src/provider/call_cost.rs`.

mod call_end;
mod call_metrics;
mod gateway;
mod provider_calls;
mod summary_calls;

pub use call_end::CallEnd;
pub use gateway::{AdmittedCall, CallLease, LeaseLost, ModelGateway, TurnLease};
pub use provider_calls::{CallStream, ProviderCalls};
pub use summary_calls::{CallsOfSummary, SummarySubject};
