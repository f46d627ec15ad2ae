//! POST /api/agents/{id}/sessions/{sid}/restore.

use anneal_proto::v1::{self as pb, message_service_server::MessageService as _};
use axum::{http::HeaderMap, response::Response};
use serde::Deserialize;
use utoipa::ToSchema;

use super::{
    bounded_collections::BoundedIds,
    caller::{Authorized, EndpointRpcs},
    change::{self, IdRange, MessageChange},
    extractors::{JsonBody, NoParams, PathParams, QueryParams},
    problem::Problem,
    session,
};
use crate::verbs::Rpc;

/// The messages to restore.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub(super) struct RestoreBody {
    /// Ids of the messages, at most 500. Either these or `range`.
    #[schema(value_type = Option<Vec<i64>>)]
    message_ids: Option<BoundedIds>,
    /// The messages, as a range of at most 10,000.
    range: Option<IdRange>,
    /// Makes the request repeatable: at most 128 bytes.
    request_id: Option<String>,
    /// Restores only if this is the newest message's id.
    expected_last_message_id: Option<i64>,
    /// Restore exactly these messages. Otherwise withdrawn calls and results come back together.
    keep_tool_pairs_apart: bool,
}

/// The RPCs of this endpoint, which looks up the session and restores messages of it.
pub(super) struct RestoreSession;

impl EndpointRpcs for RestoreSession {
    const RPCS: &'static [&'static Rpc] = &[
        Rpc::named("restore_messages"),
        Rpc::named("get_conversation"),
    ];
}

/// Makes withdrawn messages stand again.
#[utoipa::path(
    post,
    path = "/api/agents/{id}/sessions/{sid}/restore",
    params(
        ("id" = String, Path, description = "the agent"),
        ("sid" = String, Path, description = "the session"),
        ("If-Match" = Option<String>, Header, description = "the ETag that the client has; if the stored one differs, the request fails with ETAG_MISMATCH")
    ),
    request_body = RestoreBody,
    responses((status = 200, body = MessageChange), (status = "default", body = Problem, content_type = "application/problem+json"))
)]
pub(super) async fn restore(
    Authorized(http_caller, _): Authorized<RestoreSession>,
    PathParams((agent, id)): PathParams<(String, String)>,
    _: QueryParams<NoParams>,
    headers: HeaderMap,
    JsonBody(body): JsonBody<RestoreBody>,
) -> Result<Response, Problem> {
    let body = body.unwrap_or_default();
    let etag = session::if_match_etag(&headers)?;
    session::get_for_agent(&http_caller, &agent, &id).await?;
    let ask = pb::RestoreMessagesRequest {
        conversation_id: id,
        request_id: body.request_id.unwrap_or_default(),
        expected_last_message_id: body.expected_last_message_id,
        etag,
        message_ids: body.message_ids.unwrap_or_default().0,
        range: body.range.map(pb::IdRange::from),
        keep_tool_pairs_apart: body.keep_tool_pairs_apart,
    };
    let restored = http_caller
        .services
        .restore_messages(http_caller.request(ask))
        .await?
        .into_inner();
    Ok(change::response(restored))
}
