//! The API over the wire: every RPC and HTTP route, and the jobs that its calls queue.
//!
//! - `chat`: turns that the server runs
//! - `contexts`: contexts sent to a model
//! - `conversations`: messages, lists, titles, separators, sessions
//! - `http`: the HTTP API
//! - `jobs`: background work
//! - `watch`: events of a conversation

mod chat;
mod contexts;
mod conversations;
mod http;
mod jobs;
mod watch;
