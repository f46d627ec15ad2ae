//! Sessions of pi, OpenClaw and ai-panel: lines of JSON that make a tree by `id` and `parentId`. v1 and ai-panel have
//! neither; there each line follows the one before it.

mod entry;
mod fields;
mod message;
mod read;
mod session;
mod tree;
mod write;

pub(crate) use read::read;
pub(crate) use write::Session;

/// Before the name of a label that an entry or a message had itself.
const LABEL: &str = "pi.";
/// The label of entries before a message that say nothing to a model.
const ENTRIES: &str = "pi.entries";
/// What our own separator is called among custom entries.
const SEPARATOR: &str = "anneal.separator";
/// What an instruction in the middle of a conversation is called among custom messages.
const SYSTEM: &str = "anneal.system";

/// What pi puts around the summary of a branch that it came back from.
const BRANCH: [&str; 2] =
    ["The following is a summary of a branch that this conversation came back from:\n\n<summary>\n", "</summary>"];
/// What pi puts around the summary of what it compacted.
const COMPACTED: [&str; 2] = [
    "The conversation history before this point was compacted into the following summary:\n\n<summary>\n",
    "\n</summary>",
];
