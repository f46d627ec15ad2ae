//! Chat.

use std::panic::{AssertUnwindSafe, catch_unwind};

use anneal_core::{
    caller::ConversationId,
    chat_options::ChatOptions,
    limits::{FALLBACK_MODELS, UNSTORED_MESSAGES},
    message::{Message, Role},
    tokens::Tokens,
};
use anneal_proto::{
    convert::{chat_options, message, parse},
    v1 as pb,
};
use prost::Message as _;
use tonic::{Response, Status};
use tracing::Instrument as _;

use crate::{
    failure::Failure,
    limits::cpu_pool,
    rpc_call::{NewRequestId, RpcCall},
    state::ServerState,
    usecases::chat_turn::{self, Events, OnDisconnect, OnOverflow, TurnPrompt, TurnRequest},
};

/// Runs one turn: stores the prompt, calls a model, streams and stores its answer. With a new
/// request id it is not looked for among the turns that have ended.
pub(crate) async fn chat(
    state: &ServerState,
    call: RpcCall,
    ask: pb::ChatRequest,
    new_id: Option<NewRequestId>,
) -> Result<Response<Events>, Status> {
    let parse = move |ask: pb::ChatRequest| -> Result<TurnRequest, Failure> {
        let turn = parse(ask)?;
        Ok(TurnRequest {
            is_repeatable: turn.is_repeatable && new_id.is_none(),
            ..turn
        })
    };
    parse_and_begin(state, call, ask, parse).await
}

/// Runs one turn of which nothing is stored: calls a model, and streams its answer.
pub(crate) async fn chat_without_storing(
    state: &ServerState,
    call: RpcCall,
    ask: pb::ChatRequest,
) -> Result<Response<Events>, Status> {
    parse_and_begin(state, call, ask, parse_unstored).await
}

async fn parse_and_begin(
    state: &ServerState,
    call: RpcCall,
    ask: pb::ChatRequest,
    parse: impl FnOnce(pb::ChatRequest) -> Result<TurnRequest, Failure> + Send + 'static,
) -> Result<Response<Events>, Status> {
    let is_long = cpu_pool::is_long(ask.encoded_len(), 0);
    // A panic fails this call alone. Unwinding further would close the connection, and with it
    // other calls.
    let parse_or_fail =
        move || catch_unwind(AssertUnwindSafe(|| parse(ask))).unwrap_or(Err(Failure::Panicked));
    let parsed = state
        .cpu
        .run_if(is_long, call.caller.tenant(), parse_or_fail)
        .instrument(call.span())
        .await;
    match parsed.and_then(|turn| turn) {
        Ok(turn) => {
            let call = match turn.on_disconnect {
                OnDisconnect::Finish => call.with_longest_turn_deadline(),
                OnDisconnect::Stop | OnDisconnect::StopAndKeep => call,
            };
            Ok(Response::new(chat_turn::begin(state, call, turn)))
        }
        Err(failure) => {
            let status = Status::from(failure);
            call.span().in_scope(|| call.record_end(status.code()));
            Err(status)
        }
    }
}

fn parse(ask: pb::ChatRequest) -> Result<TurnRequest, Failure> {
    let id = parse::conversation_id(&ask.conversation_id)?;
    let (regenerate, edit_message_id) = (ask.regenerate, ask.edit_message_id);
    parse_turn(ask, id, |messages| {
        parse_prompt(messages, regenerate, edit_message_id)
    })
}

/// Parses the request of a turn that is not stored. Fields that only a stored turn can honour are
/// refused, except for the request id.
fn parse_unstored(mut ask: pb::ChatRequest) -> Result<TurnRequest, Failure> {
    let stored_only = [
        ("conversation_id", !ask.conversation_id.is_empty()),
        ("regenerate", ask.regenerate),
        ("edit_message_id", ask.edit_message_id.is_some()),
        (
            "expected_last_message_id",
            ask.expected_last_message_id.is_some(),
        ),
        (
            "on_disconnect",
            ask.on_disconnect() == pb::OnDisconnect::StopAndKeep,
        ),
        ("cache_ping", ask.cache_ping),
    ];
    if let Some((field, _)) = stored_only.into_iter().find(|(_, is_given)| *is_given) {
        return Err(Failure::invalid(
            field,
            "must not be given for a turn that is not stored",
        ));
    }
    ask.request_id.clear();
    let id = ConversationId(uuid::Uuid::new_v4());
    parse_turn(ask, id, |messages| {
        let messages = message::parse_up_to("messages", messages, UNSTORED_MESSAGES)?;
        check_last_message(&messages)?;
        Ok(TurnPrompt::Unstored(messages.into()))
    })
}

