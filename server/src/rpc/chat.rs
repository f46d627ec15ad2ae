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
use anneal_proto::v1 as pb;
use prost::Message as _;
use tonic::{Response, Status};
use tracing::Instrument as _;

use crate::{
    call::Call,
    cpu,
    house::House,
    parse, policy,
    status::Failure,
    turn::{self, Events, Turn},
};

/// One turn: stores what was said, calls a model, streams and stores its answer.
pub(crate) async fn chat(house: &House, call: Call, ask: pb::ChatRequest) -> Result<Response<Events>, Status> {
    let is_long = cpu::is_long(ask.encoded_len(), 0);
    // A bug in one call must not take its connection, and with it the calls of others, away.
    let parsed = move || catch_unwind(AssertUnwindSafe(|| parse(ask))).unwrap_or(Err(Failure::Panicked));
    let parsed = house.cpu.run_if(is_long, call.caller.tenant(), parsed).instrument(call.span()).await;
    match parsed.and_then(|turn| turn) {
        Ok(turn) => Ok(Response::new(turn::begin(house, call, turn))),
        Err(failure) => {
            let status = Status::from(failure);
            call.ended(status.code());
            Err(status)
        }
    }
}

fn parse(ask: pb::ChatRequest) -> Result<Turn, Failure> {
    let id = parse::conversation_id(&ask.conversation_id)?;
    let request_id = parse::request_id(&ask.request_id)?.map(str::to_owned);
    if let Some(prompt) = &ask.system_prompt {
        parse::system_prompt(prompt)?;
    }
    if ask.max_output_tokens == Some(0) {
        return Err(Failure::invalid("max_output_tokens", "must be at least 1"));
    }
    are_within_limits(&ask.tools)?;
    Ok(Turn {
        id,
        is_repeatable: request_id.is_some(),
        request_id: request_id.unwrap_or_else(|| uuid::Uuid::new_v4().to_string()),
        messages: messages(ask.messages)?.into(),
        expected: parse::expected_last(ask.expected_last_message_id)?,
        model: policy::model("model", &ask.model)?,
        system_prompt: ask.system_prompt,
        tools_tokens: tools_tokens(&ask.tools),
        tools: tools(ask.tools)?,
        temperature: temperature(ask.temperature)?,
        output: ask.max_output_tokens.map(Tokens::new),
    })
}

/// What is new: nothing that the model itself says, and at its end something to answer.
fn messages(messages: Vec<pb::NewMessage>) -> Result<Vec<Message>, Failure> {
    let messages = parse::messages("messages", messages, false)?;
    if let Some(place) = messages.iter().position(|message| message.role == Role::Assistant) {
        return Err(Failure::invalid(format!("messages[{place}].role"), "must not be assistant: the model answers"));
    }
    let last = messages.len() - 1;
    match messages[last].role {
        Role::User | Role::Tool => Ok(messages),
        Role::Assistant | Role::System => {
            Err(Failure::invalid(format!("messages[{last}].role"), "must be user or tool in the last message"))
        }
    }
}

fn are_within_limits(tools: &[pb::Tool]) -> Result<(), Failure> {
    if tools.len() > TOOLS {
        return Err(Failure::limit("tools", TOOLS, "tools"));
    }
    if tools.iter().map(bytes).sum::<usize>() > TOOLS_BYTES {
        return Err(Failure::limit("tools", TOOLS_BYTES, "bytes in all"));
    }
    Ok(())
}

fn tools(tools: Vec<pb::Tool>) -> Result<Vec<Tool>, Failure> {
    let mut names = HashSet::new();
    if let Some(place) = tools.iter().position(|tool| !names.insert(tool.name.as_str())) {
        return Err(Failure::invalid(format!("tools[{place}].name"), "must not be another tool's"));
    }
    tools.into_iter().enumerate().map(|(place, new)| tool(place, new)).collect()
}

fn tool(place: usize, new: pb::Tool) -> Result<Tool, Failure> {
    let schema = if new.input_schema.is_empty() { ANYTHING.to_owned() } else { new.input_schema };
    Tool::new(new.name, new.description, schema).map_err(|error| {
        let field = match error {
            ToolError::Name => "name",
            ToolError::Schema => "input_schema",
        };
        Failure::invalid(format!("tools[{place}].{field}"), error.to_string())
    })
}

/// The schema of a tool that says none.
const ANYTHING: &str = r#"{"type":"object"}"#;

/// What the description of tools counts, estimated.
fn tools_tokens(tools: &[pb::Tool]) -> Tokens {
    let encoding = Encoding::default();
    let tool = |tool: &pb::Tool| {
        let texts = [&tool.name, &tool.description, &tool.input_schema];
        texts.into_iter().map(|text| encoding.estimate(text)).sum::<Tokens>() + FRAMING_PER_MESSAGE
    };
    tools.iter().map(tool).sum()
}

const fn bytes(tool: &pb::Tool) -> usize {
    tool.name.len() + tool.description.len() + tool.input_schema.len()
}

fn temperature(asked: Option<f32>) -> Result<Option<f32>, Failure> {
    match asked {
        Some(degree) if !(0.0..=2.0).contains(&degree) => Err(Failure::invalid("temperature", "must be 0 to 2")),
        asked => Ok(asked),
    }
}
