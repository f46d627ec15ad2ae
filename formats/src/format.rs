//! The supported file formats.

/// The format of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Format {
    /// OpenAI chat messages: a JSON list, an object with `messages`, or lines of either.
    OpenAi,
    /// Anthropic messages: the same layouts, with content blocks, and `system` beside `messages`.
    Anthropic,
    /// claw0: lines of `user`, `assistant`, `tool_use` and `tool_result` records.
    Claw0,
    /// pi, OpenClaw and ai-panel: lines of a session, v1 to v3.
    Pi,
    /// ShareGPT: `conversations` of `from` and `value`.
    ShareGpt,
    /// ZeroClaw's SQLite `sessions.db`.
    ZeroClaw,
}

impl Format {
    /// The name used on the command line, in files and as the prefix of metadata labels.
    pub const fn name(self) -> &'static str {
        match self {
            Self::OpenAi => "openai",
            Self::Anthropic => "anthropic",
            Self::Claw0 => "claw0",
            Self::Pi => "pi",
            Self::ShareGpt => "sharegpt",
            Self::ZeroClaw => "zeroclaw",
        }
    }
}
