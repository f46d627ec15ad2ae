//! POST /api/agents/{id}/sessions/{sid}/fork.

use anneal_proto::v1::{self as pb, conversation_service_server::ConversationService as _};
use axum::response::Response;
use serde::Deserialize;
use utoipa::ToSchema;

use super::{
    bounded_collections::BoundedLabels,
    caller::{Authorized, EndpointRpcs},
    extractors::{JsonBody, NoParams, PathParams, QueryParams},
    problem::Problem,
    session::{self, Session},
};
use crate::verbs::Rpc;

/// Where a session is forked, and what the fork has of its own.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub(super) struct ForkBody {
    /// The newest message that the fork takes over, at most 200,000; absent or 0: the newest one.
    message_id: Option<i64>,
    /// At most 512 bytes. Absent: the title of the session, made from the fork's messages unless a
    /// client has set it.
    title: Option<String>,
    /// At most 32 labels, with 4 KiB in all. Absent or empty: those of the session.
    #[schema(value_type = Option<std::collections::BTreeMap<String, String>>)]
    metadata: Option<BoundedLabels>,
    /// Makes the request repeatable: at most 128 bytes.
    request_id: Option<String>,
}

/// The RPCs of this endpoint, which looks up the session and forks it.
pub(super) struct ForkSession;

impl EndpointRpcs for ForkSession {
    const RPCS: &'static [&'static Rpc] = &[
        Rpc::named("fork_conversation"),
        Rpc::named("get_conversation"),
    ];
}

/// Creates a session that begins with copies of this one's messages.
#[utoipa::path(
    post,
    path = "/api/agents/{id}/sessions/{sid}/fork",
    params(
        ("id" = String, Path, description = "the agent"),
        ("sid" = String, Path, description = "the session")
    ),
    request_body = ForkBody,
    responses((status = 200, body = Session), (status = "default", body = Problem, content_type = "application/problem+json"))
)]
pub(super) async fn fork(
    Authorized(http_caller, _): Authorized<ForkSession>,
    PathParams((agent, id)): PathParams<(String, String)>,
    _: QueryParams<NoParams>,
    JsonBody(body): JsonBody<ForkBody>,
) -> Result<Response, Problem> {
    let body = body.unwrap_or_default();
    session::get_for_agent(&http_caller, &agent, &id).await?;
    let ask = pb::ForkConversationRequest {
        conversation_id: id,
        request_id: body.request_id.unwrap_or_default(),
        message_id: body.message_id.unwrap_or_default(),
        title: body.title,
        metadata: body.metadata.unwrap_or_default().0,
    };
    let forked = http_caller
        .services
        .fork_conversation(http_caller.request(ask))
        .await?
        .into_inner();
    Ok(session::response(forked))
}
