//! Items and messages, converted both ways. An item of a request becomes one message. A message is
//! shown as one item for each call, each result, each thought and each run of texts and media.
//!
//! - `input`: items of a request become messages
//! - `content`: the content of messages and of results of calls, both ways
//! - `reasoning`: thoughts, both ways
//! - `compaction`: summaries that stand for what was said before, both ways
//! - `labels`: labels of a message for what the message itself has no place for
//! - `output`: messages become items
//! - `removal`: one item is removed from a message

mod compaction;
mod content;
mod input;
mod labels;
mod output;
#[cfg(test)]
mod properties;
mod reasoning;
mod removal;

pub(in crate::http) use compaction::{Compaction, SealKey};
pub(in crate::http) use input::{InputItem, parse_input, parse_items};
pub(in crate::http) use output::{StoredItem, items_of, items_of_parts, stored_items};
pub(in crate::http) use removal::{Removal, plan_removal};
