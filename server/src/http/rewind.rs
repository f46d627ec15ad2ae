//! POST /api/agents/{id}/sessions/{sid}/rewind.

use anneal_proto::v1::{self as pb, message_service_server::MessageService as _};
use axum::{http::HeaderMap, response::Response};
use serde::Deserialize;
use utoipa::ToSchema;

use super::{
    caller::{Authorized, EndpointRpcs},
    change::{self, MessageChange},
    extractors::{JsonBody, NoParams, PathParams, QueryParams},
    problem::Problem,
    session,
};
use crate::verbs::Rpc;

/// To which message a session goes back.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub(super) struct RewindBody {
    /// Messages with a greater id are withdrawn; 0: every message. Required.
    after_message_id: Option<i64>,
    /// Makes the request repeatable: at most 128 bytes.
    request_id: Option<String>,
    /// Rewinds only if this is the newest message's id.
    expected_last_message_id: Option<i64>,
    /// Withdraw exactly these messages. Otherwise a tool call before the cut goes with its results.
    keep_tool_pairs_apart: bool,
}

/// The RPCs of this endpoint, which looks up the session and rewinds it.
pub(super) struct RewindSession;

impl EndpointRpcs for RewindSession {
    const RPCS: &'static [&'static Rpc] = &[Rpc::named("rewind"), Rpc::named("get_conversation")];
}

/// Withdraws every message after one.
#[utoipa::path(
    post,
    path = "/api/agents/{id}/sessions/{sid}/rewind",
    params(
        ("id" = String, Path, description = "the agent"),
        ("sid" = String, Path, description = "the session"),
        ("If-Match" = Option<String>, Header, description = "the ETag that the client has; if the stored one differs, the request fails with ETAG_MISMATCH")
    ),
    request_body = RewindBody,
    responses((status = 200, body = MessageChange), (status = "default", body = Problem, content_type = "application/problem+json"))
)]
pub(super) async fn rewind(
    Authorized(http_caller, _): Authorized<RewindSession>,
    PathParams((agent, id)): PathParams<(String, String)>,
    _: QueryParams<NoParams>,
    headers: HeaderMap,
    JsonBody(body): JsonBody<RewindBody>,
) -> Result<Response, Problem> {
    let body = body.unwrap_or_default();
    let after_message_id = body
        .after_message_id
        .ok_or_else(|| Problem::invalid("afterMessageId", "is required"))?;
    let etag = session::if_match_etag(&headers)?;
    session::get_for_agent(&http_caller, &agent, &id).await?;
    let ask = pb::RewindRequest {
        conversation_id: id,
        request_id: body.request_id.unwrap_or_default(),
        expected_last_message_id: body.expected_last_message_id,
        etag,
        after_message_id,
        keep_tool_pairs_apart: body.keep_tool_pairs_apart,
    };
    let withdrawn = http_caller
        .services
        .rewind(http_caller.request(ask))
        .await
        .map_err(|status| Problem::of_rewind(&status))?
        .into_inner();
    Ok(change::response(withdrawn))
}
