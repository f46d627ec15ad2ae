//! PATCH /api/agents/{id}/sessions/{sid}.

use anneal_proto::v1::{self as pb, conversation_service_server::ConversationService as _};
use axum::{http::HeaderMap, response::Response};
use prost_types::FieldMask;
use serde::Deserialize;
use utoipa::ToSchema;

use super::{
    bounded_collections::BoundedLabels,
    caller::{Authorized, EndpointRpcs},
    chat_options::ChatOptions,
    extractors::{JsonBody, NoParams, PathParams, QueryParams},
    problem::Problem,
    session::{self, Session, SessionStatus},
};
use crate::verbs::Rpc;

/// The fields to change. Absent fields stay as they are.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub(super) struct SessionPatch {
    /// At most 512 bytes.
    title: Option<String>,
    /// Active or archived.
    #[schema(inline)]
    status: Option<SessionStatus>,
    /// Whether lists should show the session first.
    pinned: Option<bool>,
    /// All labels: they replace the stored ones. At most 32, with 4 KiB in all.
    #[schema(value_type = Option<std::collections::BTreeMap<String, String>>)]
    metadata: Option<BoundedLabels>,
    /// All options of its turns: they replace the stored ones. An empty object removes them.
    chat_options: Option<ChatOptions>,
}

/// The RPCs of this endpoint, which looks up the session and changes it.
pub(super) struct PatchSession;

impl EndpointRpcs for PatchSession {
    const RPCS: &'static [&'static Rpc] = &[
        Rpc::named("update_conversation"),
        Rpc::named("get_conversation"),
    ];
}

/// Changes the fields that the body has.
///
/// With If-Match, it changes them only if the session still has that ETag.
#[utoipa::path(
    patch,
    path = "/api/agents/{id}/sessions/{sid}",
    params(
        ("id" = String, Path, description = "the agent"),
        ("sid" = String, Path, description = "the session"),
        ("If-Match" = Option<String>, Header, description = "the ETag that the client has; if the stored one differs, the request fails with ETAG_MISMATCH")
    ),
    request_body = SessionPatch,
    responses((status = 200, body = Session), (status = "default", body = Problem, content_type = "application/problem+json"))
)]
pub(super) async fn patch_session(
    Authorized(http_caller, _): Authorized<PatchSession>,
    PathParams((agent, id)): PathParams<(String, String)>,
    _: QueryParams<NoParams>,
    headers: HeaderMap,
    JsonBody(patch): JsonBody<SessionPatch>,
) -> Result<Response, Problem> {
    let (conversation, paths) = changed_fields(id, patch.unwrap_or_default())?;
    if paths.is_empty() {
        return Err(Problem::invalid(
            "body",
            "must hold title, status, pinned, metadata or chatOptions",
        ));
    }
    let etag = session::if_match_etag(&headers)?;
    session::get_for_agent(&http_caller, &agent, &conversation.conversation_id).await?;
    let ask = pb::UpdateConversationRequest {
        conversation: Some(conversation),
        update_mask: Some(FieldMask { paths }),
        etag,
        request_id: String::new(),
    };
    let changed = http_caller
        .services
        .update_conversation(http_caller.request(ask))
        .await?
        .into_inner();
    Ok(session::response(changed))
}

/// The new values, and the paths of the fields that change.
fn changed_fields(
    id: String,
    patch: SessionPatch,
) -> Result<(pb::Conversation, Vec<String>), Problem> {
    let mut new = pb::Conversation {
        conversation_id: id,
        ..pb::Conversation::default()
    };
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
        new.metadata = metadata.0;
        paths.push("metadata".to_owned());
    }
    if let Some(options) = patch.chat_options {
        new.chat_options = Some(options.into_options("chatOptions.")?);
        paths.push("chat_options".to_owned());
    }
    Ok((new, paths))
}
