//! Tests of the checkers: what each provider refuses, and what it accepts.

mod anthropic;
mod anything;
mod broken;
mod gemini;
mod openai;
