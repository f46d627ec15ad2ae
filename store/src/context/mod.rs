//! The rows that BuildContext reads and writes.
//!
//! - `material`: boundary, summary and tail of a conversation, read in one statement.
//! - `columns`: how the columns of that statement are decoded.
//! - `prefix`: the recorded versions of the beginning of a conversation's contexts, and the marks
//!   of changes between them.

mod columns;
mod material;
mod prefix;

pub use material::{ContextRows, InputTurns};
pub(crate) use prefix::{PrefixMark, break_reason, find_last_unsent, mark_prefix, reason_code};
