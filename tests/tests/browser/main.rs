//! The page in a real browser.
//!
//! - `accessibility`: axe-core finds no violation on any page, and the keyboard reaches everything.
//! - `conversations`: the list, and what is done with a conversation.
//! - `harness`: the browser itself, on pages that the test serves.
//! - `hostile`: hostile texts run nothing and load nothing.
//! - `interruptions`: the server is killed in the middle of an answer.
//! - `operations`: the operator's page.
//! - `other_sites`: links of other sites, and frames.
//! - `pages`: every page, with a conversation that fills it.
//! - `speed`: how fast pages are drawn, and what they weigh.
//! - `talking`: answers come, are stopped and made anew; two windows agree.
//! - `what_if`: controls change the context that would be sent, and the policy.
//! - `without_javascript`: the essentials without scripts.
//! - `xray`: what a context holds, and why.

mod accessibility;
mod conversations;
mod harness;
mod hostile;
mod interruptions;
mod operations;
mod other_sites;
mod pages;
mod speed;
mod talking;
mod what_if;
mod without_javascript;
mod xray;
