//! Messages: rows of `ai_message`.
//!
//! - `append`: AppendMessages, alone or batched with appends of other conversations.
//! - `read`: pages of messages, and single messages.
//! - `byte_range`: byte ranges of one message's text.
//! - `read_budget`: how much content a read may bring into memory, and where it is parsed.
//! - `stored_text`: text columns that are neither copied nor checked while they are read.
//! - `token_counts`: the transaction that stores token counts and enqueues the jobs that they
//!   trigger.
//! - `summaries`: summaries of large messages.

pub(crate) mod append;
mod byte_range;
pub(crate) mod read;
pub(crate) mod read_budget;
pub(crate) mod stored_text;
pub(crate) mod summaries;
mod token_counts;

pub use append::{Append, AppendSettings, Appended, AppendedMessage, Grouping};
pub use byte_range::MessageRange;
pub use read::{MessagePage, PageAsk, StoredMessage, StoredSummary};
pub use read_budget::{ContentRead, ROW_BYTES, ReadBudget};
pub use summaries::{MessageSummary, UnsummarizedMessage};
pub use token_counts::{CountedMessages, UncountedMessages};
