//! POST /v1/conversations.

use std::collections::HashMap;

use anneal_proto::v1::{
    self as pb, conversation_service_server::ConversationService as _,
    message_service_server::MessageService as _,
};
use axum::{http::HeaderMap, response::Response};
use serde_json::Value;

use super::conversation::{self, param_name};
use crate::{
    http::{
        caller::{Authorized, EndpointRpcs, HttpCaller},
        extractors::{NoParams, QueryParams},
        openai::{
            body_values,
            errors::ApiError,
            fields::Fields,
            items::InputItem,
            request::{self, ObjectBody},
        },
        problem::Problem,
    },
    verbs::Rpc,
};

/// The RPCs of this endpoint, which creates a conversation and appends its first items.
pub(super) struct CreateConversation;

impl EndpointRpcs for CreateConversation {
    const RPCS: &'static [&'static Rpc] = &[
        Rpc::named("create_conversation"),
        Rpc::named("append_messages"),
    ];
}

/// A body, read and checked.
struct NewConversation {
    metadata: HashMap<String, String>,
    items: Vec<InputItem>,
    /// Parameters that have no effect.
    ignored: Vec<String>,
}

impl NewConversation {
    fn parse(body: &Value) -> Result<Self, ApiError> {
        let mut fields = Fields::of_body(body)?;
        let metadata = fields.value("metadata").map(request::parse_metadata);
        Ok(Self {
            metadata: metadata.transpose()?.unwrap_or_default(),
            items: conversation::parse_items(&mut fields)?,
            ignored: fields.ignored(),
        })
    }
}

/// Creates a conversation, with items if the body has some.
pub(super) async fn create_conversation(
    Authorized(http_caller, _): Authorized<CreateConversation>,
    _: QueryParams<NoParams>,
    headers: HeaderMap,
    ObjectBody(body): ObjectBody,
) -> Result<Response, ApiError> {
    let request_id = request::idempotency_key(&headers)?;
    let parse = |body: Value| NewConversation::parse(&body);
    let body = body_values::run_on(&http_caller, Value::Object(body), parse).await??;
    let messages = conversation::open_items(&http_caller, body.items).await?;
    let ask = pb::CreateConversationRequest {
        request_id: request_id.clone(),
        metadata: body.metadata,
        // Calls and their outputs are items, also where the server's settings do not keep them.
        policy: Some(pb::Policy {
            store_tool_messages: Some(true),
            ..pb::Policy::default()
        }),
        ..pb::CreateConversationRequest::default()
    };
    let created = http_caller
        .services
        .create_conversation(http_caller.request(ask))
        .await?
        .into_inner();
    if !messages.is_empty() {
        append_first(
            &http_caller,
            &created.conversation_id,
            &request_id,
            messages,
        )
        .await?;
    }
    let response = conversation::response(&created)?;
    Ok(request::with_ignored(response, &body.ignored))
}

/// Appends the first items. If that fails, the conversation is deleted, unless a repetition of the
/// request would find it.
async fn append_first(
    http_caller: &HttpCaller,
    conversation_id: &str,
    request_id: &str,
    messages: Vec<pb::NewMessage>,
) -> Result<(), ApiError> {
    let ask = pb::AppendMessagesRequest {
        conversation_id: conversation_id.to_owned(),
        request_id: request_id.to_owned(),
        messages,
        expected_last_message_id: None,
    };
    let services = &http_caller.services;
    let Err(refused) = services.append_messages(http_caller.request(ask)).await else {
        return Ok(());
    };
    if request_id.is_empty() {
        let ask = pb::DeleteConversationRequest {
            conversation_id: conversation_id.to_owned(),
            ..pb::DeleteConversationRequest::default()
        };
        // Nobody knows the conversation. If it cannot be deleted, it stays empty.
        drop(services.delete_conversation(http_caller.request(ask)).await);
    }
    let problem = Problem::of_rpc(&refused);
    Err(ApiError::of_problem(&problem, param_name))
}
