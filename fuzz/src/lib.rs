//! What must hold of bytes from outside, whatever they are. Each module is one fuzz target's: `check` panics where a promise
//! is broken, and returns where it holds.

pub mod importers;
pub mod page_tokens;
pub mod provider_errors;
pub mod renderers;
pub mod requests;
mod said;
pub mod summaries;
pub mod tokens;
