//! POST /conversations/{id}/rename, /pin and /archive: what the list shows of a conversation.

use anneal_proto::v1::{self as pb, conversation_service_server::ConversationService as _};
use axum::response::Response;
use prost_types::FieldMask;
use serde::Deserialize;

use super::paths;
use crate::{
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

/// The fields of a new title.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Rename {
    title: String,
    /// The etag that the page shows. Empty: not checked.
    etag: String,
}

/// The fields of a switch.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Switch {
    on: bool,
    /// The etag that the page shows. Empty: not checked.
    etag: String,
}

/// The RPC of these routes.
pub(super) struct UpdateConversation;

impl EndpointRpcs for UpdateConversation {
    const RPCS: &'static [&'static Rpc] = &[Rpc::named("update_conversation")];
}

/// Gives a conversation another title.
pub(super) async fn rename(
    WebCaller(http_caller, ..): WebCaller<UpdateConversation>,
    PathParams(id): PathParams<String>,
    Form(rename): Form<Rename>,
) -> Result<Response, WebError> {
    let conversation = pb::Conversation {
        conversation_id: id.clone(),
        title: rename.title,
        ..pb::Conversation::default()
    };
    update(&http_caller, conversation, "title", rename.etag).await?;
    Ok(page::see_other(
        &paths::conversation(&id),
        Some(NoticeCode::Saved),
    ))
}

/// Shows a conversation before the others, or among them again.
pub(super) async fn pin(
    WebCaller(http_caller, ..): WebCaller<UpdateConversation>,
    PathParams(id): PathParams<String>,
    Form(switch): Form<Switch>,
) -> Result<Response, WebError> {
    let conversation = pb::Conversation {
        conversation_id: id.clone(),
        pinned: switch.on,
        ..pb::Conversation::default()
    };
    update(&http_caller, conversation, "pinned", switch.etag).await?;
    Ok(page::see_other(
        &paths::conversation(&id),
        Some(NoticeCode::Saved),
    ))
}

/// Archives a conversation, or makes it active again.
pub(super) async fn archive(
    WebCaller(http_caller, ..): WebCaller<UpdateConversation>,
    PathParams(id): PathParams<String>,
    Form(switch): Form<Switch>,
) -> Result<Response, WebError> {
    let (status, notice) = if switch.on {
        (pb::ConversationStatus::Archived, NoticeCode::Archived)
    } else {
        (pb::ConversationStatus::Active, NoticeCode::Unarchived)
    };
    let conversation = pb::Conversation {
        conversation_id: id.clone(),
        status: status.into(),
        ..pb::Conversation::default()
    };
    update(&http_caller, conversation, "status", switch.etag).await?;
    Ok(page::see_other(&paths::conversation(&id), Some(notice)))
}

async fn update(
    http_caller: &HttpCaller,
    conversation: pb::Conversation,
    field: &str,
    etag: String,
) -> Result<(), Problem> {
    let ask = pb::UpdateConversationRequest {
        conversation: Some(conversation),
        update_mask: Some(FieldMask {
            paths: vec![field.to_owned()],
        }),
        etag,
        ..pb::UpdateConversationRequest::default()
    };
    http_caller
        .services
        .update_conversation(http_caller.request(ask))
        .await?;
    Ok(())
}
