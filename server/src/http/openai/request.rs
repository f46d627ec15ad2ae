//! What requests of this protocol have in common: a JSON object as body, `Idempotency-Key`,
//! `include`, and metadata.

use std::collections::HashMap;

use anneal_core::limits::ID_BYTES;
use axum::{
    extract::{FromRequest, Request},
    http::{HeaderMap, HeaderName, HeaderValue},
    response::Response,
};
use serde_json::{Map, Value};

use super::{body_values, errors::ApiError, fields::unsupported_value};
use crate::{
    http::{
        extractors::{parse_body, read_json},
        problem::Problem,
        state::HttpState,
    },
    limits::cpu_pool,
    reason::Reason,
    traffic::RequestMemory,
};

/// Names the parameters of a request that had no effect, because this server does not know them.
pub(in crate::http) const IGNORED_PARAMETERS: HeaderName =
    HeaderName::from_static("x-anneal-ignored-parameters");
/// Makes a request repeatable.
pub(in crate::http) const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
/// Names in the header of ignored parameters.
const IGNORED_NAMES: usize = 16;
/// Bytes of each of these names.
const IGNORED_NAME_BYTES: usize = 64;

/// Pairs in the metadata of a conversation or response.
const METADATA_PAIRS: usize = 16;
/// Characters of a key of these metadata.
const METADATA_KEY_CHARS: usize = 64;
/// Characters of a value of these metadata.
const METADATA_VALUE_CHARS: usize = 512;

/// Most tokens of an output limit: providers read it as an integer of 32 bits.
pub(in crate::http) const OUTPUT_TOKENS: u64 = i32::MAX as u64;

/// Further fields that `include` can ask for. Answers always have them.
const INCLUDED: [&str; 2] = [
    "reasoning.encrypted_content",
    "message.input_image.image_url",
];

/// A body that is a JSON object; empty: the request has no body.
pub(in crate::http) struct ObjectBody(pub(in crate::http) Map<String, Value>);

impl FromRequest<HttpState> for ObjectBody {
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &HttpState) -> Result<Self, ApiError> {
        let memory = request.extensions().get::<RequestMemory>().cloned();
        let read = read_json(request, state).await.map_err(of_problem)?;
        let Some((caller, bytes)) = read else {
            return Ok(Self(Map::new()));
        };
        let is_long = cpu_pool::is_long(bytes.len(), 0);
        let parse = move || {
            body_values::reserve(&bytes, memory.as_ref())?;
            parse_object(&bytes)
        };
        let cpu = &state.services.state.cpu;
        let parsed = cpu.run_if(is_long, caller.tenant(), parse).await?;
        parsed.map(Self)
    }
}

/// Parses a body. JSON of another type is refused as that.
fn parse_object(bytes: &[u8]) -> Result<Map<String, Value>, ApiError> {
    if bytes.trim_ascii_start().first() != Some(&b'{')
        && let Ok(other) = serde_json::from_slice(bytes)
    {
        return Err(ApiError::invalid_type("body", "an object", &other));
    }
    parse_body(bytes).map_err(of_problem)
}

/// The error of a body that cannot be read.
fn of_problem(problem: Problem) -> ApiError {
    let is_broken = problem.is(Reason::MalformedRequest) && problem.status() == 400;
    let error = ApiError::from(problem);
    if is_broken {
        error.with_code("invalid_json")
    } else {
        error
    }
}

/// The request id in the header `Idempotency-Key`; empty: the header is absent.
pub(in crate::http) fn idempotency_key(headers: &HeaderMap) -> Result<String, ApiError> {
    let Some(key) = headers.get(IDEMPOTENCY_KEY) else {
        return Ok(String::new());
    };
    let refuse = |code, message: String| ApiError::invalid("Idempotency-Key", Some(code), message);
    let key = key.to_str().map_err(|_| {
        let message = "must be visible ASCII characters.";
        refuse("invalid_value", message.to_owned())
    })?;
    if key.len() > ID_BYTES {
        let message = format!("string too long. Expected at most {ID_BYTES} bytes.");
        return Err(refuse("string_above_max_length", message));
    }
    Ok(key.to_owned())
}

