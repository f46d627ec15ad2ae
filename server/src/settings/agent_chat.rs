//! The section `agents.NAME.chat`: the options of an agent's turns, where neither the call nor the
//! conversation sets them.

use std::{collections::BTreeMap, fs, io, path::Path};

use anneal_core::{
    chat_options::{ChatOptions, ReasoningEffort, ResponseFormat, Tool, ToolChoice, ToolError},
    tokens::Tokens,
};
use anneal_proto::{
    convert::{FieldError, chat_options},
    v1 as pb,
};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// The options of an agent's turns. None and empty: the provider's default.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AgentChatSettings {
    /// A file with the tools: a JSON list of objects with `name`, `description`, `input_schema`.
    pub tools_file: String,
    /// Whether one answer may call several tools.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parallel_tool_calls: Option<bool>,
    /// Sampling temperature.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub temperature: Option<f32>,
    /// Nucleus sampling.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub top_p: Option<f32>,
    /// Texts before which the model stops.
    pub stop: Vec<String>,
    /// How much the model thinks before it answers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reasoning_effort: Option<ReasoningEffort>,
    /// Most tokens of an answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_output_tokens: Option<u64>,
    /// Whether the model calls a tool, and which.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_choice: Option<ToolChoice>,
    /// The shape of the answer's text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub response_format: Option<ResponseFormat>,
    /// Labels for the provider.
    pub metadata: BTreeMap<String, String>,
    /// The tools in `tools_file`.
    #[serde(skip)]
    tools: Vec<Tool>,
}

/// No number is NaN: `AgentChatSettings::check` refuses it.
impl Eq for AgentChatSettings {}

/// Why a file of tools is refused.
#[derive(Debug, thiserror::Error)]
pub enum ToolsFileError {
    /// The file cannot be read.
    #[error("cannot be read")]
    Unreadable(#[source] io::Error),
    /// The file is not a JSON list of tools.
    #[error("is not a JSON list of objects with name, description and input_schema")]
    Json(#[source] serde_json::Error),
    /// A tool is invalid.
    #[error("tool {number}")]
    Tool {
        /// Its place in the file; the first is 1.
        number: usize,
        /// What is wrong with it.
        #[source]
        error: ToolError,
    },
}

/// A tool in a file. The text of its schema is kept as it is.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ToolInFile {
    name: String,
    #[serde(default)]
    description: String,
    input_schema: Box<RawValue>,
}

impl AgentChatSettings {
    /// Reads the tools. The settings have none before.
    pub fn read_tools(&mut self) -> Result<(), ToolsFileError> {
        if self.tools_file.is_empty() {
            return Ok(());
        }
        let text =
            fs::read_to_string(Path::new(&self.tools_file)).map_err(ToolsFileError::Unreadable)?;
        let listed: Vec<ToolInFile> = serde_json::from_str(&text).map_err(ToolsFileError::Json)?;
        let tools = listed.into_iter().enumerate().map(|(index, tool)| {
            let schema = tool.input_schema.get().to_owned();
            Tool::new(tool.name, tool.description, schema).map_err(|error| ToolsFileError::Tool {
                number: index + 1,
                error,
            })
        });
        self.tools = tools.collect::<Result<_, _>>()?;
        Ok(())
    }

    /// Checks the options as those of a request are checked.
    pub(super) fn check(&self) -> Result<(), FieldError> {
        chat_options::parse("chat", pb::ChatOptions::from(self.options())).map(drop)
    }

    /// The options.
    pub fn options(&self) -> ChatOptions {
        ChatOptions {
            tools: (!self.tools.is_empty()).then(|| self.tools.clone()),
            tool_choice: self.tool_choice.clone(),
            parallel_tool_calls: self.parallel_tool_calls,
            response_format: self.response_format.clone(),
            temperature: self.temperature,
            top_p: self.top_p,
            stop: (!self.stop.is_empty()).then(|| self.stop.clone()),
            reasoning_effort: self.reasoning_effort,
            metadata: (!self.metadata.is_empty()).then(|| self.metadata.clone()),
            output_tokens: self.max_output_tokens.map(Tokens::new),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_out_of_range_are_refused_with_their_field() {
        let refused = |settings: AgentChatSettings| match settings.check() {
            Err(FieldError::Invalid { field, .. } | FieldError::Limit { field, .. }) => field,
            Ok(()) => panic!("{settings:?} is accepted"),
        };
        let hot = AgentChatSettings {
            temperature: Some(2.5),
            ..AgentChatSettings::default()
        };
        assert_eq!(refused(hot), "chat.temperature");
        let silent = AgentChatSettings {
            max_output_tokens: Some(0),
            ..AgentChatSettings::default()
        };
        assert_eq!(refused(silent), "chat.max_output_tokens");
        assert_eq!(AgentChatSettings::default().check(), Ok(()));
        assert_eq!(
            AgentChatSettings::default().options(),
            ChatOptions::default()
        );
    }

    #[test]
    fn a_file_of_tools_that_is_missing_is_an_error() {
        let mut settings = AgentChatSettings {
            tools_file: "/no/such/file".into(),
            ..AgentChatSettings::default()
        };
        let refused = settings.read_tools().expect_err("there is no such file");
        assert!(matches!(refused, ToolsFileError::Unreadable(_)));
    }
}
