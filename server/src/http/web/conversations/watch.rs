//! GET /conversations/{id}/events: what happens in a conversation, without content.

use anneal_proto::v1::{self as pb, message_service_server::MessageService as _};
use axum::{http::HeaderMap, response::Response};
use serde::Deserialize;

use crate::http::{
    caller::EndpointRpcs,
    events,
    extractors::{PathParams, QueryParams},
    sse::LAST_EVENT_ID,
    web::{csrf, error::WebError, page::WebCaller},
};
use crate::verbs::Rpc;

/// Where the watch begins.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct WatchQuery {
    /// The newest message that the page shows.
    after: Option<i64>,
}

/// The RPC of this route.
pub(super) struct Watch;

impl EndpointRpcs for Watch {
    const RPCS: &'static [&'static Rpc] = &[Rpc::named("watch_conversation")];
}

/// Watches a conversation. The page fetches what an event names.
pub(super) async fn watch(
    WebCaller(http_caller, ..): WebCaller<Watch>,
    PathParams(id): PathParams<String>,
    QueryParams(query): QueryParams<WatchQuery>,
    headers: HeaderMap,
) -> Result<Response, WebError> {
    csrf::check_is_own_stream(&headers)?;
    let position = headers
        .get(LAST_EVENT_ID)
        .map(|id| String::from_utf8_lossy(id.as_bytes()).into_owned());
    let ask = pb::WatchConversationRequest {
        conversation_id: id,
        position: position.unwrap_or_default(),
        after_message_id: query.after,
        without_content: true,
    };
    let watch_events = http_caller
        .services
        .watch_conversation(http_caller.request(ask))
        .await?
        .into_inner();
    Ok(events::response(watch_events).await?)
}
