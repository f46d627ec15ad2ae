//! Turns that go on without their HTTP reader. A task relays the events of a turn into a log.
//! Readers follow the log, may disconnect, and come back to where they were. A turn that was
//! answered before is replayed from the store into a new log.
//!
//! - `delta_merger`: merges the deltas of an answer before they are logged
//! - `event`: the events that readers get
//! - `log_budget`: the memory of logs; which log is discarded first
//! - `prefix_match`: whether a log continues what a reader has received
//! - `reader`: what one reader gets from a log
//! - `resume_point`: the position of a reader, as the id of an event, which a client sends back in
//!   `Last-Event-ID`
//! - `running_turns`: which turns run here; starts a turn, or joins a reader to it
//! - `turn_log`: the log of one turn

mod delta_merger;
mod event;
mod log_budget;
mod prefix_match;
mod reader;
mod resume_point;
mod running_turns;
mod turn_log;

#[cfg(test)]
pub(super) use event::{Delta, TurnStarted};
pub(super) use event::{TurnDone, TurnEvent, TurnFailed, Usage as TurnUsage};
pub(super) use log_budget::LogBudget;
pub(super) use reader::TurnReader;
pub(super) use resume_point::ResumePoint;
pub(super) use running_turns::{RunningTurns, SessionOrigin, TurnRequest, WhenBusy};
