//! Properties that must hold for any input from outside. Each public module belongs to one fuzz
//! target: its `check` panics if a property is violated, and returns otherwise.
//!
//! - `doors`: a request of another protocol is accepted, or refused in the shape of its door.
//! - `importers`: messages that are read from a file can be stored, and written and read unchanged.
//! - `markdown`: Markdown becomes HTML of listed elements, attributes and schemes of links.
//! - `page_tokens`: page tokens and positions from clients are accepted only if they are equivalent
//!   to issued ones.
//! - `provider_errors`: a provider's error is classified without contradictions.
//! - `renderers`: contexts in the providers' formats are complete and within the budget.
//! - `requests`: a request is accepted, or refused with a documented reason.
//! - `summaries`: a model's input contains no forged instructions, and its answer is a valid
//!   summary or is refused.
//! - `tokens`: a credential is accepted only with a valid signature.
//! - `messages`: generates unusual messages for the targets above.

pub mod doors;
pub mod importers;
pub mod markdown;
mod messages;
pub mod page_tokens;
pub mod provider_errors;
pub mod renderers;
pub mod requests;
pub mod summaries;
pub mod tokens;
