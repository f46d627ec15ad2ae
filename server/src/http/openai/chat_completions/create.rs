//! POST /v1/chat/completions.

use axum::{
    http::{HeaderMap, HeaderName, HeaderValue},
    response::{IntoResponse as _, Response},
};
use serde_json::Value;

use super::{
    body::CompletionBody,
    completion::{self, Identity},
    stored::{Conversation, begin_unstored_turn},
    stream,
};
use crate::{
    http::{
        caller::{Authorized, EndpointRpcs, HttpCaller},
        extractors::{NoParams, QueryParams},
        json,
        openai::{
            body_values,
            errors::ApiError,
            ids,
            request::{self, ObjectBody},
        },
    },
    verbs::Rpc,
};

/// Names the conversation of a request, and of an answer whose messages are stored.
pub(in crate::http) const CONVERSATION: HeaderName = HeaderName::from_static("anneal-conversation");

/// The RPCs of this endpoint. Only `chat` is listed: its verbs, append and read, are enough for the
/// other RPCs that are called.
pub(super) struct ChatCompletion;

impl EndpointRpcs for ChatCompletion {
    const RPCS: &'static [&'static Rpc] = &[Rpc::named("chat")];
}

/// Answers the messages of a request, whole or in chunks.
pub(super) async fn create_completion(
    Authorized(http_caller, _): Authorized<ChatCompletion>,
    _: QueryParams<NoParams>,
    headers: HeaderMap,
    ObjectBody(body): ObjectBody,
) -> Result<Response, ApiError> {
    let named = headers.get(CONVERSATION);
    let names_conversation = named.is_some();
    let parse = move |body: Value| CompletionBody::parse(&body, names_conversation);
    let body = body_values::run_on(&http_caller, Value::Object(body), parse).await?;
    let mut body = body?;
    let key = request::idempotency_key(&headers)?;
    let key = (!key.is_empty()).then_some(key.as_str());
    let mut ignored = std::mem::take(&mut body.ignored);
    let conversation = match named {
        Some(name) => {
            let name = String::from_utf8_lossy(name.as_bytes());
            Some(Conversation::find(&http_caller, &name).await?)
        }
        None if body.store == Some(true) => {
            Some(Conversation::create(&http_caller, &body, key).await?)
        }
        None => {
            ignored.extend(key.map(|_| "Idempotency-Key".to_owned()));
            None
        }
    };
    let answered = answer(&http_caller, conversation.as_ref(), body, key).await;
    let has_failed = answered.is_err();
    let mut response = answered.unwrap_or_else(ApiError::into_response);
    if let Some(conversation) = conversation
        && !(has_failed && conversation.delete_if_empty(&http_caller).await)
    {
        let id = HeaderValue::try_from(ids::conversation_id(conversation.id))
            .expect("an id is visible ASCII");
        response.headers_mut().insert(CONVERSATION, id);
    }
    Ok(request::with_ignored(response, &ignored))
}

async fn answer(
    http_caller: &HttpCaller,
    conversation: Option<&Conversation>,
    body: CompletionBody,
    key: Option<&str>,
) -> Result<Response, ApiError> {
    let identity = Identity::new(body.model.clone());
    let (stream, includes_usage) = (body.stream, body.includes_usage);
    let mut events = match conversation {
        Some(conversation) => conversation.begin_turn(http_caller, body, key).await?,
        None => begin_unstored_turn(http_caller, body).await?,
    };
    if stream {
        return stream::respond(events, identity, includes_usage).await;
    }
    let completion = completion::collect(&mut events, identity).await?;
    Ok(json::response(&completion))
}
