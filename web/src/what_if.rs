//! What another policy would do to a context.

use askama::Template;

use crate::{
    conversations::Row,
    layout::Page,
    render::renders,
    xray::{Era, Strip, UsageTable, WindowBar},
};

renders!(WhatIfPage, WhatIf);

/// The what-if of a conversation.
#[derive(Debug, Clone, Template)]
#[template(path = "what_if/page.html")]
pub struct WhatIfPage {
    /// The frame.
    pub page: Page,
    /// The conversation.
    pub row: Row,
    /// The settings that are tried.
    pub controls: Controls,
    /// Their effect.
    pub result: WhatIf,
    /// The state that is compared.
    pub etag: String,
}

/// The settings that are tried, as text. Empty: as they are.
#[derive(Debug, Clone)]
pub struct Controls {
    /// Profile.
    pub profile: String,
    /// Tokens that trigger a checkpoint.
    pub token_threshold: String,
    /// Messages that trigger a checkpoint.
    pub max_message_count: String,
    /// Messages that stay.
    pub keep_recent: String,
    /// Tokens from which a message is large.
    pub large_message_threshold: String,
    /// Radius of the hot zone.
    pub hot_zone_radius: String,
    /// Calls of the hot zone.
    pub hot_zone_calls: String,
    /// Cooling.
    pub cooling: String,
    /// Budget in tokens.
    pub budget: String,
    /// The format of the context.
    pub format: String,
    /// The model.
    pub model: String,
    /// Models to choose from.
    pub models: Vec<String>,
    /// Refused controls and why.
    pub errors: Vec<(String, String)>,
}

/// The effect of the settings.
#[derive(Debug, Clone, Template)]
#[template(path = "what_if/result.html")]
pub struct WhatIf {
    /// The model's window.
    pub window: WindowBar,
    /// The messages.
    pub strip: Strip,
    /// The costs.
    pub usage: UsageTable,
    /// The checkpoint that would be due.
    pub due: Option<Due>,
    /// The break of the cache that would follow.
    pub cache_break: Option<Era>,
    /// Why no context can be built.
    pub refusal: Option<String>,
    /// Setting, value now, value then.
    pub differs: Vec<(String, String, String)>,
}

/// A checkpoint that would be due.
#[derive(Debug, Clone)]
pub struct Due {
    /// The last message that it would cover.
    pub last: i64,
    /// Its trigger.
    pub trigger: String,
    /// Tokens before it.
    pub before: u64,
    /// Tokens that stay.
    pub kept: u64,
    /// Messages that it would summarize.
    pub summarized_messages: i64,
    /// Messages that stay.
    pub kept_messages: i64,
}

impl WhatIfPage {
    /// The shipped profiles.
    #[expect(clippy::unused_self, reason = "templates call methods of the page")]
    const fn profiles(&self) -> [&'static str; 6] {
        [
            "default", "agents", "zeroclaw", "claw0", "ai-panel", "openclaw",
        ]
    }

    /// The formats of providers, as forms send them and as people know them.
    #[expect(clippy::unused_self, reason = "templates call methods of the page")]
    const fn formats(&self) -> [(&'static str, &'static str); 3] {
        [
            ("openai", "OpenAI chat"),
            ("anthropic", "Anthropic messages"),
            ("gemini", "Gemini contents"),
        ]
    }

    /// Why a control is refused; empty: it is not.
    fn error(&self, control: &str) -> &str {
        let errors = self.controls.errors.iter();
        let mut found = errors.filter(|(name, _)| name == control);
        found.next().map_or("", |(_, text)| text)
    }
}
