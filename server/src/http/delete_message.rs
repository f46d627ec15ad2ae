//! DELETE /api/agents/{id}/sessions/{sid}/messages/{mid}.

use anneal_proto::v1::{self as pb, message_service_server::MessageService as _};
use axum::{http::HeaderMap, response::Response};
use serde::Deserialize;
use utoipa::IntoParams;

use super::{
    caller::{Authorized, EndpointRpcs},
    change::{self, MessageChange},
    extractors::{PathParams, QueryParams},
    problem::Problem,
    session,
};
use crate::verbs::Rpc;

/// Options of the deletion.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct DeleteMessageQuery {
    /// Withdraw only this message. Otherwise a tool call goes together with its results, and a
    /// result with its call.
    keep_tool_pairs_apart: bool,
    /// Erase the content of this message for good, instead of withdrawing it. Needs the verb admin,
    /// too. A tool call is erased without its results.
    erase: bool,
}

/// The RPCs of this endpoint, which looks up the session and withdraws one of its messages. To
/// erase it, the caller needs the verbs of EraseMessages as well.
pub(super) struct DeleteMessage;

impl EndpointRpcs for DeleteMessage {
    const RPCS: &'static [&'static Rpc] = &[
        Rpc::named("withdraw_messages"),
        Rpc::named("get_conversation"),
    ];
}

/// Withdraws a message.
///
/// The message keeps its id, but histories, contexts and new summaries no longer contain it. Its
/// content is kept, and `POST …/restore` brings it back. With `erase=true`, the content and all
/// that was made from it is gone for good.
#[utoipa::path(
    delete,
    path = "/api/agents/{id}/sessions/{sid}/messages/{mid}",
    params(
        ("id" = String, Path, description = "the agent"),
        ("sid" = String, Path, description = "the session"),
        ("mid" = i64, Path, description = "the message"),
        ("If-Match" = Option<String>, Header, description = "the ETag that the client has; if the stored one differs, the request fails with ETAG_MISMATCH"),
        DeleteMessageQuery
    ),
    responses((status = 200, body = MessageChange), (status = "default", body = Problem, content_type = "application/problem+json"))
)]
pub(super) async fn delete_message(
    Authorized(http_caller, _): Authorized<DeleteMessage>,
    PathParams((agent, id, message_id)): PathParams<(String, String, String)>,
    QueryParams(query): QueryParams<DeleteMessageQuery>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let message_id = change::parse_message_id(&message_id)?;
    let etag = session::if_match_etag(&headers)?;
    session::get_for_agent(&http_caller, &agent, &id).await?;
    let message_ids = vec![message_id];
    let changed = if query.erase {
        let ask = pb::EraseMessagesRequest {
            conversation_id: id,
            etag,
            message_ids,
            ..pb::EraseMessagesRequest::default()
        };
        let services = &http_caller.services;
        services.erase_messages(http_caller.request(ask)).await
    } else {
        let ask = pb::WithdrawMessagesRequest {
            conversation_id: id,
            etag,
            message_ids,
            keep_tool_pairs_apart: query.keep_tool_pairs_apart,
            ..pb::WithdrawMessagesRequest::default()
        };
        let services = &http_caller.services;
        services.withdraw_messages(http_caller.request(ask)).await
    };
    let change = changed.map_err(|status| Problem::of_message(&status))?;
    Ok(change::response(change.into_inner()))
}
