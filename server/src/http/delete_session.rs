//! DELETE /api/agents/{id}/sessions/{sid}.

use anneal_proto::v1::{self as pb, conversation_service_server::ConversationService as _};
use axum::http::StatusCode;

use super::{
    caller::{Authorized, EndpointRpcs},
    extractors::{NoParams, PathParams, QueryParams},
    problem::Problem,
    session,
};
use crate::verbs::Rpc;

/// The RPCs of this endpoint, which looks up the session and deletes it.
pub(super) struct DeleteSession;

impl EndpointRpcs for DeleteSession {
    const RPCS: &'static [&'static Rpc] = &[
        Rpc::named("delete_conversation"),
        Rpc::named("get_conversation"),
    ];
}

/// Deletes the session and everything derived from it.
#[utoipa::path(
    delete,
    path = "/api/agents/{id}/sessions/{sid}",
    params(("id" = String, Path, description = "the agent"), ("sid" = String, Path, description = "the session")),
    responses((status = 204), (status = "default", body = Problem, content_type = "application/problem+json"))
)]
pub(super) async fn delete_session(
    Authorized(http_caller, _): Authorized<DeleteSession>,
    PathParams((agent, id)): PathParams<(String, String)>,
    _: QueryParams<NoParams>,
) -> Result<StatusCode, Problem> {
    session::get_for_agent(&http_caller, &agent, &id).await?;
    let ask = pb::DeleteConversationRequest {
        conversation_id: id,
        ..pb::DeleteConversationRequest::default()
    };
    http_caller
        .services
        .delete_conversation(http_caller.request(ask))
        .await?;
    Ok(StatusCode::NO_CONTENT)
}
