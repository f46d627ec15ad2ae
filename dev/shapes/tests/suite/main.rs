//! Tests of the checkers: what each provider refuses, and what it accepts.
//!
//! - `anthropic`, `gemini`, `openai`: one checker each.
//! - `anything`: no JSON makes a checker panic.
//! - `broken`: helpers that break a valid body in one place.

mod anthropic;
mod anything;
mod broken;
mod gemini;
mod openai;
