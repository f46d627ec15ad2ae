//! Sessions of pi, OpenClaw and ai-panel: lines of JSON that form a tree by `id` and `parentId`.
//! Files of version 1 and of ai-panel have neither field: there, the parent of each line is the
//! line before it.
//!
//! - `read`: the head and the branches of a session.
//! - `tree`: parents, side branches and what compactions keep.
//! - `branch_reader`: the messages, summaries and other entries of one branch.
//! - `entry`: one line of a session. `message`: one message. `command`: one that the user ran.
//!   `block_fields`: extra fields of a message's blocks.
//! - `write`: writes sessions of version 3.

mod block_fields;
mod branch_reader;
mod command;
mod entry;
mod message;
mod read;
mod tree;
mod write;

pub(crate) use read::read;
pub(crate) use write::PiWriter;

/// The prefix of labels that hold fields of an entry or a message.
const LABEL: &str = "pi.";
/// The label with entries that are not sent to the model, one a line: those before a message, or,
/// in the head, those after the last message. Of a compaction it has what the summary does not say.
const ENTRIES: &str = "pi.entries";
/// The `customType` of anneal's separator.
const SEPARATOR: &str = "anneal.separator";
/// The `customType` of a system message in the middle of a conversation.
const SYSTEM: &str = "anneal.system";

/// The text that pi puts before and after the summary of an abandoned branch.
const BRANCH_SUMMARY: [&str; 2] = [
    "The following is a summary of a branch that this conversation came back from:\n\n<summary>\n",
    "</summary>",
];
/// The text that pi puts before and after the summary of a compaction.
const COMPACTION_SUMMARY: [&str; 2] = [
    "The conversation history before this point was compacted into the following summary:\n\n<summary>\n",
    "\n</summary>",
];
