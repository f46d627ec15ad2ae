//! The body of a chat completion. Each parameter of the protocol is honoured, or refused by its
//! name unless it has the value that changes nothing.

use std::collections::HashMap;

use anneal_proto::v1 as pb;
use serde_json::{Map, Value};

use super::{messages::RequestMessages, options};
use crate::http::openai::{
    errors::ApiError,
    fields::{Fields, unsupported_value},
    request::{self, OUTPUT_TOKENS},
};

/// Parameters that have no effect: hints for the provider's cache and safety checks, which are not
/// passed on.
const WITHOUT_EFFECT: [&str; 2] = ["prompt_cache_key", "safety_identifier"];

/// A parsed body.
#[derive(Debug)]
pub(super) struct CompletionBody {
    pub(super) model: String,
    pub(super) messages: RequestMessages,
    pub(super) options: pb::ChatOptions,
    /// The name of the parameter with the output limit.
    pub(super) output_limit: &'static str,
    pub(super) stream: bool,
    /// Whether the chunks of a stream end with one of the usage.
    pub(super) includes_usage: bool,
    /// None: the request does not say.
    pub(super) store: Option<bool>,
    /// Labels of a new conversation.
    pub(super) metadata: HashMap<String, String>,
    /// The end user of a new conversation.
    pub(super) user: Option<String>,
    /// Parameters that have no effect.
    pub(super) ignored: Vec<String>,
}

impl CompletionBody {
    /// Parses a body. `names_conversation`: whether the request names a conversation.
    pub(super) fn parse(body: &Value, names_conversation: bool) -> Result<Self, ApiError> {
        let mut fields = Fields::of_body(body)?;
        refuse_unsupported(&mut fields)?;
        let model = fields.required_text("model")?.to_owned();
        let store = fields.flag("store")?;
        if names_conversation && store == Some(false) {
            let message = "the header anneal-conversation names a conversation in which the messages are stored; leave out 'store'.";
            return Err(ApiError::invalid("store", Some("invalid_value"), message));
        }
        let is_stored = names_conversation || store == Some(true);
        let creates = is_stored && !names_conversation;
        let mut ignored = Vec::new();
        let (output_limit, max_output_tokens) = parse_output_limit(&mut fields)?;
        let mut options = options::parse_options(&mut fields, is_stored, &mut ignored)?;
        options.max_output_tokens = max_output_tokens;
        let (stream, includes_usage) = parse_stream(&mut fields)?;
        let metadata = parse_metadata(&mut fields, creates)?;
        let user = fields.text("user")?.map(str::to_owned);
        if user.is_some() && !creates {
            ignored.push("user".to_owned());
        }
        for name in WITHOUT_EFFECT {
            if fields.text(name)?.is_some() {
                ignored.push(name.to_owned());
            }
        }
        let messages = RequestMessages::parse(&mut fields)?;
        ignored.extend(fields.ignored());
        Ok(Self {
            model,
            messages,
            options,
            output_limit,
            stream,
            includes_usage,
            store,
            metadata,
            user,
            ignored,
        })
    }
}

/// Whether a value of a parameter changes nothing.
type Harmless<'a> = &'a dyn Fn(&Value) -> bool;

