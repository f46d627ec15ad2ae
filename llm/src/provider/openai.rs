//! OpenAI's Chat Completions API, with the variations of other servers that implement it.

use serde::Deserialize;
use serde_json::value::RawValue;

use super::{
    CallFailure, CallUsage, StopReason,
    failure::unavailable,
    json::{BoundedList, lenient, text, tokens},
    partial_answer::{
        MALFORMED_EVENT, MAX_TOOL_CALLS, PartialAnswer, ProtocolReader, TOO_MANY_TOOL_CALLS,
    },
};

/// A chunk of a stream, or a whole answer.
#[derive(Deserialize)]
struct Chunk<'a> {
    #[serde(borrow, default)]
    choices: BoundedList<Choice<'a>>,
    #[serde(borrow, default)]
    usage: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Choice<'a> {
    #[serde(default)]
    index: Option<u64>,
    #[serde(borrow, default)]
    delta: Option<MessageFields<'a>>,
    /// The message of a whole answer. Some servers also send it at the end of a stream, where it is
    /// ignored.
    #[serde(borrow, default)]
    message: Option<MessageFields<'a>>,
    #[serde(default)]
    finish_reason: Option<String>,
}

#[derive(Deserialize)]
struct MessageFields<'a> {
    #[serde(borrow, default)]
    content: Option<&'a RawValue>,
    #[serde(borrow, default)]
    refusal: Option<&'a RawValue>,
    /// Thoughts: DeepSeek, llama.cpp, vLLM.
    #[serde(borrow, default)]
    reasoning_content: Option<&'a RawValue>,
    /// Thoughts: OpenRouter, Ollama, newer vLLM.
    #[serde(borrow, default)]
    reasoning: Option<&'a RawValue>,
    #[serde(borrow, default)]
    tool_calls: BoundedList<CallFragment<'a>>,
}

#[derive(Deserialize)]
struct CallFragment<'a> {
    #[serde(default)]
    index: Option<u64>,
    #[serde(default)]
    id: Option<String>,
    #[serde(borrow, default)]
    function: Option<Function<'a>>,
}

#[derive(Deserialize)]
struct Function<'a> {
    #[serde(default)]
    name: Option<String>,
    /// A fragment of JSON in a string; some servers send the object itself.
    #[serde(borrow, default)]
    arguments: Option<&'a RawValue>,
}

#[derive(Deserialize, Default)]
struct Usage {
    #[serde(default)]
    prompt_tokens: Option<u64>,
    #[serde(default)]
    completion_tokens: Option<u64>,
    #[serde(default)]
    prompt_tokens_details: Option<Details>,
    #[serde(default)]
    completion_tokens_details: Option<OutputDetails>,
    /// DeepSeek's name of `cached_tokens`.
    #[serde(default)]
    prompt_cache_hit_tokens: Option<u64>,
}

#[derive(Deserialize, Default)]
struct Details {
    #[serde(default)]
    cached_tokens: Option<u64>,
    /// From gpt-5.6 on.
    #[serde(default)]
    cache_write_tokens: Option<u64>,
}

#[derive(Deserialize, Default)]
struct OutputDetails {
    #[serde(default)]
    reasoning_tokens: Option<u64>,
}

/// The state of the reader: the tool calls so far.
#[derive(Default)]
pub(super) struct OpenAi {
    calls: Vec<PartialCall>,
}

/// A tool call whose fragments are still arriving.
#[derive(Default)]
struct PartialCall {
    index: Option<u64>,
    id: String,
    name: String,
    input: String,
}

impl ProtocolReader for OpenAi {
    fn read(&mut self, json: &str, answer: &mut PartialAnswer) -> Result<(), CallFailure> {
        let chunk: Chunk<'_> = serde_json::from_str(json).map_err(|_| MALFORMED_EVENT)?;
        self.read_choices(chunk, answer, |choice| choice.delta.take())
    }

    fn read_whole(&mut self, json: &str, answer: &mut PartialAnswer) -> Result<(), CallFailure> {
        let whole: Chunk<'_> = serde_json::from_str(json).map_err(|_| MALFORMED_EVENT)?;
        self.read_choices(whole, answer, |choice| choice.message.take())
    }

