//! Responses of the OpenAI protocol: rows of `ai_response`. A row says which turn of which
//! conversation a response is, and how it has ended. Its input and its output are messages.
//!
//! - `response`: the types, and reading one response.
//! - `put`: stores a response that begins, once per id; moves one of which nothing is stored yet.
//! - `end`: records how far a response has come and how it has ended; deletes it.
//! - `discard`: deletes one of which nothing is kept, so that its id is free.

mod discard;
mod end;
mod put;
mod response;

pub use end::{DeletedResponse, ResponseEnd};
pub use put::{NewResponse, PutResponse};
pub use response::{InputAppends, ResponseTurn, StoredResponse};
