//! The rows that BuildContext reads and writes.
//!
//! - `material`: boundary, summary and tail of a conversation, read in one statement.
//! - `columns`: how the columns of that statement are decoded.
//! - `eras`: the times between two recorded versions, and the usage reports of each.
//! - `prefix`: the recorded versions of the beginning of a conversation's contexts, and the marks
//!   of changes between them.

mod columns;
mod eras;
mod material;
mod prefix;

pub use eras::{CacheEra, ContextAt, EraCalls, EraPage, EraPageAsk, SummarizedThen};
pub use material::{ContextRows, InputTurns};
pub(crate) use prefix::{PrefixMark, break_reason, find_last_unsent, mark_prefix, reason_code};
