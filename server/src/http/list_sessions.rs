//! GET /api/agents/{id}/sessions.

use anneal_proto::v1::{self as pb, conversation_service_server::ConversationService as _};
use axum::response::Response;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::{
    caller::{Authorized, EndpointRpcs},
    extractors::{PathParams, QueryParams},
    json,
    problem::Problem,
    session::{self, Session, SessionStatus},
};
use crate::verbs::Rpc;

/// The filters of the list, and the page.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct ListSessionsQuery {
    /// Most sessions in the answer, 1 to 500; absent: 50.
    page_size: Option<i32>,
    /// `nextPageToken` of the previous page; the filters must be the same.
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
    /// Empty on the last page.
    next_page_token: String,
}

/// The RPCs of this endpoint.
pub(super) struct ListSessions;

impl EndpointRpcs for ListSessions {
    const RPCS: &'static [&'static Rpc] = &[Rpc::named("list_conversations")];
}

/// The agent's sessions, newest activity first.
#[utoipa::path(
    get,
    path = "/api/agents/{id}/sessions",
    params(("id" = String, Path, description = "the agent"), ListSessionsQuery),
    responses((status = 200, body = Sessions), (status = "default", body = Problem, content_type = "application/problem+json"))
)]
pub(super) async fn list_sessions(
    Authorized(http_caller, _): Authorized<ListSessions>,
    PathParams(agent): PathParams<String>,
    QueryParams(query): QueryParams<ListSessionsQuery>,
) -> Result<Response, Problem> {
    let ask = pb::ListConversationsRequest {
        agent_id: session::parse_agent_id(&agent)?.to_owned(),
        user_id: query.user_id.unwrap_or_default(),
        status: query
            .status
            .map_or(0, |status| pb::ConversationStatus::from(status).into()),
        page_size: query.page_size.unwrap_or_default(),
        page_token: query.page_token.unwrap_or_default(),
        ..pb::ListConversationsRequest::default()
    };
    let found = http_caller
        .services
        .list_conversations(http_caller.request(ask))
        .await?
        .into_inner();
    Ok(json::response(&Sessions {
        sessions: found.conversations.into_iter().map(Session::from).collect(),
        next_page_token: found.next_page_token,
    }))
}
