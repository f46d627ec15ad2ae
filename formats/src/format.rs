//! The supported file formats.

/// The format of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Format {
    /// OpenAI chat messages: a JSON list, an object with `messages`, or one of these on each line.
    OpenAi,
    /// Anthropic messages: the same layouts, with content blocks, and `system` beside `messages`.
    Anthropic,
    /// claw0: one record on each line, of type `user`, `assistant`, `tool_use` or `tool_result`.
    Claw0,
    /// Sessions of pi, OpenClaw and ai-panel, versions 1 to 3: one entry on each line.
    Pi,
    /// ShareGPT: lists `conversations` of messages with `from` and `value`.
    ShareGpt,
    /// ZeroClaw's SQLite `sessions.db`.
    ZeroClaw,
}

impl Format {
    /// Every format.
    pub const ALL: [Self; 6] = [
        Self::OpenAi,
        Self::Anthropic,
        Self::Claw0,
        Self::Pi,
        Self::ShareGpt,
        Self::ZeroClaw,
    ];

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