    fn finish(&mut self, answer: &mut PartialAnswer) -> Result<(), CallFailure> {
        for call in std::mem::take(&mut self.calls) {
            answer.push_tool_call(call.id, call.name, call.input)?;
        }
        Ok(())
    }
}

impl OpenAi {
    fn read_choices<'a>(
        &mut self,
        chunk: Chunk<'a>,
        answer: &mut PartialAnswer,
        message_of: fn(&mut Choice<'a>) -> Option<MessageFields<'a>>,
    ) -> Result<(), CallFailure> {
        // Only one choice is requested.
        for mut choice in chunk
            .choices
            .0
            .into_iter()
            .filter(|choice| choice.index.unwrap_or_default() == 0)
        {
            if let Some(message) = message_of(&mut choice) {
                self.read_message(message, answer)?;
            }
            if let Some(reason) = choice.finish_reason.filter(|reason| !reason.is_empty()) {
                answer.set_stop(stop_reason(&reason)?);
            }
        }
        if let Some(usage) = lenient::<Usage>(chunk.usage) {
            let details = usage.prompt_tokens_details.unwrap_or_default();
            let output_details = usage.completion_tokens_details.unwrap_or_default();
            answer.record_usage(CallUsage {
                input: tokens(usage.prompt_tokens),
                cached: tokens(details.cached_tokens.or(usage.prompt_cache_hit_tokens)),
                written: tokens(details.cache_write_tokens),
                output: tokens(usage.completion_tokens),
                reasoning: tokens(output_details.reasoning_tokens),
                ..CallUsage::default()
            })?;
        }
        Ok(())
    }

    fn read_message(
        &mut self,
        message: MessageFields<'_>,
        answer: &mut PartialAnswer,
    ) -> Result<(), CallFailure> {
        // Servers that send both fields of thoughts send the same text in both.
        let thought = text(message.reasoning_content).filter(|text| !text.is_empty());
        answer.push_thought(
            thought
                .or_else(|| text(message.reasoning))
                .unwrap_or_default(),
        );
        answer.push_text(text(message.content).unwrap_or_default());
        answer.push_text(text(message.refusal).unwrap_or_default());
        for fragment in message.tool_calls.0 {
            self.merge_call_fragment(fragment)?;
        }
        Ok(())
    }

    /// Adds a fragment of a tool call to the latest call with the fragment's index. A fragment
    /// without index and id continues the latest call of all. An id without an index starts a new
    /// call. So does a new id, because some servers give all calls the same index.
    fn merge_call_fragment(&mut self, fragment: CallFragment<'_>) -> Result<(), CallFailure> {
        let id = fragment.id.filter(|id| !id.is_empty());
        let is_full = self.calls.len() == MAX_TOOL_CALLS;
        let latest = match fragment.index {
            Some(index) => self
                .calls
                .iter_mut()
                .rfind(|call| call.index == Some(index)),
            None => self.calls.last_mut().filter(|_| id.is_none()),
        };
        let is_same = |call: &&mut PartialCall| {
            id.as_ref()
                .is_none_or(|id| call.id.is_empty() || call.id == *id)
        };
        let call = match latest.filter(is_same) {
            Some(call) => call,
            None if is_full => return Err(TOO_MANY_TOOL_CALLS),
            None => self.calls.push_mut(PartialCall {
                index: fragment.index,
                ..PartialCall::default()
            }),
        };
        if let Some(id) = id {
            call.id = id;
        }
        let Some(function) = fragment.function else {
            return Ok(());
        };
        if let Some(name) = function.name.filter(|_| call.name.is_empty()) {
            call.name = name;
        }
        if let Some(arguments) = function.arguments {
            let string = serde_json::from_str::<String>(arguments.get());
            call.input
                .push_str(string.as_deref().unwrap_or(arguments.get()));
        }
        Ok(())
    }
}

fn stop_reason(reason: &str) -> Result<StopReason, CallFailure> {
    match reason {
        "tool_calls" | "function_call" => Ok(StopReason::ToolUse),
        "length" | "max_tokens" | "model_length" => Ok(StopReason::OutputLimit),
        "content_filter" => Ok(StopReason::Filtered),
        // With these reasons OpenRouter and DeepSeek report that the model failed.
        "error" | "insufficient_system_resource" => Err(unavailable("an error within the answer")),
        _ => Ok(StopReason::Done),
    }
}
