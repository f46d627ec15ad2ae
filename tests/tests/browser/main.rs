//! The page in a real browser.
//!
//! - `accessibility`: axe-core finds no violation on any page, and the keyboard reaches everything.
//! - `harness`: the browser itself, on pages that the test serves.
//! - `hostile`: hostile texts run nothing and load nothing.
//! - `operations`: the operator's page.
//! - `pages`: every page, with a conversation that fills it.
//! - `speed`: how fast pages are drawn, and what they weigh.

mod accessibility;
mod harness;
mod hostile;
mod operations;
mod pages;
mod speed;
