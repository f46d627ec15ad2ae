//! DELETE /api/agents/{id}/sessions/{sid}.

use anneal_proto::v1::{self as pb, conversation_service_server::ConversationService as _};
use axum::http::StatusCode;

use super::{
    door::{Allowed, Calls},
    json::Place,
    problem::Problem,
    session,
};
use crate::verbs::Rpc;

/// What deleting a session calls: it is looked up, and deleted.
pub(super) struct DeleteSession;

impl Calls for DeleteSession {
    const RPCS: &'static [&'static Rpc] = &[Rpc::named("delete_conversation"), Rpc::named("get_conversation")];
}

/// Deletes the session and everything derived from it.
#[utoipa::path(
    delete,
    path = "/api/agents/{id}/sessions/{sid}",
    params(("id" = String, Path, description = "the agent"), ("sid" = String, Path, description = "the session")),
    responses((status = 204), (status = "default", body = Problem, content_type = "application/problem+json"))
)]
pub(super) async fn delete_session(
    Allowed(visitor, _): Allowed<DeleteSession>,
    Place((agent, id)): Place<(String, String)>,
) -> Result<StatusCode, Problem> {
    session::of_agent(&visitor, &agent, &id).await?;
    let ask = pb::DeleteConversationRequest { conversation_id: id, request_id: String::new() };
    visitor.services.delete_conversation(visitor.request(ask)).await?;
    Ok(StatusCode::NO_CONTENT)
}
