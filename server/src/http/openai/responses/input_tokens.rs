//! POST /v1/responses/input_tokens: how many tokens a create would send. The figure is an estimate:
//! the server counts with the encoding that is nearest to the model's, and the provider's own frame
//! is not known before a call.

use anneal_core::{
    caller::ConversationId,
    limits::UNSTORED_MESSAGES,
    tokens::{Encoding, FRAMING_PER_MESSAGE, Tokens},
};
use anneal_proto::{
    convert::{chat_options, message},
    v1::{
        self as pb, context_service_server::ContextService as _,
        conversation_service_server::ConversationService as _,
    },
};
use axum::{extract::State, response::Response};
use prost::Message as _;
use serde_json::{Value, json};

use super::{
    create_body::{CreateBody, Origin, no_previous_response},
    input::{self, no_conversation},
    parameters::{inherited_options, merge_options},
    record::Record,
    target::Point,
};
use crate::{
    failure::Failure,
    http::{
        HttpState,
        caller::{Authorized, EndpointRpcs, HttpCaller},
        extractors::{NoParams, QueryParams},
        json,
        openai::{body_values, errors::ApiError, ids::response_id, request::ObjectBody},
    },
    limits::cpu_pool,
    verbs::Rpc,
};

/// Most messages that a context may end with which are not stored.
const CURRENT_MESSAGES: usize = 100;

/// The RPCs of this endpoint.
pub(super) struct CountInputTokens;

impl EndpointRpcs for CountInputTokens {
    const RPCS: &'static [&'static Rpc] = &[
        Rpc::named("build_context"),
        Rpc::named("get_conversation"),
        Rpc::named("list_messages"),
    ];
}

/// The tokens that a create with this body would send.
pub(super) async fn count_input_tokens(
    State(state): State<HttpState>,
    Authorized(http_caller, _): Authorized<CountInputTokens>,
    _: QueryParams<NoParams>,
    ObjectBody(body): ObjectBody,
) -> Result<Response, ApiError> {
    let body = Value::Object(body);
    let body = body_values::run_on(&http_caller, body, CreateBody::parse).await??;
    let settings = state.services.state.settings.get();
    if let Some(name) = &body.model
        && settings.models.models.find(name).is_none()
    {
        return Err(Failure::model_not_configured(name.clone()).into());
    }
    let messages = match body.input() {
        Ok(input) => input::read(&http_caller, input).await?,
        Err(missing) if body.origin == Origin::Nothing => return Err(missing),
        Err(_) => Vec::new(),
    };
    let tokens = match body.origin {
        Origin::Nothing => estimate_request(&http_caller, body, messages).await?,
        Origin::Conversation(id) => {
            count_context(&http_caller, &body, (id, None), messages).await?
        }
        Origin::Response(id) => {
            let record = Record::find(&state, &http_caller, id).await?;
            let mut record = record.ok_or_else(|| no_previous_response(&response_id(id)))?;
            let point = Point::of_response(&mut record).await?;
            let place = (point.conversation, Some(point.last.0));
            count_context(&http_caller, &body, place, messages).await?
        }
    };
    Ok(json::response(
        &json!({"object": "response.input_tokens", "input_tokens": tokens}),
    ))
}

/// The tokens of a context that ends with these messages. `last`: the last stored message that it
/// has; None: the newest.
async fn count_context(
    caller: &HttpCaller,
    body: &CreateBody,
    (id, last): (ConversationId, Option<i64>),
    mut messages: Vec<pb::NewMessage>,
) -> Result<u64, ApiError> {
    let not_found = |status: tonic::Status| match status.code() {
        tonic::Code::NotFound => no_conversation(id),
        _ => status.into(),
    };
    let ask = pb::GetConversationRequest {
        conversation_id: id.to_string(),
    };
    let conversation = caller.services.get_conversation(caller.request(ask)).await;
    let conversation = conversation.map_err(not_found)?.into_inner();
    if let Some(last) = last.filter(|last| *last != conversation.message_count) {
        // A fork would be made, whose context is not built for a count.
        let earlier = input::load_messages(caller, id, last).await?;
        messages.splice(0..0, earlier);
        return estimate_request(caller, body.clone(), messages).await;
    }
    let current = messages.split_off(messages.len().saturating_sub(CURRENT_MESSAGES));
    let ask = pb::BuildContextRequest {
        conversation_id: id.to_string(),
        current_input: current,
        system_prompt: body.instructions.clone(),
        model: body.model.clone().unwrap_or_default(),
        dry_run: true,
        ..pb::BuildContextRequest::default()
    };
    let built = caller.services.build_context(caller.request(ask)).await;
    let context = built.map_err(not_found)?.into_parts().1.total_tokens;
    let inherited = inherited_options(&caller.services.state.settings.get(), &conversation)?;
    let counted = CreateBody {
        // The context has them.
        instructions: None,
        ..body.clone()
    };
    let further = estimate(caller, counted, messages, Some(inherited)).await?;
    Ok(context + further)
}

/// The tokens of a request without stored messages.
async fn estimate_request(
    caller: &HttpCaller,
    body: CreateBody,
    messages: Vec<pb::NewMessage>,
) -> Result<u64, ApiError> {
    estimate(caller, body, messages, None).await
}

/// The tokens of instructions, messages and tools: on the CPU pool, if they are long.
async fn estimate(
    caller: &HttpCaller,
    body: CreateBody,
    messages: Vec<pb::NewMessage>,
    inherited: Option<pb::ChatOptions>,
) -> Result<u64, ApiError> {
    let of_messages: usize = messages.iter().map(pb::NewMessage::encoded_len).sum();
    let of_instructions = body.instructions.as_ref().map_or(0, String::len);
    let is_long = cpu_pool::is_long(of_messages + of_instructions, messages.len());
    let work = move || {
        let encoding = encoding_of(&body);
        let instructions = body.instructions.as_ref().map_or(0, |instructions| {
            (encoding.estimate(instructions) + FRAMING_PER_MESSAGE).get()
        });
        let messages = estimate_messages(messages, encoding)?;
        Ok(instructions + messages + estimate_tools(&body, inherited.as_ref(), encoding)?)
    };
    let cpu = &caller.services.state.cpu;
    cpu.run_if(is_long, caller.caller.tenant(), work).await?
}

fn encoding_of(body: &CreateBody) -> Encoding {
    let model = body.model.as_deref();
    model.and_then(Encoding::of_model).unwrap_or_default()
}

fn estimate_messages(messages: Vec<pb::NewMessage>, encoding: Encoding) -> Result<u64, ApiError> {
    if messages.is_empty() {
        return Ok(0);
    }
    let messages = message::parse_up_to("input", messages, UNSTORED_MESSAGES)?;
    let tokens = messages
        .iter()
        .map(|message| encoding.estimate_message(message) + FRAMING_PER_MESSAGE);
    Ok(tokens.sum::<Tokens>().get())
}

/// The tokens of the tools.
fn estimate_tools(
    body: &CreateBody,
    inherited: Option<&pb::ChatOptions>,
    encoding: Encoding,
) -> Result<u64, ApiError> {
    let options = merge_options(body, inherited);
    let options = chat_options::parse("options", options)?;
    let tools = options.tools().iter();
    let tokens = tools.map(|tool| tool.estimate_tokens(encoding));
    Ok(tokens.sum::<Tokens>().get())
}
