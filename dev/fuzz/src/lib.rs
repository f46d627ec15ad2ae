//! Properties that must hold for any input from outside. Each public module belongs to one fuzz
//! target: its `check` panics if a property is violated, and returns otherwise.
//!
//! - `importers`: what is read from a file can be stored, and written and read back unchanged.
//! - `page_tokens`: positions that clients send back are accepted only if they were issued.
//! - `provider_errors`: a provider's error is classified without contradictions.
//! - `renderers`: contexts in the providers' formats are complete and within the budget.
//! - `requests`: a request is accepted, or refused with a documented reason.
//! - `summaries`: a model's input contains no forged instructions, and its answer passes the gates.
//! - `tokens`: a credential is accepted only with a valid signature.
//! - `messages`: generates the unusual messages that some of these need.

pub mod importers;
mod messages;
pub mod page_tokens;
pub mod provider_errors;
pub mod renderers;
pub mod requests;
pub mod summaries;
pub mod tokens;
