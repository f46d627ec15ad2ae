//! GET /conversations: the list, newest activity first.

use anneal_core::caller::Bound;
use anneal_proto::v1::{self as pb, conversation_service_server::ConversationService as _};
use anneal_web::{
    conversations::{ConversationsPage, Filter, Row, Rows},
    layout::Place,
};
use axum::{extract::State, http::StatusCode, response::Response};
use serde::Deserialize;

use super::{paths, turn, view};
use crate::{
    http::{
        caller::{EndpointRpcs, HttpCaller},
        extractors::QueryParams,
        problem::Problem,
        state::HttpState,
        web::{
            error::WebError,
            page::{self, WebCaller},
        },
    },
    verbs::Rpc,
};

/// Conversations on one page of the list.
const PAGE_SIZE: i32 = 50;

/// The filters of the list, and the page.
#[derive(Debug, Default, Clone, Deserialize)]
#[serde(default)]
pub(super) struct ListQuery {
    /// Text that the title contains.
    text: String,
    agent: String,
    user: String,
    /// `active` or `archived`; empty: any.
    status: String,
    /// Token of the page; empty: the first one.
    page: String,
}

/// The RPC of this route.
pub(super) struct ListConversations;

impl EndpointRpcs for ListConversations {
    const RPCS: &'static [&'static Rpc] = &[Rpc::named("list_conversations")];
}

/// Shows a page of the list. Of later pages the script gets the rows alone.
pub(super) async fn list(
    State(state): State<HttpState>,
    WebCaller(http_caller, context, _): WebCaller<ListConversations>,
    QueryParams(query): QueryParams<ListQuery>,
) -> Result<Response, WebError> {
    let mut pinned = list_pinned_rows(&http_caller, &query).await?;
    let mut rows = list_rows(&http_caller, &query).await?;
    rows.rows
        .retain(|row| pinned.iter().all(|pinned| pinned.id != row.id));
    if !query.page.is_empty() {
        pinned.clear();
    }
    if context.is_htmx() && !query.page.is_empty() {
        return page::html(StatusCode::OK, rows.render());
    }
    let settings = state.services.state.settings.get();
    let bound = http_caller.caller.bound();
    let page = ConversationsPage {
        page: context.page("Conversations", Place::Conversations),
        agents_hint: agents(pinned.iter().chain(&rows.rows)),
        filter: Filter {
            text: query.text,
            agent: query.agent,
            user: query.user,
            status: query.status,
            user_is_fixed: matches!(bound, Some(Bound::User(_))),
            agent_is_fixed: matches!(bound, Some(Bound::Agent(_))),
        },
        pinned,
        rows,
        request_id: turn::random_request_id(),
        calls_models: settings.models.models.names().next().is_some(),
    };
    page::html(StatusCode::OK, page.render())
}

/// The rows of a page, and the address of the next one.
async fn list_rows(http_caller: &HttpCaller, query: &ListQuery) -> Result<Rows, Problem> {
    let ask = pb::ListConversationsRequest {
        page_size: PAGE_SIZE,
        page_token: query.page.clone(),
        ..filtered(query)?
    };
    let found = http_caller
        .services
        .list_conversations(http_caller.request(ask))
        .await?
        .into_inner();
    let next_url = if found.next_page_token.is_empty() {
        String::new()
    } else {
        let parameters = [
            ("text", query.text.as_str()),
            ("agent", &query.agent),
            ("user", &query.user),
            ("status", &query.status),
            ("page", &found.next_page_token),
        ];
        format!("/conversations{}", paths::query(&parameters))
    };
    Ok(Rows {
        rows: found.conversations.iter().map(view::row).collect(),
        next_url,
    })
}

/// The pinned conversations, which stand before the list.
async fn list_pinned_rows(
    http_caller: &HttpCaller,
    query: &ListQuery,
) -> Result<Vec<Row>, Problem> {
    let ask = pb::ListConversationsRequest {
        pinned_only: true,
        ..filtered(query)?
    };
    let found = http_caller
        .services
        .list_conversations(http_caller.request(ask))
        .await?
        .into_inner();
    Ok(found.conversations.iter().map(view::row).collect())
}

/// The request of a list with these filters.
fn filtered(query: &ListQuery) -> Result<pb::ListConversationsRequest, Problem> {
    let status = match query.status.as_str() {
        "" => pb::ConversationStatus::Unspecified,
        "active" => pb::ConversationStatus::Active,
        "archived" => pb::ConversationStatus::Archived,
        _ => return Err(Problem::invalid("status", "must be active or archived")),
    };
    Ok(pb::ListConversationsRequest {
        agent_id: query.agent.clone(),
        user_id: query.user.clone(),
        status: status.into(),
        title_contains: query.text.clone(),
        ..pb::ListConversationsRequest::default()
    })
}

/// The agents of these conversations, each once, which the page suggests.
fn agents<'r>(rows: impl Iterator<Item = &'r Row>) -> Vec<String> {
    let mut agents: Vec<String> = rows.map(|row| row.agent.clone()).collect();
    agents.sort_unstable();
    agents.dedup();
    agents
}
