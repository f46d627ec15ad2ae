//! Sessions: conversations of an agent, as the HTTP API shows them.

use std::collections::BTreeMap;

use anneal_proto::{
    convert::{FieldError, parse, time},
    v1::{self as pb, conversation_service_server::ConversationService as _},
};
use anneal_store::{Entity, StoreError};
use axum::{
    http::{HeaderMap, HeaderValue, header},
    response::Response,
};
use prost_types::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{caller::HttpCaller, chat_options::ChatOptions, json, problem::Problem};
use crate::failure::Failure;

/// Whether a session is in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum SessionStatus {
    /// In use.
    Active,
    /// Archived. It still accepts messages.
    Archived,
}

impl From<SessionStatus> for pb::ConversationStatus {
    fn from(status: SessionStatus) -> Self {
        match status {
            SessionStatus::Active => Self::Active,
            SessionStatus::Archived => Self::Archived,
        }
    }
}

/// A session, without its messages.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[expect(clippy::struct_field_names, reason = "these are the names on the wire")]
pub(super) struct Session {
    /// The session's id, a UUID; the same as `sessionId`.
    id: String,
    /// The session's id.
    session_id: String,
    /// The agent.
    agent_id: String,
    /// The end user; empty: none was named.
    user_id: String,
    /// Set by a client, or the first 30 characters of the first user message that is not withdrawn.
    title: String,
    /// Number of stored messages, withdrawn ones included; also the id of the newest.
    message_count: i64,
    /// Number of withdrawn messages.
    withdrawn_count: i64,
    /// Milliseconds since 1970.
    created_at: i64,
    /// When the newest message was stored, or else the session was created; milliseconds since
    /// 1970.
    last_at: i64,
    /// Tokens of all messages: exact for counted ones, estimated for the rest.
    token_estimate: u64,
    /// Whether the session is in use.
    status: SessionStatus,
    /// Whether lists should show the session first.
    pinned: bool,
    /// The client's labels.
    metadata: BTreeMap<String, String>,
    /// The session that this one was forked from, which may be deleted since; empty: it is no fork.
    forked_from: String,
    /// The newest message that it took over from there; 0: none.
    forked_message_id: i64,
    /// Options of its turns, where a request names none. Absent: none, or the session is in a list.
    #[serde(skip_serializing_if = "Option::is_none")]
    chat_options: Option<ChatOptions>,
}

impl From<pb::Conversation> for Session {
    fn from(conversation: pb::Conversation) -> Self {
        let status = match conversation.status() {
            pb::ConversationStatus::Archived => SessionStatus::Archived,
            pb::ConversationStatus::Active | pb::ConversationStatus::Unspecified => {
                SessionStatus::Active
            }
        };
        Self {
            id: conversation.conversation_id.clone(),
            session_id: conversation.conversation_id,
            agent_id: conversation.agent_id,
            user_id: conversation.user_id,
            title: conversation.title,
            message_count: conversation.message_count,
            withdrawn_count: conversation.withdrawn_messages,
            created_at: unix_millis(conversation.created_time.as_ref()),
            last_at: unix_millis(conversation.last_activity_time.as_ref()),
            token_estimate: conversation.token_total.map_or(0, |total| total.tokens),
            status,
            pinned: conversation.pinned,
            metadata: conversation.metadata.into_iter().collect(),
            forked_from: conversation.forked_from_conversation_id,
            forked_message_id: conversation.forked_message_id,
            chat_options: conversation.chat_options.map(ChatOptions::from),
        }
    }
}

/// Milliseconds since 1970; 0: absent.
pub(super) fn unix_millis(time: Option<&Timestamp>) -> i64 {
    time.map_or(0, |time| time::millis(*time))
}

/// Checks an agent id from a path.
pub(super) fn parse_agent_id(id: &str) -> Result<&str, FieldError> {
    parse::id("agent_id", id)
}

/// Gets a session of this agent. A session of another agent is not found.
pub(super) async fn get_for_agent(
    http_caller: &HttpCaller,
    agent_id: &str,
    id: &str,
) -> Result<pb::Conversation, Problem> {
    parse_agent_id(agent_id)?;
    let ask = pb::GetConversationRequest {
        conversation_id: id.to_owned(),
    };
    let found = http_caller
        .services
        .get_conversation(http_caller.request(ask))
        .await?
        .into_inner();
    if found.agent_id == agent_id {
        Ok(found)
    } else {
        Err(Failure::from(StoreError::NotFound(Entity::Conversation)).into())
    }
}

/// A session as an answer, with its ETag.
pub(super) fn response(conversation: pb::Conversation) -> Response {
    let etag = etag(&conversation);
    let mut response = json::response(&Session::from(conversation));
    response.headers_mut().insert(header::ETAG, etag);
    response
}

/// The ETag of a session, for If-Match.
pub(super) fn etag(conversation: &pb::Conversation) -> HeaderValue {
    etag_header(&conversation.etag)
}

/// The header `ETag` for the etag of a conversation.
pub(super) fn etag_header(etag: &str) -> HeaderValue {
    HeaderValue::from_str(&format!("\"{etag}\"")).expect("an etag is a number")
}

/// The ETag of If-Match. Empty: the header is absent, or is `*`.
pub(super) fn if_match_etag(headers: &HeaderMap) -> Result<String, Problem> {
    let Some(value) = headers.get(header::IF_MATCH) else {
        return Ok(String::new());
    };
    let value = value.to_str().unwrap_or_default().trim();
    if value == "*" {
        return Ok(String::new());
    }
    let unquoted = value
        .strip_prefix('"')
        .and_then(|rest| rest.strip_suffix('"'));
    let etag = unquoted.filter(|etag| !etag.is_empty() && !etag.contains('"'));
    etag.map(str::to_owned)
        .ok_or_else(|| Problem::invalid("If-Match", "must be one ETag of this server, in quotes"))
}