fn parse_turn(
    ask: pb::ChatRequest,
    id: ConversationId,
    parse_prompt: impl FnOnce(Vec<pb::NewMessage>) -> Result<TurnPrompt, Failure>,
) -> Result<TurnRequest, Failure> {
    let request_id = parse::request_id(&ask.request_id)?.map(str::to_owned);
    if let Some(prompt) = &ask.system_prompt {
        parse::system_prompt(prompt)?;
    }
    if ask.max_output_tokens == Some(0) {
        return Err(Failure::invalid("max_output_tokens", "must be at least 1"));
    }
    let tools = chat_options::parse_tools("tools", ask.tools)?;
    let own_options = ChatOptions {
        tools: (!tools.is_empty()).then_some(tools),
        temperature: chat_options::parse_temperature("temperature", ask.temperature)?,
        output_tokens: ask.max_output_tokens.map(Tokens::new),
        ..ChatOptions::default()
    };
    Ok(TurnRequest {
        id,
        is_repeatable: request_id.is_some(),
        request_id: request_id.unwrap_or_else(|| uuid::Uuid::new_v4().to_string()),
        prompt: parse_prompt(ask.messages)?,
        expected: parse::expected_last(ask.expected_last_message_id)?,
        model: parse::model("model", &ask.model)?,
        fallback_models: parse_fallback_models(ask.fallback_models)?,
        system_prompt: ask.system_prompt,
        options: parse_options(own_options, ask.options)?,
        on_disconnect: parse_on_disconnect(ask.on_disconnect)?,
        on_overflow: parse_on_overflow(ask.on_overflow)?,
        cache_ping: ask.cache_ping,
    })
}

/// Parses what the turn answers: new messages, the newest question, or an edited one.
fn parse_prompt(
    messages: Vec<pb::NewMessage>,
    regenerate: bool,
    edit_message_id: Option<i64>,
) -> Result<TurnPrompt, Failure> {
    let Some(number) = edit_message_id else {
        if !regenerate {
            return Ok(TurnPrompt::Messages(parse_messages(messages)?.into()));
        }
        return if messages.is_empty() {
            Ok(TurnPrompt::Regenerate)
        } else {
            Err(Failure::invalid(
                "regenerate",
                "must not be given together with messages",
            ))
        };
    };
    if regenerate {
        return Err(Failure::invalid(
            "edit_message_id",
            "must not be given together with regenerate",
        ));
    }
    let id = parse::message_id("edit_message_id", number)?;
    match <[Message; 1]>::try_from(parse_messages(messages)?) {
        Ok([message]) if message.role == Role::User => Ok(TurnPrompt::Edit { id, message }),
        _ => Err(Failure::invalid(
            "messages",
            "must be one message of the user with edit_message_id",
        )),
    }
}

/// Parses the prompt. It may hold no message of the assistant, and must end with a message of the
/// user or of a tool.
fn parse_messages(messages: Vec<pb::NewMessage>) -> Result<Vec<Message>, Failure> {
    let messages = message::parse_at_least_one("messages", messages)?;
    if let Some(index) = messages
        .iter()
        .position(|message| message.role == Role::Assistant)
    {
        return Err(Failure::invalid(
            format!("messages[{index}].role"),
            "must not be assistant: the model answers",
        ));
    }
    check_last_message(&messages)?;
    Ok(messages)
}

/// Refuses messages that do not end with one of the user or of a tool.
fn check_last_message(messages: &[Message]) -> Result<(), Failure> {
    match messages.last().map(|message| message.role) {
        Some(Role::User | Role::Tool) => Ok(()),
        Some(Role::Assistant | Role::System) => Err(Failure::invalid(
            format!("messages[{}].role", messages.len() - 1),
            "must be user or tool in the last message",
        )),
        None => Err(Failure::invalid(
            "messages",
            "must hold at least one message",
        )),
    }
}

fn parse_fallback_models(names: Vec<String>) -> Result<Vec<String>, Failure> {
    if names.len() > FALLBACK_MODELS {
        return Err(Failure::limit("fallback_models", FALLBACK_MODELS, "models"));
    }
    for (index, name) in names.iter().enumerate() {
        parse::id(&format!("fallback_models[{index}]"), name)?;
    }
    Ok(names)
}

