//! The page: HTML from plain values, Markdown, and the files that browsers load. It knows nothing of
//! conversations' rules: the server fills the structs, and serves what `render` returns.
//!
//! - [`layout`]: the frame of all pages
//! - [`sign_in`], [`conversations`], [`conversation`], [`xray`], [`what_if`], [`operations`],
//!   [`error`]: the pages and their fragments
//! - [`costs`]: the eras of the provider's cache, and the bills
//! - [`message`]: a message and its parts
//! - [`markdown`]: Markdown as HTML without what could harm a reader
//! - `format`: numbers, bytes, times and names as text
//! - [`assets`]: style sheet, scripts and icon
//! - `render`: the errors of templates

pub mod assets;
pub mod conversation;
pub mod conversations;
pub mod costs;
pub mod error;
pub mod format;
pub mod layout;
pub mod markdown;
pub mod message;
pub mod operations;
mod render;
pub mod sign_in;
pub mod what_if;
pub mod xray;

pub use render::RenderError;
