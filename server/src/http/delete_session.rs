//! DELETE /api/agents/{id}/sessions/{sid}.

use anneal_proto::v1::{self as pb, conversation_service_server::ConversationService as _};
use axum::http::StatusCode;

use super::{door::Visitor, json::Place, problem::Problem, session};

/// Deletes the session and everything derived from it.
#[utoipa::path(
    delete,
    path = "/api/agents/{id}/sessions/{sid}",
    params(("id" = String, Path, description = "the agent"), ("sid" = String, Path, description = "the session")),
    responses((status = 204), (status = "default", body = Problem, content_type = "application/problem+json"))
)]
pub(super) async fn delete_session(
    visitor: Visitor,
    Place((agent, id)): Place<(String, String)>,
) -> Result<StatusCode, Problem> {
    session::of_agent(&visitor, &agent, &id).await?;
    let ask = pb::DeleteConversationRequest { conversation_id: id, request_id: String::new() };
    visitor.services.delete_conversation(visitor.request(ask)).await?;
    Ok(StatusCode::NO_CONTENT)
}
