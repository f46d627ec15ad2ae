//! Calls of language models.
//!
//! - `admit`: which calls may start.
//! - `lease`: the lease of an admitted call, renewed while the call runs.
//! - `stops`: turns that are told to stop, and how they end. `stop_mode`: what becomes of the
//!   answer then.
//! - `append_answer`: appends the answer of a turn under its lease.
//! - `settle`: ends a call: books its cost, updates the breakers, deletes the lease.
//! - `breaker_change`: the log lines of breakers that open and close.
//! - `model_row`: the lock of a model's row, under which calls are admitted, and settled if a
//!   breaker changes.
//! - `recorded`: the stored answer of an earlier turn, for a repeated request; whether the
//!   conversation has continued since a question, or changed since an answer.
//! - `usage_reports`: stores reported usage, and calibrates models with it and with the errors of
//!   their providers.
//! - `call_history`: a conversation's messages and boundaries, and what its calls cost.
//! - `model_figures`: models and breakers as operators see them.

mod admit;
mod append_answer;
mod breaker_change;
mod call_history;
mod lease;
mod model_figures;
pub(crate) mod model_row;
mod recorded;
pub(crate) mod settle;
mod stop_mode;
mod stops;
mod usage_reports;

pub use admit::CallAsk;
pub use breaker_change::ModelFault;
pub use call_history::{CallHistory, ReportedTotals, SummarySpend};
pub use lease::ModelLease;
pub use model_figures::{BreakerFigures, ConversationBreaker, ModelFigures};
pub use recorded::{AnsweredState, RecordedCacheUse, RecordedCall, StoredAnswer};
pub use settle::{CallOutcome, Verdict};
pub use stop_mode::StopMode;
pub use stops::{StopAsk, StoppedTurn, TurnEnd, TurnRequestIds};
pub use usage_reports::{Calibration, LearntModel, ReportedCall, UsageReport};
