//! The body of a call: the rendered context, unchanged, and the other fields that the provider
//! needs.

use anneal_core::tokens::Tokens;
use serde::Serialize;

use super::{Api, Call, Tool, http::Provider};

/// The path of a call, below the provider's base URL, and its body. `served_as` is the model's name
/// at the provider.
pub(super) fn request(provider: &Provider, served_as: &str, call: &Call<'_>) -> (String, String) {
    let mut body = Object::begin(call.context.len());
    let path = match provider.api {
        Api::OpenAi => {
            body.add("model", served_as);
            body.add("stream", &true);
            body.add_json("stream_options", "{\"include_usage\":true}");
            body.add(provider.output_field.name(), &call.output);
            body.add_if_some("temperature", call.options.temperature);
            body.add_tools(list(call.options.tools(), |tool| {
                format!(
                    "{{\"type\":\"function\",\"function\":{}}}",
                    tool_json(tool, "parameters")
                )
            }));
            "/chat/completions".to_owned()
        }
        Api::Anthropic => {
            body.add("model", served_as);
            body.add("stream", &true);
            body.add("max_tokens", &call.output);
            // Anthropic accepts temperatures up to 1.
            let temperature = call.options.temperature.map(|value| value.min(1.0));
            body.add_if_some("temperature", temperature);
            body.add_tools(list(call.options.tools(), |tool| {
                tool_json(tool, "input_schema")
            }));
            "/messages".to_owned()
        }
        Api::Gemini => {
            body.add_json(
                "generationConfig",
                &generation_config(call.output, call.options.temperature),
            );
            let declared = list(call.options.tools(), |tool| {
                tool_json(tool, "parametersJsonSchema")
            });
            body.add_tools(declared.map(|list| format!("[{{\"functionDeclarations\":{list}}}]")));
            format!(
                "/models/{}:streamGenerateContent?alt=sse",
                path_segment(served_as)
            )
        }
    };
    (path, body.end_with(call.context))
}

fn generation_config(output: Tokens, temperature: Option<f32>) -> String {
    let mut config = Object::begin(0);
    config.add("maxOutputTokens", &output);
    config.add_if_some("temperature", temperature);
    config.end_with("{}")
}

/// The tools as a JSON list; None where there are none, because providers refuse an empty list.
fn list(tools: &[Tool], to_json: impl Fn(&Tool) -> String) -> Option<String> {
    let tools: Vec<String> = tools.iter().map(to_json).collect();
    (!tools.is_empty()).then(|| format!("[{}]", tools.join(",")))
}

/// A tool as a JSON object: its name, its description, and under `schema_key` its unchanged schema.
fn tool_json(tool: &Tool, schema_key: &str) -> String {
    let mut object = Object::begin(tool.input_schema().len());
    object.add("name", tool.name());
    object.add("description", tool.description());
    object.add_json(schema_key, tool.input_schema());
    object.end_with("{}")
}

/// A name as one segment of a path, percent-encoded.
fn path_segment(name: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    let encode = |byte| {
        if is_plain(byte) {
            char::from(byte).to_string()
        } else {
            format!("%{byte:02X}")
        }
    };
    name.bytes().map(encode).collect()
}

/// Writes a JSON object field by field.
struct Object(String);

impl Object {
    /// An object without fields. `bytes` is the expected length of its longest fields.
    fn begin(bytes: usize) -> Self {
        let mut json = String::with_capacity(bytes + 1_024);
        json.push('{');
        Self(json)
    }

    fn add(&mut self, name: &str, value: &(impl Serialize + ?Sized)) {
        let json =
            serde_json::to_string(value).expect("strings, numbers and booleans always serialize");
        self.add_json(name, &json);
    }

    /// Adds a field if it has a value.
    fn add_if_some(&mut self, name: &str, value: Option<f32>) {
        if let Some(value) = value {
            self.add(name, &value);
        }
    }

    fn add_tools(&mut self, tools: Option<String>) {
        if let Some(tools) = tools {
            self.add_json("tools", &tools);
        }
    }

    fn add_json(&mut self, name: &str, json: &str) {
        if self.0.len() > 1 {
            self.0.push(',');
        }
        self.0.push('"');
        self.0.push_str(name);
        self.0.push_str("\":");
        self.0.push_str(json);
    }

    /// Adds the unchanged fields of another object, and returns the JSON text.
    fn end_with(mut self, object: &str) -> String {
        let fields = object.strip_prefix('{').unwrap_or(object);
        if self.0.len() > 1 && fields != "}" {
            self.0.push(',');
        }
        self.0.push_str(fields);
        self.0
    }
}
