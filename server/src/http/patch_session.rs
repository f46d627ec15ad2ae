//! PATCH /api/agents/{id}/sessions/{sid}.

use std::collections::BTreeMap;

use anneal_proto::v1::{self as pb, conversation_service_server::ConversationService as _};
use axum::{
    http::{HeaderMap, header},
    response::Response,
};
use prost_types::FieldMask;
use serde::Deserialize;
use utoipa::ToSchema;

use super::{
    door::{Allowed, Calls},
    json::{Body, Place},
    problem::Problem,
    session::{self, Session, SessionStatus},
};
use crate::verbs::Rpc;

/// What changes: the fields that are there.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct SessionPatch {
    /// At most 512 bytes.
    title: Option<String>,
    /// In use, or put away.
    #[schema(inline)]
    status: Option<SessionStatus>,
    /// Whether lists should show it first.
    pinned: Option<bool>,
    /// All labels, in place of those that are there: at most 32, 4 KiB in all.
    metadata: Option<BTreeMap<String, String>>,
}

/// What changing a session calls: it is looked up, and changed.
pub(super) struct PatchSession;

impl Calls for PatchSession {
    const RPCS: &'static [&'static Rpc] = &[Rpc::named("update_conversation"), Rpc::named("get_conversation")];
}

/// Changes what the body names. With If-Match only what was seen.
#[utoipa::path(
    patch,
    path = "/api/agents/{id}/sessions/{sid}",
    params(
        ("id" = String, Path, description = "the agent"),
        ("sid" = String, Path, description = "the session"),
        ("If-Match" = Option<String>, Header, description = "the ETag that was seen; another one stored is ETAG_MISMATCH")
    ),
    request_body = SessionPatch,
    responses((status = 200, body = Session), (status = "default", body = Problem, content_type = "application/problem+json"))
)]
pub(super) async fn patch_session(
    Allowed(visitor, _): Allowed<PatchSession>,
    Place((agent, id)): Place<(String, String)>,
    headers: HeaderMap,
    Body(patch): Body<SessionPatch>,
) -> Result<Response, Problem> {
    let (conversation, paths) = wanted(id, patch.unwrap_or_default());
    if paths.is_empty() {
        return Err(Problem::invalid("body", "must hold title, status, pinned or metadata"));
    }
    let etag = expected(&headers)?;
    session::of_agent(&visitor, &agent, &conversation.conversation_id).await?;
    let ask = pb::UpdateConversationRequest {
        conversation: Some(conversation),
        update_mask: Some(FieldMask { paths }),
        etag,
        request_id: String::new(),
    };
    let changed = visitor.services.update_conversation(visitor.request(ask)).await?.into_inner();
    Ok(session::answer(changed))
}

/// The new values, and which they are.
fn wanted(id: String, patch: SessionPatch) -> (pb::Conversation, Vec<String>) {
    let mut new = pb::Conversation { conversation_id: id, ..pb::Conversation::default() };
    let mut paths = Vec::new();
    if let Some(title) = patch.title {
        new.title = title;
        paths.push("title".to_owned());
    }
    if let Some(status) = patch.status {
        new.set_status(status.into());
        paths.push("status".to_owned());
    }
    if let Some(pinned) = patch.pinned {
        new.pinned = pinned;
        paths.push("pinned".to_owned());
    }
    if let Some(metadata) = patch.metadata {
        new.metadata = metadata.into_iter().collect();
        paths.push("metadata".to_owned());
    }
    (new, paths)
}

/// The etag of If-Match; empty: whatever is there.
fn expected(headers: &HeaderMap) -> Result<String, Problem> {
    let Some(given) = headers.get(header::IF_MATCH) else { return Ok(String::new()) };
    let given = given.to_str().unwrap_or_default().trim();
    if given == "*" {
        return Ok(String::new());
    }
    let bare = given.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
    let etag = bare.filter(|etag| !etag.is_empty() && !etag.contains('"'));
    etag.map(str::to_owned).ok_or_else(|| Problem::invalid("If-Match", "must be one ETag of this server, in quotes"))
}
