//! Conversions between protobuf and the domain, for the server, its clients and the tests.
//!
//! Functions that begin with `parse`, and those of the module `parse`, convert to the domain and
//! refuse bad input. `From` and most other functions convert to protobuf. A field that only one RPC
//! has is parsed in that RPC's file of the server; answers made of stored rows are made in the
//! server, because the store's types are unknown here.
//!
//! - `field_error`: why a field is refused
//! - `parse`: ids, etags, texts and metadata: fields of many requests
//! - `message`: messages and their parts
//! - `policy`: policies; `chat_options`: options of turns
//! - `session`: the scope of a chat
//! - `context`: formats, pressure, boundaries, and the answer with a built context
//! - `job`: kinds of jobs; `checkpoint`: triggers of checkpoints
//! - `usage`: how a call used the provider's cache
//! - `time`: points in time

pub mod chat_options;
mod checkpoint;
pub mod context;
mod field_error;
pub mod job;
pub mod message;
pub mod parse;
pub mod policy;
pub mod session;
pub mod time;
pub mod usage;

pub use field_error::FieldError;