/// Refuses the parameters that this server does not support.
fn refuse_unsupported(fields: &mut Fields<'_>) -> Result<(), ApiError> {
    let is_zero = |value: &Value| value.as_f64() == Some(0.0);
    let is_empty = |value: &Value| {
        let list = value.as_array().is_some_and(Vec::is_empty);
        list || value.as_object().is_some_and(Map::is_empty)
    };
    let never = |_: &Value| false;
    let harmless: [(&'static str, Harmless<'_>, &str); 15] = [
        (
            "n",
            &|value| value.as_u64() == Some(1),
            "One choice is generated.",
        ),
        (
            "logprobs",
            &|value| *value == Value::Bool(false),
            "Leave it out.",
        ),
        ("top_logprobs", &is_zero, "Leave it out."),
        (
            "modalities",
            &|value| {
                value
                    .as_array()
                    .is_some_and(|list| list.iter().all(|kind| kind == "text"))
            },
            "Only texts are generated.",
        ),
        ("audio", &never, "Only texts are generated."),
        ("functions", &is_empty, "Send functions as tools."),
        (
            "function_call",
            &|value| value == "auto" || value == "none",
            "Send tool_choice.",
        ),
        ("frequency_penalty", &is_zero, "Leave it out."),
        ("presence_penalty", &is_zero, "Leave it out."),
        ("seed", &never, "Answers cannot be repeated by a seed."),
        ("logit_bias", &is_empty, "Leave it out."),
        ("prediction", &never, "Leave it out."),
        (
            "web_search_options",
            &never,
            "The server has no web search.",
        ),
        ("moderation", &never, "Leave it out."),
        (
            "prompt_cache_retention",
            &never,
            "The policy of a conversation has cache_retention.",
        ),
    ];
    for (name, is_harmless, instead) in harmless {
        if let Some(value) = fields.value(name)
            && !is_harmless(value)
        {
            let message = format!("Unsupported parameter: '{name}' is not supported. {instead}");
            return Err(ApiError::unsupported_parameter(name, message));
        }
    }
    for (name, supported) in [
        ("service_tier", &["auto", "default"][..]),
        ("verbosity", &["medium"]),
    ] {
        if let Some(value) = fields.text(name)?
            && !supported.contains(&value)
        {
            let refused = unsupported_value(name, value, supported);
            return Err(refused.with_code("unsupported_parameter"));
        }
    }
    Ok(())
}

/// The output limit, and the name of its parameter.
fn parse_output_limit(fields: &mut Fields<'_>) -> Result<(&'static str, Option<u64>), ApiError> {
    const NAMES: [&str; 2] = ["max_completion_tokens", "max_tokens"];
    let mut found = None;
    for name in NAMES {
        let Some(limit) = fields.integer(name, 1..=OUTPUT_TOKENS)? else {
            continue;
        };
        if found.is_some_and(|(_, other)| other != limit) {
            let message =
                "max_tokens must not be given together with another max_completion_tokens.";
            return Err(ApiError::invalid(name, Some("invalid_value"), message));
        }
        found.get_or_insert((name, limit));
    }
    Ok(found.map_or((NAMES[0], None), |(name, limit)| (name, Some(limit))))
}

/// Whether the answer is streamed, and whether its stream ends with the usage.
fn parse_stream(fields: &mut Fields<'_>) -> Result<(bool, bool), ApiError> {
    let stream = fields.flag("stream")?.unwrap_or_default();
    let Some(value) = fields.value("stream_options") else {
        return Ok((stream, false));
    };
    if !stream {
        let message = "The 'stream_options' parameter is only allowed when 'stream' is enabled.";
        let code = Some("invalid_value");
        return Err(ApiError::invalid("stream_options", code, message));
    }
    let mut inner = Fields::of(value, "stream_options")?;
    let includes_usage = inner.flag("include_usage")?.unwrap_or_default();
    if inner.flag("include_obfuscation")? == Some(true) {
        let param = inner.param("include_obfuscation");
        let message = "Chunks are not padded: send false, or leave it out.";
        return Err(ApiError::unsupported_parameter(param, message));
    }
    inner.finish()?;
    Ok((stream, includes_usage))
}

