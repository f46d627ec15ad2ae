//! The frames of a client, and the error frames of the server.

use serde_json::{Map, Value, json};

use crate::http::openai::{errors::ApiError, fields::unsupported_value};

/// The only type of a client's frames.
const CREATE: &str = "response.create";
/// Parameters that say how an answer is sent. Over a WebSocket it always comes as events.
const UNSUPPORTED: [&str; 3] = ["background", "stream", "stream_options"];

/// Parses a frame. Returns the body of the create that it asks for.
pub(super) fn parse(text: &str) -> Result<Map<String, Value>, ApiError> {
    let frame = serde_json::from_str(text).map_err(|error| {
        let message = format!("A frame must be one JSON object: {error}.");
        ApiError::invalid("body", Some("invalid_json"), message)
    })?;
    let mut frame = match frame {
        Value::Object(frame) => frame,
        other => return Err(ApiError::invalid_type("body", "an object", &other)),
    };
    match frame.remove("type") {
        Some(Value::String(kind)) if kind == CREATE => {}
        Some(Value::String(kind)) => {
            return Err(unsupported_value("type", &kind, &[CREATE]));
        }
        None | Some(Value::Null) => return Err(ApiError::missing_parameter("type")),
        Some(other) => return Err(ApiError::invalid_type("type", "a string", &other)),
    }
    for name in UNSUPPORTED {
        if frame.get(name).is_some_and(|value| !value.is_null()) {
            let message = format!(
                "Unsupported parameter: '{name}' is not supported over a WebSocket, where every \
                 response is a stream. Leave it out."
            );
            return Err(ApiError::unsupported_parameter(name, message));
        }
    }
    Ok(frame)
}

/// The id of the response that a create continues.
pub(super) fn continued_response(body: &Map<String, Value>) -> Option<&str> {
    body.get("previous_response_id")?.as_str()
}

/// The frame of an error. Its code is never null: without a code of its own, it is the type.
pub(super) fn error(error: &ApiError) -> Value {
    let mut object = error.object();
    if object["code"].is_null() {
        object["code"] = object["type"].clone();
    }
    json!({"type": "error", "status": error.status(), "error": object})
}

/// Whether no event of the same response follows this one.
pub(super) fn is_last(event: &Value) -> bool {
    let kind = event["type"].as_str().unwrap_or_default();
    matches!(
        kind,
        "response.completed" | "response.failed" | "response.incomplete" | "error"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_create_is_read_without_its_type() {
        let frame = json!({"type": "response.create", "model": "m", "stream": null, "x": 1});
        let body = parse(&frame.to_string()).expect("is a create");
        assert!(!body.contains_key("type"));
        assert_eq!((&body["model"], &body["x"]), (&json!("m"), &json!(1)));
        assert_eq!(continued_response(&body), None);
        let frame = json!({"type": "response.create", "previous_response_id": "resp_1"});
        let body = parse(&frame.to_string()).expect("is a create");
        assert_eq!(continued_response(&body), Some("resp_1"));
    }

    #[test]
    fn other_frames_are_refused_by_name() {
        let create = |name: &str| json!({"type": "response.create", name: true}).to_string();
        for (text, param, code) in [
            ("{".to_owned(), "body", "invalid_json"),
            ("[]".to_owned(), "body", "invalid_type"),
            ("{}".to_owned(), "type", "missing_required_parameter"),
            (r#"{"type":1}"#.to_owned(), "type", "invalid_type"),
            (
                r#"{"type":"response.steer"}"#.to_owned(),
                "type",
                "invalid_value",
            ),
            (create("background"), "background", "unsupported_parameter"),
            (create("stream"), "stream", "unsupported_parameter"),
            (
                create("stream_options"),
                "stream_options",
                "unsupported_parameter",
            ),
        ] {
            let refused = parse(&text).expect_err("is refused");
            let shown = error(&refused);
            assert_eq!(
                (&shown["error"]["param"], &shown["error"]["code"]),
                (&json!(param), &json!(code)),
                "{text}"
            );
            assert_eq!(
                (&shown["type"], &shown["status"]),
                (&json!("error"), &json!(400))
            );
        }
    }

    #[test]
    fn an_error_frame_always_has_a_code() {
        let shown = error(&ApiError::not_found("Nothing."));
        assert_eq!(shown["error"]["code"], "invalid_request_error");
        let not_found = ApiError::not_found("No.").with_code("previous_response_not_found");
        assert_eq!(
            error(&not_found)["error"]["code"],
            "previous_response_not_found"
        );
        assert!(is_last(&shown));
        assert!(is_last(&json!({"type": "response.completed"})));
        assert!(!is_last(&json!({"type": "response.output_text.done"})));
    }
}
