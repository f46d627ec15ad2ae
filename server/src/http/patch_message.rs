//! PATCH /api/agents/{id}/sessions/{sid}/messages/{mid}.

use anneal_core::message::MessageId;
use anneal_proto::v1::{self as pb, message_service_server::MessageService as _};
use anneal_store::StoreError;
use axum::{http::HeaderMap, response::Response};
use serde::Deserialize;
use utoipa::ToSchema;

use super::{
    bounded_collections::BoundedLabels,
    caller::{Authorized, EndpointRpcs, HttpCaller},
    change::{self, MessageChange},
    extractors::{JsonBody, NoParams, PathParams, QueryParams},
    message::Block,
    new_block::NewBlocks,
    problem::Problem,
    session,
};
use crate::{failure::Failure, verbs::Rpc};

/// The new version of a message.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub(super) struct MessagePatch {
    /// All blocks: they replace the stored ones, and must be allowed in a message of its role.
    /// Required.
    #[schema(value_type = Option<Vec<Block>>)]
    content: Option<NewBlocks>,
    /// All labels: they replace the stored ones. At most 32, with 4 KiB in all. Absent: the labels
    /// stay.
    #[schema(value_type = Option<std::collections::BTreeMap<String, String>>)]
    metadata: Option<BoundedLabels>,
    /// Edits the message only if this version of it stands.
    expected_version: Option<i32>,
    /// Makes the request repeatable: at most 128 bytes.
    request_id: Option<String>,
    /// Edits the message only if this is the newest message's id.
    expected_last_message_id: Option<i64>,
}

/// The RPCs of this endpoint, which looks up the session and the message's role, and edits the
/// message.
pub(super) struct PatchMessage;

impl EndpointRpcs for PatchMessage {
    const RPCS: &'static [&'static Rpc] = &[
        Rpc::named("edit_message"),
        Rpc::named("get_conversation"),
        Rpc::named("list_messages"),
    ];
}

/// Gives a message a new version of its content.
///
/// The message keeps its id and its role. Histories, contexts and new summaries contain the new
/// version. The old one is kept.
#[utoipa::path(
    patch,
    path = "/api/agents/{id}/sessions/{sid}/messages/{mid}",
    params(
        ("id" = String, Path, description = "the agent"),
        ("sid" = String, Path, description = "the session"),
        ("mid" = i64, Path, description = "the message"),
        ("If-Match" = Option<String>, Header, description = "the ETag that the client has; if the stored one differs, the request fails with ETAG_MISMATCH")
    ),
    request_body = MessagePatch,
    responses((status = 200, body = MessageChange), (status = "default", body = Problem, content_type = "application/problem+json"))
)]
pub(super) async fn patch_message(
    Authorized(http_caller, _): Authorized<PatchMessage>,
    PathParams((agent, id, message_id)): PathParams<(String, String, String)>,
    _: QueryParams<NoParams>,
    headers: HeaderMap,
    JsonBody(patch): JsonBody<MessagePatch>,
) -> Result<Response, Problem> {
    let patch = patch.unwrap_or_default();
    let content = patch
        .content
        .ok_or_else(|| Problem::invalid("content", "is required"))?;
    let message_id = change::parse_message_id(&message_id)?;
    let parts = content.into_parts("content")?;
    let keep_metadata = patch.metadata.is_none();
    let etag = session::if_match_etag(&headers)?;
    session::get_for_agent(&http_caller, &agent, &id).await?;
    let role = find_role(&http_caller, &id, message_id).await?;
    let ask = pb::EditMessageRequest {
        conversation_id: id,
        request_id: patch.request_id.unwrap_or_default(),
        expected_last_message_id: patch.expected_last_message_id,
        etag,
        message_id,
        message: Some(pb::NewMessage {
            role,
            parts,
            metadata: patch.metadata.map(|labels| labels.0).unwrap_or_default(),
        }),
        expected_version: patch.expected_version,
        keep_metadata,
        keep_tool_pairs_apart: false,
    };
    let edited = http_caller
        .services
        .edit_message(http_caller.request(ask))
        .await
        .map_err(|status| Problem::of_edit(&status))?
        .into_inner();
    Ok(change::response(edited))
}

/// Finds the role of a message, which may be withdrawn. It never changes.
async fn find_role(
    http_caller: &HttpCaller,
    session_id: &str,
    message_id: i64,
) -> Result<i32, Problem> {
    let ask = pb::ListMessagesRequest {
        conversation_id: session_id.to_owned(),
        page_size: 1,
        without_content: true,
        after_message_id: message_id - 1,
        include_withdrawn: true,
        ..pb::ListMessagesRequest::default()
    };
    let page = http_caller
        .services
        .list_messages(http_caller.request(ask))
        .await?
        .into_inner();
    let found = page.messages.first();
    found.map(|message| message.role).ok_or_else(|| {
        Problem::from(Failure::NamedMessage {
            field: "messageId".to_owned(),
            error: StoreError::UnknownMessage(MessageId(message_id)),
        })
    })
}
