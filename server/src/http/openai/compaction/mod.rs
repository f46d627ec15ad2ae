//! Compactions: summaries that stand for what was said before them.
//!
//! - `compact`: the endpoint
//! - `window`: what a compaction leaves of a conversation
//! - `checkpoints`: the checkpoints of a conversation as items

mod checkpoints;
mod compact;
mod window;

use axum::routing;

pub(super) use checkpoints::{find_checkpoint, list_checkpoints};

use crate::http::Route;

/// The routes of this module.
pub(super) const ROUTES: &[Route] =
    &[("/v1/responses/compact", || routing::post(compact::compact))];
