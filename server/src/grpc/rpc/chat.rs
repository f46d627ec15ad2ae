//! Chat.

use std::{
    collections::HashSet,
    panic::{AssertUnwindSafe, catch_unwind},
};

use anneal_core::{
    limits::{TOOLS, TOOLS_BYTES},
    message::{Message, Role},
    tokens::{Encoding, FRAMING_PER_MESSAGE, Tokens},
};
use anneal_llm::provider::{Tool, ToolError};
use anneal_proto::{
    convert::{message, parse},
    v1 as pb,
};
use prost::Message as _;
use tonic::{Response, Status};
use tracing::Instrument as _;

use crate::{
    failure::Failure,
    limits::cpu_pool,
    rpc_call::RpcCall,
    state::ServerState,
    usecases::chat_turn::{self, Events, TurnRequest},
};

/// Runs one turn: stores the prompt, calls a model, streams and stores its answer.
pub(crate) async fn chat(
    state: &ServerState,
    call: RpcCall,
    ask: pb::ChatRequest,
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
        Ok(turn) => Ok(Response::new(chat_turn::begin(state, call, turn))),
        Err(failure) => {
            let status = Status::from(failure);
            call.span().in_scope(|| call.record_end(status.code()));
            Err(status)
        }
    }
}

fn parse(ask: pb::ChatRequest) -> Result<TurnRequest, Failure> {
    let id = parse::conversation_id(&ask.conversation_id)?;
    let request_id = parse::request_id(&ask.request_id)?.map(str::to_owned);
    if let Some(prompt) = &ask.system_prompt {
        parse::system_prompt(prompt)?;
    }
    if ask.max_output_tokens == Some(0) {
        return Err(Failure::invalid("max_output_tokens", "must be at least 1"));
    }
    check_tool_limits(&ask.tools)?;
    Ok(TurnRequest {
        id,
        is_repeatable: request_id.is_some(),
        request_id: request_id.unwrap_or_else(|| uuid::Uuid::new_v4().to_string()),
        messages: parse_messages(ask.messages)?.into(),
        expected: parse::expected_last(ask.expected_last_message_id)?,
        model: parse::model("model", &ask.model)?,
        system_prompt: ask.system_prompt,
        tools_tokens: tools_tokens(&ask.tools),
        tools: parse_tools(ask.tools)?,
        temperature: parse_temperature(ask.temperature)?,
        output: ask.max_output_tokens.map(Tokens::new),
    })
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
    let last = messages.len() - 1;
    match messages[last].role {
        Role::User | Role::Tool => Ok(messages),
        Role::Assistant | Role::System => Err(Failure::invalid(
            format!("messages[{last}].role"),
            "must be user or tool in the last message",
        )),
    }
}

fn check_tool_limits(tools: &[pb::Tool]) -> Result<(), Failure> {
    if tools.len() > TOOLS {
        return Err(Failure::limit("tools", TOOLS, "tools"));
    }
    if tools.iter().map(tool_bytes).sum::<usize>() > TOOLS_BYTES {
        return Err(Failure::limit("tools", TOOLS_BYTES, "bytes in all"));
    }
    Ok(())
}

fn parse_tools(tools: Vec<pb::Tool>) -> Result<Vec<Tool>, Failure> {
    let mut names = HashSet::new();
    if let Some(index) = tools
        .iter()
        .position(|tool| !names.insert(tool.name.as_str()))
    {
        return Err(Failure::invalid(
            format!("tools[{index}].name"),
            "must not be another tool's",
        ));
    }
    tools
        .into_iter()
        .enumerate()
        .map(|(index, tool)| parse_tool(index, tool))
        .collect()
}

fn parse_tool(index: usize, tool: pb::Tool) -> Result<Tool, Failure> {
    let schema = if tool.input_schema.is_empty() {
        ANY_OBJECT_SCHEMA.to_owned()
    } else {
        tool.input_schema
    };
    Tool::new(tool.name, tool.description, schema).map_err(|error| {
        let field = match error {
            ToolError::Name => "name",
            ToolError::Schema => "input_schema",
        };
        Failure::invalid(format!("tools[{index}].{field}"), error.to_string())
    })
}

/// The input schema of a tool that gives none.
const ANY_OBJECT_SCHEMA: &str = r#"{"type":"object"}"#;

/// Estimated tokens of the tools' names, descriptions and schemas, each tool with the framing of a
/// message, in the default encoding: the model is not chosen yet.
fn tools_tokens(tools: &[pb::Tool]) -> Tokens {
    let encoding = Encoding::default();
    let tokens_of_tool = |tool: &pb::Tool| {
        let texts = [&tool.name, &tool.description, &tool.input_schema];
        texts
            .into_iter()
            .map(|text| encoding.estimate(text))
            .sum::<Tokens>()
            + FRAMING_PER_MESSAGE
    };
    tools.iter().map(tokens_of_tool).sum()
}

const fn tool_bytes(tool: &pb::Tool) -> usize {
    tool.name.len() + tool.description.len() + tool.input_schema.len()
}

fn parse_temperature(requested: Option<f32>) -> Result<Option<f32>, Failure> {
    match requested {
        Some(value) if !(0.0..=2.0).contains(&value) => {
            Err(Failure::invalid("temperature", "must be 0 to 2"))
        }
        valid => Ok(valid),
    }
}
