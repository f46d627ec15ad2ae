//! GET and POST /conversations/{id}/delete: says what goes with a conversation, and deletes it.

use anneal_proto::v1::{
    self as pb, context_service_server::ContextService as _,
    conversation_service_server::ConversationService as _,
};
use anneal_store::StoreError;
use anneal_web::{
    conversations::{Count, DeletePage},
    layout::Place,
};
use axum::{http::StatusCode, response::Response};
use serde::Deserialize;

use super::view;
use crate::{
    failure::Failure,
    http::{
        caller::{EndpointRpcs, HttpCaller},
        extractors::PathParams,
        problem::Problem,
        web::{
            error::WebError,
            form::Form,
            page::{self, NoticeCode, WebCaller},
        },
    },
    verbs::Rpc,
};

/// Checkpoints and forks that are counted at most.
const MOST_COUNTED: i32 = 500;

/// The fields of the form.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Confirmation {
    /// The etag that the page shows: the conversation is deleted as it was seen.
    etag: String,
    /// `yes`: the page that asks was seen.
    confirm: String,
}

/// The RPCs of these routes.
pub(super) struct DeleteConversation;

impl EndpointRpcs for DeleteConversation {
    const RPCS: &'static [&'static Rpc] = &[
        Rpc::named("get_conversation"),
        Rpc::named("list_checkpoints"),
        Rpc::named("list_conversations"),
        Rpc::named("delete_conversation"),
    ];
}

/// Asks whether a conversation is to be deleted.
pub(super) async fn ask(
    WebCaller(http_caller, context, _): WebCaller<DeleteConversation>,
    PathParams(id): PathParams<String>,
) -> Result<Response, WebError> {
    let conversation = super::get_conversation(&http_caller, &id).await?;
    let page = DeletePage {
        page: context.page("Delete a conversation", Place::Conversations),
        row: view::row(&conversation),
        messages: conversation.message_count,
        checkpoints: count_checkpoints(&http_caller, &id).await?,
        forks: count_forks(&http_caller, &id).await?,
        etag: conversation.etag,
    };
    page::html(StatusCode::OK, page.render())
}

/// Deletes a conversation, if it is as it was when the page asked.
pub(super) async fn delete(
    WebCaller(http_caller, ..): WebCaller<DeleteConversation>,
    PathParams(id): PathParams<String>,
    Form(confirmation): Form<Confirmation>,
) -> Result<Response, WebError> {
    if confirmation.confirm != "yes" {
        return Err(Problem::invalid("confirm", "must be yes").into());
    }
    let conversation = super::get_conversation(&http_caller, &id).await?;
    if !confirmation.etag.is_empty() && confirmation.etag != conversation.etag {
        return Err(Problem::from(Failure::from(StoreError::EtagMismatch)).into());
    }
    let ask = pb::DeleteConversationRequest {
        conversation_id: id,
        ..pb::DeleteConversationRequest::default()
    };
    http_caller
        .services
        .delete_conversation(http_caller.request(ask))
        .await?;
    Ok(page::see_other("/conversations", Some(NoticeCode::Deleted)))
}

/// The number of checkpoints that hold, up to [`MOST_COUNTED`].
async fn count_checkpoints(http_caller: &HttpCaller, id: &str) -> Result<Count, Problem> {
    let ask = pb::ListCheckpointsRequest {
        conversation_id: id.to_owned(),
        page_size: MOST_COUNTED,
        ..pb::ListCheckpointsRequest::default()
    };
    let found = http_caller
        .services
        .list_checkpoints(http_caller.request(ask))
        .await?
        .into_inner();
    Ok(Count {
        value: found.checkpoints.len() as u64,
        has_more: !found.next_page_token.is_empty(),
    })
}

/// The number of forks, up to [`MOST_COUNTED`]. They stay.
async fn count_forks(http_caller: &HttpCaller, id: &str) -> Result<Count, Problem> {
    let ask = pb::ListConversationsRequest {
        forked_from_conversation_id: id.to_owned(),
        page_size: MOST_COUNTED,
        ..pb::ListConversationsRequest::default()
    };
    let found = http_caller
        .services
        .list_conversations(http_caller.request(ask))
        .await?
        .into_inner();
    Ok(Count {
        value: found.conversations.len() as u64,
        has_more: !found.next_page_token.is_empty(),
    })
}
