//! Messages: rows of `ai_message`.
//!
//! - `append`: appends messages, alone or batched with appends to other conversations.
//! - `message_columns`: how the content of a message is stored.
//! - `read`: pages of messages, and single messages.
//! - `versions`: content that does not stand: that of withdrawn messages, and earlier versions.
//! - `find_turns`: a turn, by an abbreviation of its conversation's id and by its first message.
//! - `turn_questions`: the question of a turn, by the turn's request id.
//! - `byte_range`: byte ranges of one message's text.
//! - `read_budget`: how much content a read may bring into memory, and on which thread it is
//!   parsed.
//! - `stored_text`: text columns that are not copied while they are read.
//! - `token_counts`: reads uncounted messages; the transaction that stores their counts, enqueues
//!   the jobs that are then due and ends the counting jobs.
//! - `token_runs`: tokens of many messages, summed in runs.
//! - `summaries`: finds large messages that lack a summary, and stores summaries.

pub(crate) mod append;
mod byte_range;
mod find_turns;
pub(crate) mod message_columns;
pub(crate) mod read;
pub(crate) mod read_budget;
pub(crate) mod stored_text;
pub(crate) mod summaries;
mod token_counts;
mod token_runs;
mod turn_questions;
mod versions;

pub use append::{Append, AppendSettings, Appended, AppendedMessage, Grouping};
pub use byte_range::MessageRange;
pub use find_turns::{ShortConversationId, TurnCandidate, TurnKey};
pub use read::{MessagePage, PageAsk, StoredMessage, StoredSummary, SummaryOrigin};
pub use read_budget::{ContentRead, ROW_BYTES, ReadBudget};
pub use summaries::{MessageSummary, UnsummarizedMessage};
pub use token_counts::{CountedMessages, UncountedMessages};
pub use token_runs::{TokenRun, TokenRunsAsk};
pub use turn_questions::{AskedTurn, TurnQuestion};
pub use versions::MessageVersion;
