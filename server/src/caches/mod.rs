//! Remembers facts of conversations that statements check again.
//!
//! - [`context_memory`]: sizes and policies of contexts, so that the next read needs one statement
//! - [`conversation_encodings`]: in which encoding appends are to be counted

pub(crate) mod context_memory;
pub(crate) mod conversation_encodings;
