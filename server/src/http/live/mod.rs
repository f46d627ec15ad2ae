//! Turns that run for readers over HTTP. A turn is told into a log, whoever reads it or not; readers come, go and come back
//! to where they were. A turn that was answered before is told into a log again, from what is stored.

mod budget;
mod event;
mod log;
mod place;
mod reader;
mod resume;
mod running;

pub(super) use budget::LogBudget;
pub(super) use event::{TurnEvent, TurnFailed};
pub(super) use place::Place;
pub(super) use reader::Reader;
pub(super) use running::{Asked, Live, Patience, Session};
