//! Cases of responses, of counts and of compactions of OpenAI's protocol.

use anneal_testkit::MODEL;
use serde_json::{Value, json};

use crate::hostile::{
    door_case::{DoorCase, Expected, broken_bodies, missing, post, refused, request},
    openai_conversations::broken_items,
};

const RESPONSES: &str = "/v1/responses";
const INPUT_TOKENS: &str = "/v1/responses/input_tokens";
const COMPACT: &str = "/v1/responses/compact";

/// Bodies of creates and of counts.
pub(crate) fn bodies() -> Vec<DoorCase> {
    let valid = json!({"model": MODEL, "input": "a"});
    let mut cases = Vec::new();
    for path in [RESPONSES, INPUT_TOKENS, COMPACT] {
        cases.extend(broken_bodies(path, &valid));
        let unknown = json!({"model": "no-such-model", "input": "a"});
        let no_model = Expected::Error(404, "model".into(), "model_not_found");
        cases.push(post("an unknown model", path, &unknown, no_model));
        let ends = json!({"role": "user", "content": "a"});
        // The RPC checks these, whose fields are not those of the items.
        let items = broken_items().into_iter();
        let items = items.filter(|(name, ..)| !name.ends_with("id of a call"));
        for (name, item, param, code) in items {
            let body = json!({"model": MODEL, "input": [ends, item, ends]});
            cases.push(post(
                name,
                path,
                &body,
                refused(format!("input[1]{param}"), code),
            ));
        }
        for (name, input, param, code) in [
            ("a number for an input", json!(1), "input", "invalid_type"),
            ("an object for an input", json!({}), "input", "invalid_type"),
            ("an empty input", json!([]), "input", "empty_array"),
            (
                "10,001 items",
                json!(vec![json!({"role": "user", "content": "a"}); 10_001]),
                "input",
                "array_above_max_length",
            ),
        ] {
            let body = json!({"model": MODEL, "input": input});
            // Nothing counts nothing.
            if code != "empty_array" || path != INPUT_TOKENS {
                cases.push(post(name, path, &body, refused(param, code)));
            }
        }
        let item = json!({"type": "item_reference", "id": "msg_x"});
        let body = json!({"model": MODEL, "input": [item]});
        cases.push(post("a reference to nothing", path, &body, missing()));
    }
    for path in [RESPONSES, INPUT_TOKENS] {
        for (name, more, param, code) in parameters() {
            let mut body = valid.clone();
            for (name, value) in more.as_object().expect("an object") {
                body[name] = value.clone();
            }
            cases.push(post(name, path, &body, refused(param, code)));
        }
    }
    cases.push(post(
        "no input",
        RESPONSES,
        &json!({"model": MODEL}),
        refused("input", "missing_required_parameter"),
    ));
    cases
}

