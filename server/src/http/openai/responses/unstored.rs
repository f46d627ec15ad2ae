//! Begins a response of which nothing is stored.

use anneal_proto::v1::{self as pb, chat_response::Event};
use futures::StreamExt as _;
use uuid::Uuid;

use super::{
    create_body::{CreateBody, Origin, no_previous_response},
    events::{ItemIds, Translator},
    input,
    outcome::now,
    parameters::{Identity, ShownRequest, merge_options},
    record::Record,
    run::{RunningResponse, UnstoredHistory},
    target::Point,
};
use crate::{
    failure::Failure,
    http::{
        HttpState,
        caller::HttpCaller,
        openai::{
            errors::ApiError,
            ids::{parse_response_id, response_id},
        },
    },
};

/// Whether the request continues this response of its connection.
pub(super) fn continues(body: &CreateBody, earlier: Option<&UnstoredHistory>) -> bool {
    let Origin::Response(id) = body.origin else {
        return false;
    };
    earlier.is_some_and(|earlier| earlier.response_id == response_id(id))
}

/// Begins a response. `earlier`: the last one of the same connection.
pub(super) async fn begin(
    state: &HttpState,
    caller: &HttpCaller,
    body: &CreateBody,
    earlier: Option<&UnstoredHistory>,
) -> Result<RunningResponse, ApiError> {
    let new = input::read(caller, body.input()?).await?;
    input::check_last(&new)?;
    let mut messages = match earlier.filter(|_| continues(body, earlier)) {
        Some(earlier) => earlier.messages.clone(),
        None => load_previous(state, caller, body).await?,
    };
    messages.extend(new);
    input::refuse_results(&input::find_missing_calls(&messages))?;
    let id = response_id(Uuid::new_v4());
    let options = merge_options(body, None);
    let settings = state.services.state.settings.get();
    let model = body.model.as_deref().or(settings.chat.model.first());
    let identity = Identity {
        id: &id,
        created_at: now(),
        model: model.unwrap_or_default(),
    };
    let shown = ShownRequest::new(&identity, body, &options);
    let ask = pb::ChatRequest {
        messages: messages.clone(),
        model: body.model.clone().unwrap_or_default(),
        system_prompt: body.instructions.clone(),
        options: (options != pb::ChatOptions::default()).then_some(options),
        on_overflow: body.reduction.on_overflow().into(),
        ..pb::ChatRequest::default()
    };
    let ask = caller.request(ask);
    let mut events = caller
        .services
        .chat_without_storing(ask)
        .await?
        .into_inner();
    // A refusal is an error of the request, so the first event is awaited.
    match events.next().await {
        Some(Ok(response)) if matches!(response.event, Some(Event::Started(_))) => {}
        Some(Err(status)) => return Err(status.into()),
        Some(Ok(_)) | None => return Err(Failure::Panicked.into()),
    }
    let translator = Translator::new(shown, ItemIds::Random, None);
    Ok(RunningResponse::of_unstored(
        id, translator, events, messages,
    ))
}

/// The messages of the stored response that the request continues, and of those before it.
async fn load_previous(
    state: &HttpState,
    caller: &HttpCaller,
    body: &CreateBody,
) -> Result<Vec<pb::NewMessage>, ApiError> {
    match body.origin {
        Origin::Response(id) => load_history(state, caller, &response_id(id)).await,
        Origin::Nothing | Origin::Conversation(_) => Ok(Vec::new()),
    }
}

/// The messages of a stored response, input and output, and of those before it.
pub(in crate::http::openai) async fn load_history(
    state: &HttpState,
    caller: &HttpCaller,
    id: &str,
) -> Result<Vec<pb::NewMessage>, ApiError> {
    let uuid = parse_response_id(id).ok_or_else(|| no_previous_response(id))?;
    let record = Record::find(state, caller, uuid).await?;
    let mut record = record.ok_or_else(|| no_previous_response(id))?;
    let point = Point::of_response(&mut record).await?;
    input::load_messages(caller, point.conversation, point.last.0).await
}
