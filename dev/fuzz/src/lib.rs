//! Properties that must hold for any input from outside. Each module belongs to one fuzz target:
//! its `check` panics if a property is violated, and returns otherwise.

pub mod importers;
mod messages;
pub mod page_tokens;
pub mod provider_errors;
pub mod renderers;
pub mod requests;
pub mod summaries;
pub mod tokens;
