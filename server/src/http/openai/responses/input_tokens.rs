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
    check_model(&state, &body)?;
    let messages = match body.input() {
        Ok(input) => input::read(&http_caller, input).await?,
        Err(missing) if body.origin == Origin::Nothing => return Err(missing),
        Err(_) => Vec::new(),
    };
    let tokens = match body.origin {
        Origin::Nothing => {
            let estimate = Estimate {
                instructions: body.instructions.clone().unwrap_or_default(),
                input: messages,
                ..Estimate::of_options(&body, None)
            };
            estimate.count(&http_caller).await?
        }
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

/// Refuses a model that a create would refuse.
fn check_model(state: &HttpState, body: &CreateBody) -> Result<(), ApiError> {
    let settings = state.services.state.settings.get();
    match &body.model {
        Some(name) if settings.models.models.find(name).is_none() => {
            Err(Failure::model_not_configured(name.clone()).into())
        }
        Some(_) | None => Ok(()),
    }
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
    let inherited = inherited_options(&caller.services.state.settings.get(), &conversation)?;
    if let Some(last) = last.filter(|last| !body.store || *last != conversation.message_count) {
        // Nothing would be stored, or a fork would be made: neither context is built for a count.
        let (inherited, own_prompt) = if body.store {
            (Some(&inherited), conversation.system_prompt)
        } else {
            (None, String::new())
        };
        let estimate = Estimate {
            instructions: body.instructions.clone().unwrap_or(own_prompt),
            earlier: input::load_messages(caller, id, last).await?,
            input: messages,
            ..Estimate::of_options(body, inherited)
        };
        return estimate.count(caller).await;
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
    let estimate = Estimate {
        input: messages,
        ..Estimate::of_options(body, Some(&inherited))
    };
    Ok(context + estimate.count(caller).await?)
}

/// The parts of a request whose tokens are estimated.
struct Estimate {
    encoding: Encoding,
    instructions: String,
    /// Messages that stand before the input.
    earlier: Vec<pb::NewMessage>,
    input: Vec<pb::NewMessage>,
    /// The options of the turn, with its tools.
    options: pb::ChatOptions,
}

impl Estimate {
    /// An estimate of the tools alone. `inherited`: the options of the conversation.
    fn of_options(body: &CreateBody, inherited: Option<&pb::ChatOptions>) -> Self {
        let model = body.model.as_deref();
        Self {
            encoding: model.and_then(Encoding::of_model).unwrap_or_default(),
            instructions: String::new(),
            earlier: Vec::new(),
            input: Vec::new(),
            options: merge_options(body, inherited),
        }
    }

    /// The tokens, counted on the CPU pool if that takes long.
    async fn count(self, caller: &HttpCaller) -> Result<u64, ApiError> {
        let messages = || self.earlier.iter().chain(&self.input);
        let bytes: usize = messages().map(pb::NewMessage::encoded_len).sum();
        let bytes = bytes + self.instructions.len() + self.options.encoded_len();
        let is_long = cpu_pool::is_long(bytes, messages().count());
        let cpu = &caller.services.state.cpu;
        cpu.run_if(is_long, caller.caller.tenant(), move || self.tokens())
            .await?
    }

    fn tokens(self) -> Result<u64, ApiError> {
        let encoding = self.encoding;
        let instructions = if self.instructions.is_empty() {
            Tokens::ZERO
        } else {
            encoding.estimate(&self.instructions) + FRAMING_PER_MESSAGE
        };
        let earlier = estimate_messages(self.earlier, encoding)?;
        let input = estimate_messages(self.input, encoding)?;
        let options = chat_options::parse("options", self.options)?;
        let tools = options.tools().iter();
        let tools: Tokens = tools.map(|tool| tool.estimate_tokens(encoding)).sum();
        Ok((instructions + earlier + input + tools).get())
    }
}

fn estimate_messages(
    messages: Vec<pb::NewMessage>,
    encoding: Encoding,
) -> Result<Tokens, ApiError> {
    let messages = message::parse_up_to("input", messages, UNSTORED_MESSAGES)?;
    let tokens = messages
        .iter()
        .map(|message| encoding.estimate_message(message) + FRAMING_PER_MESSAGE);
    Ok(tokens.sum())
}

#[cfg(test)]
mod tests {
    use anneal_proto::convert::message::text_message;

    use super::*;

    fn estimate(instructions: &str, earlier: usize, input: usize) -> Result<u64, ApiError> {
        let body = CreateBody::parse(json!({"input": "a"})).expect("is valid");
        let messages = |count| vec![text_message(pb::Role::User, "one word"); count];
        let estimate = Estimate {
            instructions: instructions.to_owned(),
            earlier: messages(earlier),
            input: messages(input),
            ..Estimate::of_options(&body, None)
        };
        estimate.tokens()
    }

    #[test]
    fn as_many_messages_are_estimated_as_a_create_accepts() {
        let one = estimate("", 0, 1).expect("is counted");
        assert!(one > 0);
        let most = UNSTORED_MESSAGES;
        assert_eq!(estimate("", 0, 101), Ok(101 * one));
        assert_eq!(estimate("", most, most), Ok(2 * most as u64 * one));
        let refused = estimate("", 0, most + 1).expect_err("is refused");
        assert_eq!(
            (refused.status(), refused.code()),
            (400, Some("limit_exceeded"))
        );
    }

    #[test]
    fn instructions_are_estimated_unless_there_are_none() {
        let one = estimate("", 0, 1).expect("is counted");
        assert_eq!(estimate("", 0, 0), Ok(0));
        assert!(estimate("Be brief.", 0, 1).expect("is counted") > one);
    }
}
