//! The answer to a change of messages.

use anneal_proto::v1 as pb;
use axum::{http::header, response::Response};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{json, problem::Problem, session};

/// The messages that were withdrawn, restored, edited or erased, and the session's figures now.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct MessageChange {
    /// The session's id.
    session_id: String,
    /// Number of the change in the session; 0: there was nothing to change.
    change_id: i64,
    /// The changed messages, in order.
    changed: Vec<IdRange>,
    /// Checkpoints that no longer hold because of the change, as their ranges.
    void_checkpoints: Vec<IdRange>,
    /// Contexts start after this message now; 0: at the first message.
    boundary_message_id: i64,
    /// Tokens of all messages now: exact for counted ones, estimated for the rest.
    token_estimate: u64,
    /// Withdrawn messages of the session now.
    withdrawn_count: i64,
    /// Whether an earlier request with this request id had made the change.
    replayed: bool,
    /// After an edit: the message's new version, or the one that stands if nothing was changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    version: Option<i32>,
    /// The receipt of an erasure.
    #[serde(skip_serializing_if = "Option::is_none")]
    erasure_id: Option<String>,
}

/// Messages from one id to another, both included.
#[derive(Debug, Clone, Copy, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct IdRange {
    first_message_id: i64,
    last_message_id: i64,
}

impl From<pb::IdRange> for IdRange {
    fn from(range: pb::IdRange) -> Self {
        Self {
            first_message_id: range.first_message_id,
            last_message_id: range.last_message_id,
        }
    }
}

impl From<IdRange> for pb::IdRange {
    fn from(range: IdRange) -> Self {
        Self {
            first_message_id: range.first_message_id,
            last_message_id: range.last_message_id,
        }
    }
}

impl From<pb::MessageChange> for MessageChange {
    fn from(change: pb::MessageChange) -> Self {
        let ranges = |ranges: Vec<pb::IdRange>| ranges.into_iter().map(IdRange::from).collect();
        Self {
            session_id: change.conversation_id,
            change_id: change.change_id,
            changed: ranges(change.changed),
            void_checkpoints: ranges(change.void_checkpoints),
            boundary_message_id: change.boundary_message_id,
            token_estimate: change.token_total.map_or(0, |total| total.tokens),
            withdrawn_count: change.withdrawn_messages,
            replayed: change.replayed,
            version: (change.version > 0).then_some(change.version),
            erasure_id: (!change.erasure_id.is_empty()).then_some(change.erasure_id),
        }
    }
}

/// Parses the id of a message in a path.
pub(super) fn parse_message_id(text: &str) -> Result<i64, Problem> {
    match text.parse::<i64>() {
        Ok(id @ 1..) => Ok(id),
        Ok(_) => Err(Problem::invalid("messageId", "must be at least 1")),
        Err(_) => Err(Problem::invalid("messageId", "must be a number")),
    }
}

/// A change as an answer, with the session's ETag after it.
pub(super) fn response(change: pb::MessageChange) -> Response {
    let etag = session::etag_header(&change.etag);
    let mut response = json::response(&MessageChange::from(change));
    response.headers_mut().insert(header::ETAG, etag);
    response
}
