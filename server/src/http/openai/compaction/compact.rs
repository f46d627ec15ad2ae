//! POST /v1/responses/compact.

use std::sync::Arc;

use anneal_core::limits::FOCUS_BYTES;
use anneal_proto::v1 as pb;
use axum::{extract::State, response::Response};
use prost::Message as _;
use serde_json::{Value, json};
use uuid::Uuid;

use super::window::{self, Window};
use crate::{
    http::{
        HttpState,
        caller::{Authorized, EndpointRpcs, HttpCaller},
        extractors::{NoParams, QueryParams},
        json,
        openai::{
            errors::ApiError,
            fields::Fields,
            ids::response_id,
            items::Compaction,
            request::{ObjectBody, with_ignored},
            responses::{self, Usage},
            sealing,
        },
    },
    limits::cpu_pool,
    usecases::unstored_summary::{SummaryCost, SummaryRequest},
    verbs::Rpc,
};

/// The RPCs of this endpoint.
pub(super) struct CompactInput;

impl EndpointRpcs for CompactInput {
    const RPCS: &'static [&'static Rpc] = &[Rpc::named("compact"), Rpc::named("list_messages")];
}

/// A request, read and checked.
struct CompactBody<'v> {
    model: &'v str,
    input: Option<Arc<Value>>,
    previous_response_id: Option<&'v str>,
    instructions: &'v str,
    ignored: Vec<String>,
}

/// Compacts the input, and the response that it continues.
pub(super) async fn compact(
    State(state): State<HttpState>,
    Authorized(http_caller, _): Authorized<CompactInput>,
    _: QueryParams<NoParams>,
    ObjectBody(mut body): ObjectBody,
) -> Result<Response, ApiError> {
    let input = body.remove("input").filter(|input| !input.is_null());
    let mut fields = Fields::of_object(&body, "");
    let body = CompactBody::parse(&mut fields, input)?;
    let messages = load_messages(&state, &http_caller, &body).await?;
    let bytes = messages.iter().map(pb::NewMessage::encoded_len).sum();
    let is_long = cpu_pool::is_long(bytes, messages.len());
    let (cpu, tenant) = (&state.services.state.cpu, http_caller.caller.tenant());
    let make_window = move || Window::of(messages);
    let window = cpu.run_if(is_long, tenant, make_window).await?;
    if window.is_empty() {
        let message = "must hold at least one item.";
        return Err(ApiError::invalid("input", Some("empty_array"), message));
    }
    let request = SummaryRequest {
        model: body.model.to_owned(),
        previous: window.previous,
        messages: window.messages,
        focus: body.instructions.to_owned(),
    };
    let request = http_caller.request(request);
    let summary = http_caller
        .services
        .summarize_without_storing(request)
        .await?;
    let summary = summary.into_inner();
    let created_by = summary.summarizer.unwrap_or_default();
    let key = sealing::read_key(&http_caller).await?;
    let compaction = Compaction::seal(summary.text, created_by, &key);
    let kept = window.kept;
    let show = move || {
        json::response(&json!({
            "id": response_id(Uuid::new_v4()),
            "object": "response.compaction",
            "created_at": responses::now(),
            "output": window::show(&kept, &compaction),
            "usage": usage(summary.cost),
        }))
    };
    let response = cpu.run_if(is_long, tenant, show).await?;
    Ok(with_ignored(response, &body.ignored))
}

impl<'v> CompactBody<'v> {
    /// Parses the fields beside the input.
    fn parse(fields: &mut Fields<'v>, input: Option<Value>) -> Result<Self, ApiError> {
        let model = fields.required_text("model")?;
        let body = Self {
            model,
            input: input.map(Arc::new),
            previous_response_id: fields.text("previous_response_id")?,
            instructions: fields.text("instructions")?.unwrap_or_default(),
            ignored: {
                // It says which requests begin alike, and each compaction reads something new.
                fields.text("prompt_cache_key")?;
                fields.ignored()
            },
        };
        if body.input.is_none() && body.previous_response_id.is_none() {
            let message = "Missing required parameter: 'input' or 'previous_response_id'.";
            let code = Some("missing_required_parameter");
            return Err(ApiError::invalid("input", code, message));
        }
        if body.instructions.len() > FOCUS_BYTES {
            let message = format!(
                "Invalid 'instructions': string too long. Expected at most {FOCUS_BYTES} bytes: \
                 they say what the summary should keep above all."
            );
            let code = Some("string_above_max_length");
            return Err(ApiError::invalid("instructions", code, message));
        }
        Ok(body)
    }
}

/// The messages of the previous response, and those before it, and the input.
async fn load_messages(
    state: &HttpState,
    caller: &HttpCaller,
    body: &CompactBody<'_>,
) -> Result<Vec<pb::NewMessage>, ApiError> {
    let mut messages = match body.previous_response_id {
        Some(id) => responses::load_history(state, caller, id).await?,
        None => Vec::new(),
    };
    if let Some(input) = &body.input {
        messages.extend(responses::read_input(caller, input).await?);
    }
    Ok(messages)
}

fn usage(cost: SummaryCost) -> Usage {
    let tokens = [cost.input, cost.cached, cost.written, cost.output];
    Usage::new(tokens.map(anneal_core::tokens::Tokens::get).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(body: &Value) -> Option<(String, String)> {
        let mut body = body.as_object().cloned().unwrap_or_default();
        let input = body.remove("input");
        let mut fields = Fields::of_object(&body, "");
        let error = CompactBody::parse(&mut fields, input).err()?.object();
        let text = |key: &str| error[key].as_str().unwrap_or_default().to_owned();
        Some((text("param"), text("code")))
    }

    #[test]
    fn a_request_needs_a_model_and_something_to_compact() {
        let missing = "missing_required_parameter";
        for (body, param, code) in [
            (json!({"input": "a"}), "model", missing),
            (json!({"model": "m"}), "input", missing),
            (json!({"model": 1, "input": "a"}), "model", "invalid_type"),
            (
                json!({"model": "m", "input": "a", "instructions": "x".repeat(FOCUS_BYTES + 1)}),
                "instructions",
                "string_above_max_length",
            ),
            (
                json!({"model": "m", "input": "a", "prompt_cache_key": 1}),
                "prompt_cache_key",
                "invalid_type",
            ),
        ] {
            assert_eq!(refusal(&body), Some((param.into(), code.into())), "{body}");
        }
        for body in [
            json!({"model": "m", "input": []}),
            json!({"model": "m", "previous_response_id": "resp_1", "prompt_cache_key": "k"}),
        ] {
            assert_eq!(refusal(&body), None, "{body}");
        }
    }
}
