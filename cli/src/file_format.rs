//! The file formats on the command line, and the agent of an imported conversation.

use anneal_formats::Format;
use clap::ValueEnum;

/// The format of a file.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum FileFormat {
    /// OpenAI chat messages: a JSON list, an object with `messages`, or lines of either
    #[value(name = "openai")]
    OpenAi,
    /// Anthropic messages, with content blocks: a JSON list, an object with `messages`, or lines of
    /// either
    Anthropic,
    /// claw0: lines of user, assistant, `tool_use` and `tool_result` records
    Claw0,
    /// pi, OpenClaw and ai-panel: lines of a session, v1 to v3
    Pi,
    /// ShareGPT: `conversations` of `from` and `value`
    #[value(name = "sharegpt")]
    ShareGpt,
    /// ZeroClaw's SQLite database of sessions
    #[value(name = "zeroclaw")]
    ZeroClaw,
}

/// The format that the argument means.
pub(crate) const fn format(argument: FileFormat) -> Format {
    match argument {
        FileFormat::OpenAi => Format::OpenAi,
        FileFormat::Anthropic => Format::Anthropic,
        FileFormat::Claw0 => Format::Claw0,
        FileFormat::Pi => Format::Pi,
        FileFormat::ShareGpt => Format::ShareGpt,
        FileFormat::ZeroClaw => Format::ZeroClaw,
    }
}

/// The agent of a conversation: the one on the command line, otherwise the one that the file names.
pub(crate) const fn agent_id<'a>(argument: &'a str, in_file: &'a str) -> &'a str {
    if argument.is_empty() {
        in_file
    } else {
        argument
    }
}
