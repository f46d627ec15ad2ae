//! The body of a call: the rendered context, byte for byte, and around it what its provider wants besides.

use anneal_core::tokens::Tokens;
use serde::Serialize;

use super::{Api, Call, Model, Tool};

/// Where a call goes, below the provider's home, and what is sent.
pub(super) fn request(model: &Model, call: &Call<'_>) -> (String, String) {
    let output = call.output.min(model.output());
    let mut body = Object::begin(call.context.len());
    let path = match model.provider.api {
        Api::OpenAi => {
            body.add("model", model.served_as());
            body.add("stream", &true);
            body.add_json("stream_options", "{\"include_usage\":true}");
            body.add(model.provider.output_field.name(), &output);
            body.add_given("temperature", call.temperature);
            body.add_tools(list(call.tools, |tool| {
                format!("{{\"type\":\"function\",\"function\":{}}}", described(tool, "parameters"))
            }));
            "/chat/completions".to_owned()
        }
        Api::Anthropic => {
            body.add("model", model.served_as());
            body.add("stream", &true);
            body.add("max_tokens", &output);
            // Its scale ends at 1.
            body.add_given("temperature", call.temperature.map(|heat| heat.min(1.0)));
            body.add_tools(list(call.tools, |tool| described(tool, "input_schema")));
            "/messages".to_owned()
        }
        Api::Gemini => {
            body.add_json("generationConfig", &generation(output, call.temperature));
            let declared = list(call.tools, |tool| described(tool, "parametersJsonSchema"));
            body.add_tools(declared.map(|list| format!("[{{\"functionDeclarations\":{list}}}]")));
            format!("/models/{}:streamGenerateContent?alt=sse", in_path(model.served_as()))
        }
    };
    (path, body.with(call.context))
}

fn generation(output: Tokens, temperature: Option<f32>) -> String {
    let mut config = Object::begin(0);
    config.add("maxOutputTokens", &output);
    config.add_given("temperature", temperature);
    config.with("{}")
}

/// The tools as a JSON list; None where there are none, because providers refuse an empty list.
fn list(tools: &[Tool], written: impl Fn(&Tool) -> String) -> Option<String> {
    let tools: Vec<String> = tools.iter().map(written).collect();
    (!tools.is_empty()).then(|| format!("[{}]", tools.join(",")))
}

/// Name, description and, under this key, the schema as the caller wrote it.
fn described(tool: &Tool, schema_key: &str) -> String {
    let mut object = Object::begin(tool.input_schema.len());
    object.add("name", &tool.name);
    object.add("description", &tool.description);
    object.add_json(schema_key, &tool.input_schema);
    object.with("{}")
}

/// A name as one segment of a path: whatever is not plain is percent-encoded.
fn in_path(name: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    let written = |byte| if is_plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") };
    name.bytes().map(written).collect()
}

/// A JSON object that is being written.
struct Object(String);

impl Object {
    fn begin(room: usize) -> Self {
        let mut json = String::with_capacity(room + 1_024);
        json.push('{');
        Self(json)
    }

    fn add(&mut self, name: &str, value: &(impl Serialize + ?Sized)) {
        let json = serde_json::to_string(value).expect("texts, numbers and truths always serialise");
        self.add_json(name, &json);
    }

    fn add_given(&mut self, name: &str, value: Option<f32>) {
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

    /// Ends it with the fields of another object, as they are written there.
    fn with(mut self, object: &str) -> String {
        let fields = object.strip_prefix('{').unwrap_or(object);
        if self.0.len() > 1 && fields != "}" {
            self.0.push(',');
        }
        self.0.push_str(fields);
        self.0
    }
}
