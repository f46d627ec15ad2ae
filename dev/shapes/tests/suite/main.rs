//! Tests of the checkers: which conversations each provider refuses, and which it accepts. Keys of
//! a body that belong to the caller (model, tools, limits) are refused as well.
//!
//! - `anthropic`, `gemini`, `openai`: one checker each.
//! - `anything`: no JSON makes a checker panic, and each refusal points to a place in the body.
//! - `broken`: helpers that change one place of a body.

mod anthropic;
mod anything;
mod broken;
mod gemini;
mod openai;
