//! The API over the wire: every RPC and HTTP route, and the jobs that its calls queue.
//!
//! - `changes`: messages that are withdrawn, restored, edited and erased, and forks
//! - `chat`: chat turns over gRPC
//! - `contexts`: the part of a conversation that is sent to a model
//! - `conversations`: messages, lists, titles, separators, sessions
//! - `doors`: one conversation through all protocols
//! - `http`: the HTTP API
//! - `jobs`: counting, summaries and checkpoints in the background
//! - `openai`: the doors of OpenAI's protocol
//! - `sdks`: the model of the tests that run SDKs in other languages
//! - `ui`: the door of the AI SDK
//! - `web`: the pages, without a browser
//! - `watch`: watches, which stream the events of a conversation

mod changes;
mod chat;
mod contexts;
mod conversations;
mod doors;
mod http;
mod jobs;
mod openai;
mod sdks;
mod ui;
mod watch;
mod web;