/// A parameter that is refused: a description, the parameters, the one at fault, the code.
type Parameter = (&'static str, Value, &'static str, &'static str);

/// Parameters that are refused.
fn parameters() -> Vec<Parameter> {
    let groups = [
        turns(),
        numbers_and_labels(),
        tools(),
        texts(),
        unsupported(),
    ];
    groups.concat()
}

/// How the response is made: its model, where it begins, and what may be left out.
fn turns() -> Vec<Parameter> {
    vec![
        (
            "a number for a model",
            json!({"model": 1}),
            "model",
            "invalid_type",
        ),
        (
            "a number for instructions",
            json!({"instructions": 1}),
            "instructions",
            "invalid_type",
        ),
        (
            "NUL in instructions",
            json!({"instructions": "a\0b"}),
            "instructions",
            "invalid_value",
        ),
        (
            "a text for store",
            json!({"store": "no"}),
            "store",
            "invalid_type",
        ),
        (
            "a number for stream",
            json!({"stream": 1}),
            "stream",
            "invalid_type",
        ),
        (
            "a text for background",
            json!({"background": "yes"}),
            "background",
            "invalid_type",
        ),
        (
            "unstored in the background",
            json!({"store": false, "background": true}),
            "background",
            "invalid_value",
        ),
        (
            "a list for a conversation",
            json!({"conversation": []}),
            "conversation",
            "invalid_type",
        ),
        (
            "no id of a conversation",
            json!({"conversation": {}}),
            "conversation.id",
            "missing_required_parameter",
        ),
        (
            "a malformed conversation",
            json!({"conversation": "conv_1"}),
            "conversation",
            "invalid_value",
        ),
        (
            "NUL for a conversation",
            json!({"conversation": "\0"}),
            "conversation",
            "invalid_value",
        ),
        (
            "a number for the previous response",
            json!({"previous_response_id": 1}),
            "previous_response_id",
            "invalid_type",
        ),
        (
            "an unknown truncation",
            json!({"truncation": "all"}),
            "truncation",
            "invalid_value",
        ),
        (
            "an object for management",
            json!({"context_management": {}}),
            "context_management",
            "invalid_type",
        ),
        (
            "an unknown management",
            json!({"context_management": [{"type": "x"}]}),
            "context_management[0].type",
            "invalid_value",
        ),
        (
            "a threshold of 0",
            json!({"context_management": [{"type": "compaction", "compact_threshold": 0}]}),
            "context_management[0].compact_threshold",
            "integer_below_min_value",
        ),
    ]
}

/// Numbers, and labels that are shown again.
fn numbers_and_labels() -> Vec<Parameter> {
    vec![
        (
            "a warm temperature",
            json!({"temperature": "warm"}),
            "temperature",
            "invalid_type",
        ),
        (
            "a temperature of 2.1",
            json!({"temperature": 2.1}),
            "temperature",
            "decimal_above_max_value",
        ),
        (
            "a temperature below 0",
            json!({"temperature": -0.1}),
            "temperature",
            "decimal_below_min_value",
        ),
        (
            "a share of 1e300",
            json!({"top_p": 1e300}),
            "top_p",
            "decimal_above_max_value",
        ),
        (
            "no output",
            json!({"max_output_tokens": 0}),
            "max_output_tokens",
            "integer_below_min_value",
        ),
        (
            "an output below 0",
            json!({"max_output_tokens": -1}),
            "max_output_tokens",
            "integer_below_min_value",
        ),
        (
            "half a token",
            json!({"max_output_tokens": 16.5}),
            "max_output_tokens",
            "invalid_type",
        ),
        (
            "calls below 1",
            json!({"max_tool_calls": 0}),
            "max_tool_calls",
            "integer_below_min_value",
        ),
        (
            "a text for metadata",
            json!({"metadata": "a"}),
            "metadata",
            "invalid_type",
        ),
        (
            "a list in metadata",
            json!({"metadata": {"k": []}}),
            "metadata.k",
            "invalid_type",
        ),
        (
            "NUL in metadata",
            json!({"metadata": {"k": "\0"}}),
            "metadata.k",
            "invalid_value",
        ),
        (
            "a long key",
            json!({"prompt_cache_key": "x".repeat(65)}),
            "prompt_cache_key",
            "string_above_max_length",
        ),
        (
            "a long user",
            json!({"user": "x".repeat(65)}),
            "user",
            "string_above_max_length",
        ),
        (
            "a long identifier",
            json!({"safety_identifier": "x".repeat(65)}),
            "safety_identifier",
            "string_above_max_length",
        ),
    ]
}

/// Tools and the choice among them.
fn tools() -> Vec<Parameter> {
    let function = |name: &str, value: Value| {
        let mut tool = json!({"type": "function", "name": "f", "parameters": {}});
        tool[name] = value;
        json!({"tools": [tool]})
    };
    vec![
        (
            "an object for tools",
            json!({"tools": {}}),
            "tools",
            "invalid_type",
        ),
        (
            "a text for a tool",
            json!({"tools": ["f"]}),
            "tools[0]",
            "invalid_type",
        ),
        (
            "a hosted tool",
            json!({"tools": [{"type": "web_search"}]}),
            "tools[0].type",
            "unsupported_tool",
        ),
        (
            "a tool without a type",
            json!({"tools": [{"name": "f"}]}),
            "tools[0].type",
            "missing_required_parameter",
        ),
        (
            "a tool without a name",
            json!({"tools": [{"type": "function"}]}),
            "tools[0].name",
            "missing_required_parameter",
        ),
        (
            "a number for a tool's name",
            function("name", json!(1)),
            "tools[0].name",
            "invalid_type",
        ),
        (
            "a list for a tool's schema",
            function("parameters", json!([])),
            "tools[0].parameters",
            "invalid_type",
        ),
        (
            "300 tools",
            json!({"tools": vec![json!({"type": "function", "name": "f"}); 300]}),
            "tools",
            "array_above_max_length",
        ),
        (
            "a choice of no tool",
            json!({"tool_choice": {"type": "function", "name": "g"}}),
            "tool_choice",
            "invalid_value",
        ),
        (
            "a number for a choice",
            json!({"tool_choice": 1}),
            "tool_choice",
            "invalid_type",
        ),
        (
            "a choice of a hosted tool",
            json!({"tool_choice": {"type": "web_search"}}),
            "tool_choice.type",
            "unsupported_tool",
        ),
    ]
}

/// Formats and reasoning.
fn texts() -> Vec<Parameter> {
    let schema = |format: Value| json!({"text": {"format": format}});
    vec![
        (
            "a text for the text",
            json!({"text": "json"}),
            "text",
            "invalid_type",
        ),
        (
            "an unknown format",
            schema(json!({"type": "xml"})),
            "text.format.type",
            "invalid_value",
        ),
        (
            "a format without a type",
            schema(json!({})),
            "text.format.type",
            "missing_required_parameter",
        ),
        (
            "an unknown field of a format",
            schema(json!({"type": "text", "x": 1})),
            "text.format.x",
            "unknown_parameter",
        ),
        (
            "a schema without a name",
            schema(json!({"type": "json_schema", "schema": {}})),
            "text.format.name",
            "missing_required_parameter",
        ),
        (
            "a list for a schema",
            schema(json!({"type": "json_schema", "name": "a", "schema": []})),
            "text.format.schema",
            "invalid_type",
        ),
        (
            "a text for reasoning",
            json!({"reasoning": "hard"}),
            "reasoning",
            "invalid_type",
        ),
        (
            "an unknown effort",
            json!({"reasoning": {"effort": "vast"}}),
            "reasoning.effort",
            "invalid_value",
        ),
        (
            "an unknown field of reasoning",
            json!({"reasoning": {"x": 1}}),
            "reasoning.x",
            "unknown_parameter",
        ),
    ]
}

/// What no answer has.
fn unsupported() -> Vec<Parameter> {
    vec![
        (
            "a text for include",
            json!({"include": "all"}),
            "include",
            "invalid_type",
        ),
        (
            "a number in include",
            json!({"include": [1]}),
            "include[0]",
            "invalid_type",
        ),
        (
            "an unknown inclusion",
            json!({"include": ["x"]}),
            "include[0]",
            "unsupported_parameter",
        ),
        (
            "17 inclusions",
            json!({"include": vec!["reasoning.encrypted_content"; 17]}),
            "include",
            "array_above_max_length",
        ),
        (
            "a prompt by id",
            json!({"prompt": {"id": "p"}}),
            "prompt",
            "unsupported_parameter",
        ),
        (
            "a priority",
            json!({"service_tier": "priority"}),
            "service_tier",
            "unsupported_parameter",
        ),
        (
            "a penalty",
            json!({"presence_penalty": 1}),
            "presence_penalty",
            "unsupported_parameter",
        ),
        (
            "obfuscation",
            json!({"stream_options": {"include_obfuscation": true}}),
            "stream_options.include_obfuscation",
            "unsupported_parameter",
        ),
    ]
}

/// Ids in paths and bodies, queries of retrievals, methods. `stored`: a response that has ended.
pub(crate) fn ids(stored: &str) -> Vec<DoorCase> {
    let mut cases = Vec::new();
    for id in [
        format!("resp_{}", "0".repeat(32)),
        format!("resp_{}", "F".repeat(32)),
        format!("resp_{}", "0".repeat(33)),
        format!("conv_{}", "0".repeat(32)),
        "x".to_owned(),
        "%00".to_owned(),
        "..%2f..%2fetc".to_owned(),
        "0".repeat(8_000),
    ] {
        for (method, rest) in [
            ("GET", ""),
            ("GET", "?stream=true"),
            ("GET", "/input_items"),
            ("POST", "/cancel"),
            ("DELETE", ""),
        ] {
            let path = format!("{RESPONSES}/{id}{rest}");
            cases.push(request("no response", method, &path, missing()));
        }
    }
    for id in [
        "",
        "x",
        "\0",
        "resp_",
        &format!("conv_{}", "0".repeat(32)),
        &"0".repeat(100_000),
    ] {
        for path in [RESPONSES, INPUT_TOKENS] {
            let body = json!({"model": MODEL, "input": "a", "previous_response_id": id});
            let expected = Expected::Error(404, String::new(), "previous_response_not_found");
            cases.push(post("no previous response", path, &body, expected));
        }
    }
    let path = format!("{RESPONSES}/{stored}");
    for (name, query, param, code) in [
        ("a number for stream", "stream=1", "stream", "invalid_value"),
        (
            "a position below 0",
            "stream=true&starting_after=-1",
            "starting_after",
            "invalid_type",
        ),
        (
            "a position above i64",
            "stream=true&starting_after=9223372036854775808",
            "starting_after",
            "invalid_type",
        ),
        (
            "a position in words",
            "stream=true&starting_after=first",
            "starting_after",
            "invalid_type",
        ),
        (
            "a position without a stream",
            "starting_after=1",
            "starting_after",
            "invalid_value",
        ),
        (
            "an unknown parameter",
            "page=1",
            "page",
            "unknown_parameter",
        ),
        (
            "obfuscation",
            "include_obfuscation=true",
            "include_obfuscation",
            "unsupported_parameter",
        ),
    ] {
        let path = format!("{path}?{query}");
        cases.push(request(name, "GET", &path, refused(param, code)));
    }
    let cancel = format!("{path}/cancel");
    cases.push(request(
        "not in the background",
        "POST",
        &cancel,
        refused("response_id", "invalid_value"),
    ));
    let no_method = || Expected::Error(405, String::new(), "");
    for (method, path) in [
        ("PUT", path.as_str()),
        ("GET", &cancel),
        ("GET", "/v1/chat/completions"),
    ] {
        cases.push(request("no such method", method, path, no_method()));
    }
    cases.push(request("no such path", "GET", "/v1/nothing", missing()));
    cases.push(request(
        "no upgrade",
        "GET",
        RESPONSES,
        Expected::Error(426, String::new(), ""),
    ));
    cases.extend(keys());
    cases
}

/// Headers with odd idempotency keys.
fn keys() -> Vec<DoorCase> {
    let body = json!({"model": MODEL, "input": "a"});
    let key = |name: &str, key: &[u8], code| {
        let case = post(name, RESPONSES, &body, refused("Idempotency-Key", code));
        DoorCase {
            headers: [case.headers, vec![("idempotency-key", key.to_vec())]].concat(),
            ..case
        }
    };
    vec![
        key("a key that is not ASCII", b"\xff\xfe", "invalid_value"),
        key(
            "a key of 129 bytes",
            &[b'k'; 129],
            "string_above_max_length",
        ),
    ]
}

/// Bodies of compactions.
pub(crate) fn compactions() -> Vec<DoorCase> {
    let case = |name: &str, body: Value, param: &str, code| {
        post(name, COMPACT, &body, refused(param, code))
    };
    vec![
        case(
            "no model",
            json!({"input": "a"}),
            "model",
            "missing_required_parameter",
        ),
        case(
            "nothing to compact",
            json!({"model": MODEL}),
            "input",
            "missing_required_parameter",
        ),
        case(
            "a number for a model",
            json!({"model": 1, "input": "a"}),
            "model",
            "invalid_type",
        ),
        case(
            "long instructions",
            json!({"model": MODEL, "input": "a", "instructions": "x".repeat(5_000)}),
            "instructions",
            "string_above_max_length",
        ),
        case(
            "a number for the previous response",
            json!({"model": MODEL, "previous_response_id": 1}),
            "previous_response_id",
            "invalid_type",
        ),
    ]
}