/// Checks what `include` asks for. `param` is the name of the parameter, or of its entry.
pub(in crate::http) fn check_included(value: &str, param: &str) -> Result<(), ApiError> {
    if INCLUDED.contains(&value) {
        return Ok(());
    }
    let refused = unsupported_value(param, value, &INCLUDED);
    Err(refused.with_code("unsupported_parameter"))
}

/// Checks a parameter of a query, which must be `include`.
pub(in crate::http) fn check_include_parameter(name: &str, value: &str) -> Result<(), ApiError> {
    if matches!(name, "include" | "include[]") {
        check_included(value, name)
    } else {
        Err(ApiError::unknown_parameter(name))
    }
}

/// Checks a query that has no other parameters than `include`.
pub(in crate::http) fn check_only_included(query: &[(String, String)]) -> Result<(), ApiError> {
    let mut query = query.iter();
    query.try_for_each(|(name, value)| check_include_parameter(name, value))
}

/// Parses metadata: at most 16 pairs of texts without NUL.
pub(in crate::http) fn parse_metadata(value: &Value) -> Result<HashMap<String, String>, ApiError> {
    let Value::Object(pairs) = value else {
        return Err(ApiError::invalid_type("metadata", "an object", value));
    };
    if pairs.len() > METADATA_PAIRS {
        let message = format!(
            "Invalid 'metadata': too many properties. Expected an object with at most {METADATA_PAIRS} properties, but got an object with {} properties instead.",
            pairs.len()
        );
        let code = Some("object_above_max_properties");
        return Err(ApiError::invalid("metadata", code, message));
    }
    let pairs = pairs.iter().map(|(key, value)| {
        if key.chars().count() > METADATA_KEY_CHARS {
            return Err(too_long("metadata".to_owned(), "key", METADATA_KEY_CHARS));
        }
        if key.contains('\0') {
            return Err(with_nul("metadata"));
        }
        let param = format!("metadata.{key}");
        match value {
            Value::String(text) if text.chars().count() > METADATA_VALUE_CHARS => {
                Err(too_long(param, "string", METADATA_VALUE_CHARS))
            }
            Value::String(text) if text.contains('\0') => Err(with_nul(&param)),
            Value::String(text) => Ok((key.clone(), text.clone())),
            other => Err(ApiError::invalid_type(param, "a string", other)),
        }
    });
    pairs.collect()
}

fn with_nul(param: &str) -> ApiError {
    let message = format!("Invalid '{param}': it must not contain NUL.");
    ApiError::invalid(param, Some("invalid_value"), message)
}

fn too_long(param: String, what: &str, most: usize) -> ApiError {
    let message = format!(
        "Invalid '{param}': {what} too long. Expected a string with maximum length {most}."
    );
    ApiError::invalid(param, Some("string_above_max_length"), message)
}

/// The response with a header that names these parameters, which had no effect.
pub(in crate::http) fn with_ignored(mut response: Response, ignored: &[String]) -> Response {
    let is_name = |name: &&String| {
        let is_visible = name
            .bytes()
            .all(|byte| byte.is_ascii_graphic() && byte != b',');
        is_visible && name.len() <= IGNORED_NAME_BYTES
    };
    let names = ignored.iter().filter(is_name).take(IGNORED_NAMES);
    let names: Vec<&str> = names.map(String::as_str).collect();
    if let Ok(value) = HeaderValue::try_from(names.join(", "))
        && !names.is_empty()
    {
        response.headers_mut().insert(IGNORED_PARAMETERS, value);
    }
    response
}

#[cfg(test)]
mod tests {
    use axum::response::IntoResponse as _;
    use serde_json::json;

    use super::*;

