//! Conversations in the files of other systems: read and written, a line at a time.
//!
//! [`detect`] says what a file is, [`read`] gives what is in it to a [`Sink`], [`writer`] makes such a file. Whatever a
//! format cannot say is written beside its own fields, in an object `anneal` that other readers pass over, so that every
//! message comes back as it was.

mod anthropic;
mod blocks;
mod brackets;
mod claw0;
mod cursor;
mod detect;
mod extra;
mod fit;
mod growth;
mod json;
mod openai;
mod out;
mod pi;
mod port;
mod read;
mod sharegpt;
mod talks;
mod time;
mod write;
mod zeroclaw;

pub use detect::detect;
pub use growth::grown;
pub use port::{Fate, Format, Found, Head, Place, Remark, Scope, Sink, Stopped, Stored, Summary};
pub use read::{Branches, ReadError, ReadOptions, Strictness, read, read_from};
pub use write::{Output, WriteError, Writer, writer};
