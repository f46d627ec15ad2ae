//! Parameters of creates of responses, and of counts, that are refused.

use serde_json::{Value, json};

/// A parameter that is refused: a description, the parameters, the one at fault, the code.
pub(crate) type Parameter = (&'static str, Value, &'static str, &'static str);

/// Parameters that are refused.
pub(crate) fn parameters() -> Vec<Parameter> {
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

/// Values that are not supported.
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