/// Parses the field `options`, beside the options that have fields of their own in the request.
fn parse_options(
    own: ChatOptions,
    options: Option<pb::ChatOptions>,
) -> Result<ChatOptions, Failure> {
    let Some(options) = options else {
        return Ok(own);
    };
    let options = chat_options::parse("options", options)?;
    let given_twice = [
        ("tools", own.tools.is_some() && options.tools.is_some()),
        (
            "temperature",
            own.temperature.is_some() && options.temperature.is_some(),
        ),
        (
            "max_output_tokens",
            own.output_tokens.is_some() && options.output_tokens.is_some(),
        ),
    ];
    match given_twice.into_iter().find(|(_, is_twice)| *is_twice) {
        None => Ok(own.over(options)),
        Some((field, _)) => Err(Failure::invalid(
            format!("options.{field}"),
            format!("must not be given together with {field}"),
        )),
    }
}

fn parse_on_disconnect(number: i32) -> Result<OnDisconnect, Failure> {
    match pb::OnDisconnect::try_from(number) {
        Ok(pb::OnDisconnect::Unspecified | pb::OnDisconnect::Stop) => Ok(OnDisconnect::Stop),
        Ok(pb::OnDisconnect::StopAndKeep) => Ok(OnDisconnect::StopAndKeep),
        Ok(pb::OnDisconnect::Finish) => Ok(OnDisconnect::Finish),
        Err(_) => Err(Failure::invalid(
            "on_disconnect",
            format!("{number} is not one of its values"),
        )),
    }
}

fn parse_on_overflow(number: i32) -> Result<OnOverflow, Failure> {
    match pb::OnOverflow::try_from(number) {
        Ok(pb::OnOverflow::Unspecified | pb::OnOverflow::Reduce) => Ok(OnOverflow::Reduce),
        Ok(pb::OnOverflow::Fail) => Ok(OnOverflow::Fail),
        Err(_) => Err(Failure::invalid(
            "on_overflow",
            format!("{number} is not one of its values"),
        )),
    }
}

#[cfg(test)]
mod tests {
    use anneal_proto::convert::message::text_message;

    use super::*;

    fn ask(roles: &[pb::Role]) -> pb::ChatRequest {
        let messages = roles.iter().map(|role| text_message(*role, "text"));
        pb::ChatRequest {
            messages: messages.collect(),
            ..Default::default()
        }
    }

    /// The field that the refusal of a turn that is not stored names.
    fn refused_field(ask: pb::ChatRequest) -> String {
        match parse_unstored(ask) {
            Err(Failure::Invalid { field, .. }) => field.to_string(),
            Err(other) => panic!("not refused as invalid: {other:?}"),
            Ok(_) => panic!("not refused"),
        }
    }

    #[test]
    fn a_turn_that_is_not_stored_takes_messages_of_every_role() {
        use pb::Role::{Assistant, System, User};
        let request = pb::ChatRequest {
            request_id: "r".into(),
            on_overflow: pb::OnOverflow::Fail.into(),
            ..ask(&[System, User, Assistant, User])
        };
        let Ok(turn) = parse_unstored(request) else {
            panic!("its messages end with one of the user")
        };
        assert!(matches!(&turn.prompt, TurnPrompt::Unstored(messages) if messages.len() == 4));
        assert!(!turn.is_repeatable, "its request id is ignored");
        assert_eq!(turn.on_overflow, OnOverflow::Fail);
        assert_eq!(refused_field(ask(&[])), "messages");
        assert_eq!(refused_field(ask(&[User, Assistant])), "messages[1].role");
    }

    #[test]
    fn what_only_a_stored_turn_can_honour_is_refused() {
        let user = || ask(&[pb::Role::User]);
        for (field, request) in [
            (
                "conversation_id",
                pb::ChatRequest {
                    conversation_id: uuid::Uuid::nil().to_string(),
                    ..user()
                },
            ),
            (
                "regenerate",
                pb::ChatRequest {
                    regenerate: true,
                    ..user()
                },
            ),
            (
                "edit_message_id",
                pb::ChatRequest {
                    edit_message_id: Some(1),
                    ..user()
                },
            ),
            (
                "expected_last_message_id",
                pb::ChatRequest {
                    expected_last_message_id: Some(0),
                    ..user()
                },
            ),
            (
                "on_disconnect",
                pb::ChatRequest {
                    on_disconnect: pb::OnDisconnect::StopAndKeep.into(),
                    ..user()
                },
            ),
            (
                "cache_ping",
                pb::ChatRequest {
                    cache_ping: true,
                    ..user()
                },
            ),
            (
                "on_overflow",
                pb::ChatRequest {
                    on_overflow: 9,
                    ..user()
                },
            ),
        ] {
            assert_eq!(refused_field(request), field);
        }
    }
}
