//! The body of a call: the rendered context, unchanged, and the other fields that the provider
//! needs.

use anneal_core::{
    cache::{CacheTtl, can_be_cached_for_a_day},
    chat_options::{ChatOptions, ReasoningEffort, ResponseFormat, ToolChoice},
};
use serde::Serialize;

use super::{
    Api, Call, Tool,
    http::Provider,
    known_models::{Claude, Gemini, effort_name},
};

/// The path of a call, below the provider's base URL, and its body. `served_as` is the model's name
/// at the provider.
pub(super) fn request(provider: &Provider, served_as: &str, call: &Call<'_>) -> (String, String) {
    let (path, body) = match provider.api {
        Api::OpenAi => (
            "/chat/completions".to_owned(),
            openai(provider, served_as, call),
        ),
        Api::Anthropic => ("/messages".to_owned(), anthropic(served_as, call)),
        Api::Gemini => (
            format!(
                "/models/{}:streamGenerateContent?alt=sse",
                path_segment(served_as)
            ),
            gemini(served_as, call),
        ),
    };
    (path, body.end_with(call.context))
}

fn openai(provider: &Provider, served_as: &str, call: &Call<'_>) -> Object {
    let options = call.options;
    let mut body = Object::begin(call.context.len());
    body.add("model", served_as);
    body.add("stream", &true);
    body.add_json("stream_options", "{\"include_usage\":true}");
    body.add(provider.output_field.name(), &call.output);
    body.add_if_some("temperature", options.temperature);
    body.add_if_some("top_p", options.top_p);
    body.add_if_some("stop", options.stop.as_ref());
    body.add_if_some(
        "reasoning_effort",
        options.reasoning_effort.map(effort_name),
    );
    body.add_if_some("metadata", options.metadata.as_ref());
    let format = options.response_format.as_ref().map(openai_format);
    body.add_json_if_some("response_format", format);
    let tools = list(options.tools(), |tool| {
        let function = tool_json(tool, "parameters").end();
        format!("{{\"type\":\"function\",\"function\":{function}}}")
    });
    // The protocol refuses both options of tools in a request without tools, which calls none.
    if tools.is_some() {
        let choice = options.tool_choice.as_ref().map(openai_choice);
        body.add_json_if_some("tool_choice", choice);
        body.add_if_some("parallel_tool_calls", options.parallel_tool_calls);
    }
    body.add_json_if_some("tools", tools);
    if provider.asks_for_cache {
        body.add_if_some("prompt_cache_key", call.cache_key);
        if call.long_retention && can_be_cached_for_a_day(served_as) {
            body.add("prompt_cache_retention", "24h");
        }
    }
    body
}

fn openai_format(format: &ResponseFormat) -> String {
    match format {
        ResponseFormat::JsonObject => "{\"type\":\"json_object\"}".to_owned(),
        ResponseFormat::JsonSchema {
            name,
            schema,
            strict,
        } => {
            let mut shape = Object::begin(schema.len());
            shape.add("name", name);
            shape.add("strict", strict);
            shape.add_json("schema", schema);
            let mut format = Object::begin(schema.len());
            format.add("type", "json_schema");
            format.add_json("json_schema", &shape.end());
            format.end()
        }
    }
}

fn openai_choice(choice: &ToolChoice) -> String {
    match choice {
        ToolChoice::Auto => "\"auto\"".to_owned(),
        ToolChoice::None => "\"none\"".to_owned(),
        ToolChoice::Required => "\"required\"".to_owned(),
        ToolChoice::Named(name) => {
            let mut function = Object::begin(0);
            function.add("name", name);
            let mut choice = Object::begin(0);
            choice.add("type", "function");
            choice.add_json("function", &function.end());
            choice.end()
        }
    }
}

fn anthropic(served_as: &str, call: &Call<'_>) -> Object {
    let options = call.options;
    let mut body = Object::begin(call.context.len());
    body.add("model", served_as);
    body.add("stream", &true);
    body.add("max_tokens", &call.output);
    body.add_if_some("temperature", options.temperature);
    body.add_if_some("top_p", options.top_p);
    body.add_if_some("stop_sequences", options.stop.as_ref());
    body.add_if_some("metadata", options.metadata.as_ref());
    if let Some(kind) = Claude::of(served_as).thinking(options.reasoning_effort) {
        let mut thinking = Object::begin(0);
        thinking.add("type", kind);
        body.add_json("thinking", &thinking.end());
    }
    body.add_json_if_some("output_config", output_config(options));
    if let Some((last, others)) = options.tools().split_last() {
        body.add_json_if_some("tool_choice", anthropic_choice(options));
        let mut tools: Vec<String> = others
            .iter()
            .map(|tool| tool_json(tool, "input_schema").end())
            .collect();
        let mut last = tool_json(last, "input_schema");
        last.add_json_if_some("cache_control", call.mark_tools.map(cache_control));
        tools.push(last.end());
        body.add_json("tools", &format!("[{}]", tools.join(",")));
    }
    body
}

/// Effort and shape of Anthropic's answers; None: neither is given.
fn output_config(options: &ChatOptions) -> Option<String> {
    let mut config = Object::begin(0);
    // Thinking is switched off by `thinking`, which is no effort.
    let effort = options
        .reasoning_effort
        .filter(|effort| *effort != ReasoningEffort::None);
    config.add_if_some("effort", effort.map(effort_name));
    if let Some(ResponseFormat::JsonSchema { schema, .. }) = &options.response_format {
        let mut format = Object::begin(schema.len());
        format.add("type", "json_schema");
        format.add_json("schema", schema);
        config.add_json("format", &format.end());
    }
    (!config.is_empty()).then(|| config.end())
}

