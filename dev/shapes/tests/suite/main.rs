//! Tests of the checkers: what each provider refuses, and what it accepts.
//!
//! - `anthropic`, `gemini`, `openai`: one checker each.
//! - `anything`: no JSON makes a checker panic, and each refusal points to a place in the body.
//! - `broken`: helpers that change one place of a body.

mod anthropic;
mod anything;
mod broken;
mod gemini;
mod openai;
