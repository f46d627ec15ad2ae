//! Gemini's generateContent API: every event is a small answer of its own.

use serde::Deserialize;
use serde_json::value::RawValue;

use super::{
    CallFailure, CallUsage, StopReason,
    json::{BoundedList, lenient, tokens},
    partial_answer::{MALFORMED_EVENT, PartialAnswer, ProtocolReader, Visibility},
};

const PROVIDER: &str = "gemini";

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Chunk<'a> {
    #[serde(borrow, default)]
    candidates: BoundedList<Candidate<'a>>,
    #[serde(default)]
    prompt_feedback: Option<Feedback>,
    #[serde(borrow, default)]
    usage_metadata: Option<&'a RawValue>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Candidate<'a> {
    #[serde(default)]
    index: Option<u64>,
    #[serde(borrow, default)]
    content: Option<Content<'a>>,
    #[serde(default)]
    finish_reason: Option<String>,
}

#[derive(Deserialize)]
struct Content<'a> {
    #[serde(borrow, default)]
    parts: BoundedList<Part<'a>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Part<'a> {
    #[serde(default)]
    text: Option<String>,
    #[serde(default)]
    thought: Option<bool>,
    #[serde(default)]
    thought_signature: Option<String>,
    #[serde(borrow, default)]
    function_call: Option<Call<'a>>,
}

#[derive(Deserialize)]
struct Call<'a> {
    #[serde(default)]
    id: Option<String>,
    #[serde(default)]
    name: String,
    #[serde(borrow, default)]
    args: Option<&'a RawValue>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Feedback {
    #[serde(default)]
    block_reason: Option<String>,
}

/// Token counts. `candidates` excludes thoughts.
#[derive(Deserialize, Default)]
struct Usage {
    #[serde(rename = "promptTokenCount", default)]
    prompt: Option<u64>,
    #[serde(rename = "cachedContentTokenCount", default)]
    cached: Option<u64>,
    #[serde(rename = "candidatesTokenCount", default)]
    candidates: Option<u64>,
    #[serde(rename = "thoughtsTokenCount", default)]
    thoughts: Option<u64>,
}

/// The state of the reader: the thoughts whose signature has not come yet.
#[derive(Default)]
pub(super) struct Gemini {
    thoughts: String,
}

impl ProtocolReader for Gemini {
    fn read(&mut self, json: &str, answer: &mut PartialAnswer) -> Result<(), CallFailure> {
        let chunk: Chunk<'_> = serde_json::from_str(json).map_err(|_| MALFORMED_EVENT)?;
        // Only one candidate is requested.
        for candidate in chunk
            .candidates
            .0
            .into_iter()
            .filter(|one| one.index.unwrap_or_default() == 0)
        {
            for part in candidate
                .content
                .into_iter()
                .flat_map(|content| content.parts.0)
            {
                self.read_part(part, answer)?;
            }
            if let Some(reason) = candidate.finish_reason {
                answer.set_stop(stop_reason(&reason)?);
            }
        }
        if chunk
            .prompt_feedback
            .is_some_and(|feedback| feedback.block_reason.is_some())
        {
            answer.set_stop(StopReason::Filtered);
        }
        let Some(usage) = lenient::<Usage>(chunk.usage_metadata) else {
            return Ok(());
        };
        answer.record_usage(CallUsage {
            input: tokens(usage.prompt),
            cached: tokens(usage.cached),
            output: tokens(usage.candidates) + tokens(usage.thoughts),
            reasoning: tokens(usage.thoughts),
            ..CallUsage::default()
        })
    }
}

impl Gemini {
    fn read_part(&mut self, part: Part<'_>, answer: &mut PartialAnswer) -> Result<(), CallFailure> {
        let text = part.text.unwrap_or_default();
        if part.thought == Some(true) {
            self.thoughts.push_str(&text);
            answer.push_thought(text);
        } else {
            answer.push_text(text);
        }
        // The signature comes with the part after the thoughts. The thoughts are added before a
        // tool call of that part, because the provider wants both back in this order.
        if let Some(signature) = part
            .thought_signature
            .filter(|signature| !signature.is_empty())
        {
            answer.push_reasoning(
                PROVIDER,
                std::mem::take(&mut self.thoughts),
                signature,
                Visibility::Readable,
            );
        }
        let Some(call) = part.function_call else {
            return Ok(());
        };
        let input = call
            .args
            .map_or_else(String::new, |args| args.get().to_owned());
        answer.push_tool_call(call.id.unwrap_or_default(), call.name, input)
    }
}

fn stop_reason(reason: &str) -> Result<StopReason, CallFailure> {
    match reason {
        "MAX_TOKENS" => Ok(StopReason::OutputLimit),
        "SAFETY" | "RECITATION" | "BLOCKLIST" | "PROHIBITED_CONTENT" | "SPII" | "LANGUAGE"
        | "IMAGE_SAFETY" => Ok(StopReason::Filtered),
        "MALFORMED_FUNCTION_CALL" | "UNEXPECTED_TOOL_CALL" => Err(CallFailure::Broken(
            "the model made a call that its provider could not read",
        )),
        _ => Ok(StopReason::Done),
    }
}
