//! OpenAI's chat completions, in the dialects of those who say that they speak it.

use serde::Deserialize;
use serde_json::value::RawValue;

use super::{
    CallFailure, CallUsage, StopReason,
    answer::{CALLS_MOST, Dialect, NOT_THE_PROTOCOL, TOO_MANY_CALLS, UnderWay},
    failure::unavailable,
    json::{Few, lenient, text, tokens},
};

/// A chunk of a stream, or a whole answer.
#[derive(Deserialize)]
struct Chunk<'a> {
    #[serde(borrow, default)]
    choices: Few<Choice<'a>>,
    #[serde(borrow, default)]
    usage: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Choice<'a> {
    #[serde(default)]
    index: Option<u64>,
    #[serde(borrow, default)]
    delta: Option<Said<'a>>,
    /// Of a whole answer. Some servers repeat it at the end of a stream.
    #[serde(borrow, default)]
    message: Option<Said<'a>>,
    #[serde(default)]
    finish_reason: Option<String>,
}

#[derive(Deserialize)]
struct Said<'a> {
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
    tool_calls: Few<CallPart<'a>>,
}

#[derive(Deserialize)]
struct CallPart<'a> {
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
    /// A fragment of JSON in a string; from some servers the object itself.
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
    /// DeepSeek's.
    #[serde(default)]
    prompt_cache_hit_tokens: Option<u64>,
}

#[derive(Deserialize, Default)]
struct Details {
    #[serde(default)]
    cached_tokens: Option<u64>,
}

/// Calls of tools as far as they have come.
#[derive(Default)]
pub(super) struct OpenAi {
    calls: Vec<Call>,
}

#[derive(Default)]
struct Call {
    index: Option<u64>,
    id: String,
    name: String,
    input: String,
}

impl Dialect for OpenAi {
    fn read(&mut self, json: &str, answer: &mut UnderWay) -> Result<(), CallFailure> {
        let chunk: Chunk<'_> = serde_json::from_str(json).map_err(|_| NOT_THE_PROTOCOL)?;
        self.take(chunk, answer, |choice| choice.delta.take())
    }

    fn read_whole(&mut self, json: &str, answer: &mut UnderWay) -> Result<(), CallFailure> {
        let whole: Chunk<'_> = serde_json::from_str(json).map_err(|_| NOT_THE_PROTOCOL)?;
        self.take(whole, answer, |choice| choice.message.take())
    }

    fn finish(&mut self, answer: &mut UnderWay) -> Result<(), CallFailure> {
        for call in std::mem::take(&mut self.calls) {
            answer.call(call.id, call.name, call.input)?;
        }
        Ok(())
    }
}

impl OpenAi {
    fn take<'a>(
        &mut self,
        chunk: Chunk<'a>,
        answer: &mut UnderWay,
        said: fn(&mut Choice<'a>) -> Option<Said<'a>>,
    ) -> Result<(), CallFailure> {
        // Other choices than the first were not asked for.
        for mut choice in chunk.choices.0.into_iter().filter(|choice| choice.index.unwrap_or_default() == 0) {
            if let Some(said) = said(&mut choice) {
                self.hear(said, answer)?;
            }
            if let Some(reason) = choice.finish_reason.filter(|reason| !reason.is_empty()) {
                answer.stop(stop(&reason)?);
            }
        }
        if let Some(usage) = lenient::<Usage>(chunk.usage) {
            let details = usage.prompt_tokens_details.unwrap_or_default();
            answer.counted(CallUsage {
                input: tokens(usage.prompt_tokens),
                cached: tokens(details.cached_tokens.or(usage.prompt_cache_hit_tokens)),
                output: tokens(usage.completion_tokens),
                ..CallUsage::default()
            })?;
        }
        Ok(())
    }

    fn hear(&mut self, said: Said<'_>, answer: &mut UnderWay) -> Result<(), CallFailure> {
        // Servers that have both fields say the same in both.
        let thought = text(said.reasoning_content).filter(|text| !text.is_empty());
        answer.thought(thought.or_else(|| text(said.reasoning)).unwrap_or_default());
        answer.text(text(said.content).unwrap_or_default());
        answer.text(text(said.refusal).unwrap_or_default());
        for part in said.tool_calls.0 {
            self.hear_call(part)?;
        }
        Ok(())
    }

    /// A fragment belongs to the latest call of its index, or to the latest call where it has none. Another id is another
    /// call: some servers give all of them the same index.
    fn hear_call(&mut self, part: CallPart<'_>) -> Result<(), CallFailure> {
        let id = part.id.filter(|id| !id.is_empty());
        let is_full = self.calls.len() == CALLS_MOST;
        let latest = match part.index {
            Some(index) => self.calls.iter_mut().rfind(|call| call.index == Some(index)),
            None => self.calls.last_mut().filter(|_| id.is_none()),
        };
        let is_same = |call: &&mut Call| id.as_ref().is_none_or(|id| call.id.is_empty() || call.id == *id);
        let call = match latest.filter(is_same) {
            Some(call) => call,
            None if is_full => return Err(TOO_MANY_CALLS),
            None => self.calls.push_mut(Call { index: part.index, ..Call::default() }),
        };
        if let Some(id) = id {
            call.id = id;
        }
        let Some(function) = part.function else { return Ok(()) };
        if let Some(name) = function.name.filter(|_| call.name.is_empty()) {
            call.name = name;
        }
        if let Some(arguments) = function.arguments {
            let fragment = serde_json::from_str::<String>(arguments.get());
            call.input.push_str(fragment.as_deref().unwrap_or(arguments.get()));
        }
        Ok(())
    }
}

fn stop(reason: &str) -> Result<StopReason, CallFailure> {
    match reason {
        "tool_calls" | "function_call" => Ok(StopReason::ToolUse),
        "length" | "max_tokens" | "model_length" => Ok(StopReason::OutputLimit),
        "content_filter" => Ok(StopReason::Filtered),
        // OpenRouter's and DeepSeek's for a model that gave up.
        "error" | "insufficient_system_resource" => Err(unavailable("an error within the answer")),
        _ => Ok(StopReason::Done),
    }
}
