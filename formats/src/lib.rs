//! Reads and writes conversations in the file formats of other systems, one message at a time.
//!
//! [`detect`] finds the format of a file, [`read`] sends its items to a [`Sink`] as [`FileEvent`]s,
//! and [`writer`] writes a file. Data that a format has no field for goes into an extra object
//! `anneal`, which other readers ignore, so that anneal reads every message back unchanged.
//!
//! One folder per format: `anthropic`, `claw0`, `openai`, `pi`, `sharegpt`, `zeroclaw`.
//! `message_list` is shared by the formats that store a list of messages, `blocks` by Anthropic and
//! claw0 (its `data:` URIs also by OpenAI and pi), `time` by pi and ZeroClaw.
//!
//! - `format`: the formats. `detect`: which of them a file has.
//! - `read`: which code reads a format. `write`: which code writes a format.
//! - `read_options`: how a file is read. `read_error`: why a file is not read to its end.
//! - `cursor`: a file as lines and JSON values. `json_scanner`: where a JSON value ends. `json`:
//!   tolerant parsing of one value.
//! - `event`: what readers emit and writers take. `emitter`: sends a reader's events to the sink.
//! - `storage_limits`: fits messages and heads to anneal's limits.
//! - `remark`: what a reader could not keep unchanged.
//! - `format_writer`: the interface of the writers, and why a file is not written to its end.
//! - `conversation_extra`: the extra object `anneal` of a conversation. `message_extra`: that of a
//!   message.
//! - `added_parts`: parts that were added to a message of a file that is still being written.

mod added_parts;
mod anthropic;
mod blocks;
mod claw0;
mod conversation_extra;
mod cursor;
mod detect;
mod emitter;
mod event;
mod format;
mod format_writer;
mod json;
mod json_scanner;
mod message_extra;
mod message_list;
mod openai;
mod pi;
mod read;
mod read_error;
mod read_options;
mod remark;
mod sharegpt;
mod storage_limits;
mod time;
mod write;
mod zeroclaw;

pub use added_parts::added_parts;
pub use detect::detect;
pub use event::{FileEvent, Head, SharedBeginning, Sink, Stopped, StoredMessage, Summary};
pub use format::Format;
pub use format_writer::WriteError;
pub use read::{read, read_from};
pub use read_error::ReadError;
pub use read_options::{Branches, ReadOptions, Strictness};
pub use remark::{ImportOutcome, Location, Remark, Scope};
pub use time::iso as iso_time;
pub use write::{Output, Writer, writer};