/// Anthropic's choice of tools, which also says whether calls may be parallel; None: neither is
/// given.
fn anthropic_choice(options: &ChatOptions) -> Option<String> {
    let is_sequential = options.parallel_tool_calls == Some(false);
    if options.tool_choice.is_none() && !is_sequential {
        return None;
    }
    let mut json = Object::begin(0);
    match options.tool_choice.as_ref().unwrap_or(&ToolChoice::Auto) {
        ToolChoice::Auto => json.add("type", "auto"),
        // No call is no parallel call: this choice has no such field.
        ToolChoice::None => {
            json.add("type", "none");
            return Some(json.end());
        }
        ToolChoice::Required => json.add("type", "any"),
        ToolChoice::Named(name) => {
            json.add("type", "tool");
            json.add("name", name);
        }
    }
    if is_sequential {
        json.add("disable_parallel_tool_use", &true);
    }
    Some(json.end())
}

fn cache_control(ttl: CacheTtl) -> String {
    let json = match ttl {
        CacheTtl::FiveMinutes => "{\"type\":\"ephemeral\"}",
        CacheTtl::OneHour => "{\"type\":\"ephemeral\",\"ttl\":\"1h\"}",
    };
    json.to_owned()
}

fn gemini(served_as: &str, call: &Call<'_>) -> Object {
    let options = call.options;
    let is_without_tools = options.tool_choice == Some(ToolChoice::None)
        && options.response_format.is_some()
        && !Gemini::of(served_as).has_shapes_beside_tools();
    let tools: &[Tool] = if is_without_tools {
        &[]
    } else {
        options.tools()
    };
    let mut body = Object::begin(call.context.len());
    body.add_json("generationConfig", &generation_config(call));
    let declared = list(tools, |tool| tool_json(tool, "parametersJsonSchema").end());
    if let (Some(choice), Some(_)) = (&options.tool_choice, &declared) {
        body.add_json("toolConfig", &gemini_choice(choice));
    }
    let tools = declared.map(|list| format!("[{{\"functionDeclarations\":{list}}}]"));
    body.add_json_if_some("tools", tools);
    body
}

fn generation_config(call: &Call<'_>) -> String {
    let options = call.options;
    let mut config = Object::begin(0);
    config.add("maxOutputTokens", &call.output);
    config.add_if_some("temperature", options.temperature);
    config.add_if_some("topP", options.top_p);
    config.add_if_some("stopSequences", options.stop.as_ref());
    if let Some(format) = &options.response_format {
        config.add("responseMimeType", "application/json");
        if let ResponseFormat::JsonSchema { schema, .. } = format {
            config.add_json("responseJsonSchema", schema);
        }
    }
    if let Some(effort) = options.reasoning_effort {
        let mut thinking = Object::begin(0);
        let level = effort_name(effort).to_ascii_uppercase();
        thinking.add("thinkingLevel", &level);
        config.add_json("thinkingConfig", &thinking.end());
    }
    config.end()
}

fn gemini_choice(choice: &ToolChoice) -> String {
    let mut calling = Object::begin(0);
    match choice {
        ToolChoice::Auto => calling.add("mode", "AUTO"),
        ToolChoice::None => calling.add("mode", "NONE"),
        ToolChoice::Required => calling.add("mode", "ANY"),
        ToolChoice::Named(name) => {
            calling.add("mode", "ANY");
            calling.add("allowedFunctionNames", &[name]);
        }
    }
    let mut config = Object::begin(0);
    config.add_json("functionCallingConfig", &calling.end());
    config.end()
}

/// The tools as a JSON list; None where there are none, because providers refuse an empty list.
fn list(tools: &[Tool], to_json: impl Fn(&Tool) -> String) -> Option<String> {
    let tools: Vec<String> = tools.iter().map(to_json).collect();
    (!tools.is_empty()).then(|| format!("[{}]", tools.join(",")))
}

/// A tool as a JSON object: its name, its description, and under `schema_key` its unchanged schema.
fn tool_json(tool: &Tool, schema_key: &str) -> Object {
    let mut object = Object::begin(tool.input_schema().len());
    object.add("name", tool.name());
    object.add("description", tool.description());
    object.add_json(schema_key, tool.input_schema());
    object
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

    fn is_empty(&self) -> bool {
        self.0.len() == 1
    }

    fn add(&mut self, name: &str, value: &(impl Serialize + ?Sized)) {
        let json = serde_json::to_string(value)
            .expect("texts, numbers, booleans, lists and maps of texts always serialize");
        self.add_json(name, &json);
    }

    /// Adds a field if it has a value.
    fn add_if_some(&mut self, name: &str, value: Option<impl Serialize>) {
        if let Some(value) = value {
            self.add(name, &value);
        }
    }

    /// Adds a field if it has a value, which is JSON text.
    fn add_json_if_some(&mut self, name: &str, json: Option<String>) {
        if let Some(json) = json {
            self.add_json(name, &json);
        }
    }

    fn add_json(&mut self, name: &str, json: &str) {
        if !self.is_empty() {
            self.0.push(',');
        }
        self.0.push('"');
        self.0.push_str(name);
        self.0.push_str("\":");
        self.0.push_str(json);
    }

    /// The JSON text.
    fn end(self) -> String {
        self.end_with("{}")
    }

    /// Adds the unchanged fields of another object, and returns the JSON text.
    fn end_with(mut self, object: &str) -> String {
        let fields = object.strip_prefix('{').unwrap_or(object);
        if !self.is_empty() && fields != "}" {
            self.0.push(',');
        }
        self.0.push_str(fields);
        self.0
    }
}
