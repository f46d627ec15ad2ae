//! Tools that a model may call.

use anneal_core::render::Format;
use serde::de::IgnoredAny;

/// A tool that the model may call.
///
/// [`Tool::new`] accepts the names that OpenAI and Anthropic accept, and
/// [`Tool::is_accepted_by`] says what Gemini refuses beyond that. The names in stored tool calls
/// follow a rule of their own, which replaces names that the provider refuses:
/// `core/src/context/repair/tool_identifiers.rs`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tool {
    pub(super) name: String,
    pub(super) description: String,
    pub(super) input_schema: String,
}

/// Why a tool is invalid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ToolError {
    /// The name is not 1 to 64 letters, digits, `_` and `-`.
    #[error("a tool's name must be 1 to 64 letters, digits, underscores or dashes")]
    Name,
    /// The schema is not a JSON object.
    #[error("a tool's input schema must be a JSON object")]
    Schema,
}

impl Tool {
    /// Longest name that OpenAI, Anthropic and Gemini accept. The names in stored calls may be
    /// longer: `core/src/context/repair/tool_identifiers.rs` replaces them when a context is built.
    const MAX_NAME_BYTES: usize = 64;

    /// A tool with a name, a description, and the JSON Schema of its input as JSON text, which is
    /// sent unchanged.
    pub fn new(name: String, description: String, input_schema: String) -> Result<Self, ToolError> {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
        if name.is_empty() || name.len() > Self::MAX_NAME_BYTES || !name.bytes().all(is_plain) {
            return Err(ToolError::Name);
        }
        let is_json = serde_json::from_str::<IgnoredAny>(&input_schema).is_ok();
        if !is_json || !input_schema.trim_start().starts_with('{') {
            return Err(ToolError::Schema);
        }
        Ok(Self {
            name,
            description,
            input_schema,
        })
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether providers of this format accept the name. Gemini refuses a call with a tool whose
    /// name begins with a digit or a dash.
    pub fn is_accepted_by(&self, format: Format) -> bool {
        let begins_with_digit_or_dash = self
            .name
            .starts_with(|c: char| c.is_ascii_digit() || c == '-');
        format != Format::GeminiContents || !begins_with_digit_or_dash
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_gemini_refuses_names_that_begin_with_a_digit_or_a_dash() {
        for (name, is_accepted) in [("_9", true), ("look", true), ("9a", false), ("-a", false)] {
            let tool = Tool::new(name.into(), String::new(), "{}".into()).expect("is valid");
            assert_eq!(
                tool.is_accepted_by(Format::GeminiContents),
                is_accepted,
                "{name}"
            );
            assert!(tool.is_accepted_by(Format::OpenAiChat), "{name}");
            assert!(tool.is_accepted_by(Format::AnthropicMessages), "{name}");
        }
    }

    #[test]
    fn a_tool_with_a_malformed_name_or_schema_is_invalid() {
        let tool = |name: &str, schema: &str| {
            Tool::new(name.into(), String::new(), schema.into()).map(drop)
        };
        assert_eq!(tool("look_up-2", " {\"type\": \"object\"}"), Ok(()));
        for name in ["", "two words", "größe", "a.b", &"x".repeat(65)] {
            assert_eq!(tool(name, "{}"), Err(ToolError::Name), "{name}");
        }
        for schema in ["", "{", "[]", "\"{}\"", "{} {}", "{\"a\":1,}"] {
            assert_eq!(tool("look", schema), Err(ToolError::Schema), "{schema}");
        }
    }
}
