//! GET /api/agents/{id}/sessions.

use anneal_proto::v1::{self as pb, conversation_service_server::ConversationService as _};
use axum::response::Response;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::{
    door::{Allowed, Calls},
    json::{self, Parameters, Place},
    problem::Problem,
    session::{self, Session, SessionStatus},
};
use crate::verbs::Rpc;

/// Which sessions.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(rename_all = "camelCase", default)]
#[into_params(parameter_in = Query)]
pub(super) struct Wanted {
    /// 1 to 500; absent: 50.
    page_size: Option<i32>,
    /// From the answer before, with the same filters.
    page_token: Option<String>,
    /// Only sessions of this user.
    user_id: Option<String>,
    /// Only sessions with this status.
    #[param(inline)]
    status: Option<SessionStatus>,
}

/// A page of sessions.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct Sessions {
    /// Newest activity first.
    sessions: Vec<Session>,
    /// Empty when there is nothing more.
    next_page_token: String,
}

/// What listing sessions calls.
pub(super) struct ListSessions;

impl Calls for ListSessions {
    const RPCS: &'static [&'static Rpc] = &[Rpc::named("list_conversations")];
}

/// The agent's sessions, newest activity first.
#[utoipa::path(
    get,
    path = "/api/agents/{id}/sessions",
    params(("id" = String, Path, description = "the agent"), Wanted),
    responses((status = 200, body = Sessions), (status = "default", body = Problem, content_type = "application/problem+json"))
)]
pub(super) async fn list_sessions(
    Allowed(visitor, _): Allowed<ListSessions>,
    Place(agent): Place<String>,
    Parameters(wanted): Parameters<Wanted>,
) -> Result<Response, Problem> {
    let ask = pb::ListConversationsRequest {
        agent_id: session::agent(&agent)?.to_owned(),
        user_id: wanted.user_id.unwrap_or_default(),
        status: wanted.status.map_or(0, |status| pb::ConversationStatus::from(status).into()),
        title_prefix: String::new(),
        page_size: wanted.page_size.unwrap_or_default(),
        page_token: wanted.page_token.unwrap_or_default(),
    };
    let found = visitor.services.list_conversations(visitor.request(ask)).await?.into_inner();
    Ok(json::answer(&Sessions {
        sessions: found.conversations.into_iter().map(Session::from).collect(),
        next_page_token: found.next_page_token,
    }))
}