    #[test]
    fn metadata_have_at_most_sixteen_pairs_of_texts_of_limited_length() {
        let pairs = |count: usize| {
            let pairs = (0..count).map(|n| (format!("k{n}"), json!("v")));
            Value::Object(pairs.collect())
        };
        assert_eq!(parse_metadata(&pairs(16)).map(|pairs| pairs.len()), Ok(16));
        let longest = json!({"é".repeat(64): "é".repeat(512)});
        assert_eq!(parse_metadata(&longest).map(|pairs| pairs.len()), Ok(1));
        for (value, param, code) in [
            (pairs(17), "metadata", "object_above_max_properties"),
            (
                json!({"k".repeat(65): "v"}),
                "metadata",
                "string_above_max_length",
            ),
            (
                json!({"k": "v".repeat(513)}),
                "metadata.k",
                "string_above_max_length",
            ),
            (json!({"k": 1}), "metadata.k", "invalid_type"),
            (json!({"k": "a\0b"}), "metadata.k", "invalid_value"),
            (json!({"k\0": "v"}), "metadata", "invalid_value"),
            (json!([]), "metadata", "invalid_type"),
        ] {
            let refused = parse_metadata(&value).expect_err("is refused").object();
            assert_eq!(
                (&refused["param"], &refused["code"]),
                (&json!(param), &json!(code)),
                "{value}"
            );
        }
    }

    #[test]
    fn a_key_has_at_most_128_bytes_of_visible_ascii() {
        let read = |key: &[u8]| {
            let key = HeaderValue::from_bytes(key).expect("is a header");
            idempotency_key(&HeaderMap::from_iter([(IDEMPOTENCY_KEY, key)]))
        };
        assert_eq!(read(&[b'k'; 128]), Ok("k".repeat(128)));
        for (key, code) in [
            (&[b'k'; 129][..], "string_above_max_length"),
            (b"\xff", "invalid_value"),
        ] {
            let refused = read(key).expect_err("is refused").object();
            assert_eq!(
                (&refused["param"], &refused["code"]),
                (&json!("Idempotency-Key"), &json!(code))
            );
        }
        assert_eq!(idempotency_key(&HeaderMap::new()), Ok(String::new()));
    }

    #[test]
    fn a_body_that_is_no_object_is_refused_by_its_type() {
        for (body, param, code) in [
            ("[]", json!("body"), "invalid_type"),
            (" \"a\"", json!("body"), "invalid_type"),
            ("[", Value::Null, "invalid_json"),
            ("{} {}", Value::Null, "invalid_json"),
        ] {
            let refused = parse_object(body.as_bytes()).expect_err("is refused");
            let refused = refused.object();
            assert_eq!(
                (&refused["param"], &refused["code"]),
                (&param, &json!(code)),
                "{body}"
            );
        }
        assert!(parse_object(br#"{"a": 1}"#).is_ok());
    }

    #[test]
    fn ignored_parameters_are_named_unless_a_header_cannot_hold_them() {
        let named = |ignored: &[&str]| {
            let ignored: Vec<String> = ignored.iter().map(|name| (*name).to_owned()).collect();
            let response = with_ignored("".into_response(), &ignored);
            let header = response.headers().get(IGNORED_PARAMETERS).cloned();
            header.map(|value| value.to_str().expect("is ASCII").to_owned())
        };
        assert_eq!(named(&["a", "b\r\nc: d", "é", "e"]), Some("a, e".into()));
        assert_eq!(named(&["a,b", "\n"]), None);
        assert_eq!(named(&[]), None);
    }

    #[test]
    fn only_what_answers_always_have_can_be_included() {
        assert_eq!(check_included(INCLUDED[0], "include[]"), Ok(()));
        let refused = check_included("message.output_text.logprobs", "include[]");
        let refused = refused.expect_err("is refused").object();
        assert_eq!(
            (&refused["param"], &refused["code"]),
            (&json!("include[]"), &json!("unsupported_parameter"))
        );
    }
}