/// The labels of the new conversation. They have no other place.
fn parse_metadata(
    fields: &mut Fields<'_>,
    creates: bool,
) -> Result<HashMap<String, String>, ApiError> {
    let Some(value) = fields.value("metadata") else {
        return Ok(HashMap::new());
    };
    let metadata = request::parse_metadata(value)?;
    if creates || metadata.is_empty() {
        return Ok(metadata);
    }
    let message = "The 'metadata' parameter is kept with a new conversation: it is only allowed when 'store' is enabled, and no conversation is named.";
    Err(ApiError::unsupported_parameter("metadata", message))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// A body with these parameters beside the required ones.
    fn parse(extra: &Value, names_conversation: bool) -> Result<CompletionBody, ApiError> {
        let mut body = json!({"model": "m", "messages": [{"role": "user", "content": "a"}]});
        let object = body.as_object_mut().expect("is an object");
        object.extend(extra.as_object().cloned().unwrap_or_default());
        CompletionBody::parse(&body, names_conversation)
    }

    #[test]
    fn parameters_that_change_nothing_are_accepted() {
        let body = parse(
            &json!({
                "n": 1, "logprobs": false, "top_logprobs": 0, "modalities": ["text"], "audio": null,
                "functions": [], "function_call": "auto", "frequency_penalty": 0.0,
                "presence_penalty": 0, "seed": null, "logit_bias": {}, "service_tier": "auto",
                "verbosity": "medium", "stream": false, "store": false, "metadata": {},
            }),
            false,
        );
        let body = body.expect("is valid");
        assert_eq!(body.options, pb::ChatOptions::default());
        assert!(!body.stream && body.ignored.is_empty());
    }

    #[test]
    fn parameters_that_would_change_something_are_refused_by_name() {
        for (name, value) in [
            ("n", json!(2)),
            ("logprobs", json!(true)),
            ("top_logprobs", json!(3)),
            ("modalities", json!(["text", "audio"])),
            ("audio", json!({"voice": "a", "format": "wav"})),
            ("functions", json!([{"name": "f"}])),
            ("function_call", json!({"name": "f"})),
            ("frequency_penalty", json!(0.5)),
            ("presence_penalty", json!(-1)),
            ("seed", json!(0)),
            ("logit_bias", json!({"50256": -100})),
            ("prediction", json!({"type": "content", "content": "a"})),
            ("web_search_options", json!({})),
            ("moderation", json!({})),
            ("prompt_cache_retention", json!("24h")),
            ("service_tier", json!("flex")),
            ("verbosity", json!("low")),
            ("metadata", json!({"a": "b"})),
        ] {
            let mut extra = Map::new();
            extra.insert(name.to_owned(), value);
            let refused = parse(&Value::Object(extra), false).expect_err("is refused");
            assert_eq!(
                (refused.status(), refused.code(), &refused.object()["param"]),
                (400, Some("unsupported_parameter"), &json!(name))
            );
        }
    }

    #[test]
    fn values_of_other_types_and_contradictions_are_refused() {
        for (extra, param, code) in [
            (
                json!({"model": null}),
                "model",
                "missing_required_parameter",
            ),
            (json!({"stream": "yes"}), "stream", "invalid_type"),
            (json!({"store": 1}), "store", "invalid_type"),
            (
                json!({"max_tokens": 0}),
                "max_tokens",
                "integer_below_min_value",
            ),
            (json!({"max_tokens": 1.5}), "max_tokens", "invalid_type"),
            (
                json!({"max_completion_tokens": OUTPUT_TOKENS + 1}),
                "max_completion_tokens",
                "integer_above_max_value",
            ),
            (
                json!({"max_tokens": 5, "max_completion_tokens": 6}),
                "max_tokens",
                "invalid_value",
            ),
            (
                json!({"stream_options": {}}),
                "stream_options",
                "invalid_value",
            ),
            (
                json!({"stream": true, "stream_options": {"include_obfuscation": true}}),
                "stream_options.include_obfuscation",
                "unsupported_parameter",
            ),
        ] {
            let refused = parse(&extra, false).expect_err("is refused").object();
            assert_eq!(
                (&refused["param"], &refused["code"]),
                (&json!(param), &json!(code)),
                "{extra}"
            );
        }
        let refused = parse(&json!({"store": false}), true).expect_err("is refused");
        assert_eq!(refused.object()["param"], "store");
    }

    #[test]
    fn what_has_no_effect_is_named() {
        let extra = json!({
            "user": "u", "prompt_cache_key": "k", "safety_identifier": "s", "top_k": 3, "seed": null,
        });
        let body = parse(&extra, false).expect("is valid");
        let named = ["user", "prompt_cache_key", "safety_identifier", "top_k"];
        assert_eq!(body.ignored, named);
        let stored = parse(
            &json!({"store": true, "user": "u", "metadata": {"a": "b"}}),
            false,
        );
        let stored = stored.expect("is valid");
        assert_eq!(
            (stored.user.as_deref(), stored.metadata.len()),
            (Some("u"), 1)
        );
        assert!(stored.ignored.is_empty());
    }

    #[test]
    fn the_output_limit_has_two_names() {
        for (extra, name) in [
            (json!({"max_tokens": 5}), "max_tokens"),
            (json!({"max_completion_tokens": 5}), "max_completion_tokens"),
            (
                json!({"max_completion_tokens": 5, "max_tokens": 5}),
                "max_completion_tokens",
            ),
        ] {
            let body = parse(&extra, false).expect("is valid");
            assert_eq!(body.output_limit, name);
            assert_eq!(body.options.max_output_tokens, Some(5));
        }
    }
}
