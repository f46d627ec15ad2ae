//! What another policy would do to a context.

use askama::Template;

use crate::{
    conversations::Row,
    costs::{Era, UsageTable},
    format::number,
    layout::Page,
    render::renders,
    xray::{Strip, WindowBar},
};

renders!(WhatIfPage, WhatIf);

/// The names of settings, and what people read: in the controls, in what would change, and in the
/// settings of a conversation.
const LABELS: [(&str, &str); 13] = [
    ("profile", "Profile"),
    ("model", "Model"),
    ("window_tokens", "Model's window in tokens"),
    ("token_threshold", "Checkpoint at tokens"),
    ("max_message_count", "Checkpoint at messages"),
    ("keep_recent", "A checkpoint keeps"),
    ("large_message_threshold", "Large above tokens"),
    ("hot_zone_radius", "Hot for turns"),
    ("hot_zone_calls", "Hot for calls"),
    ("cooling", "Cooling"),
    ("budget", "Budget in tokens"),
    ("format", "Format"),
    ("reset", "Back to the default"),
];

/// The words for a setting; empty: there is no such setting.
pub fn label(name: &str) -> &'static str {
    let found = LABELS.iter().find(|(known, _)| *known == name);
    found.map_or("", |(_, label)| label)
}

/// The what-if of a conversation.
#[derive(Debug, Clone, Template)]
#[template(path = "what_if/page.html")]
pub struct WhatIfPage {
    /// The frame.
    pub page: Page,
    /// The conversation.
    pub row: Row,
    /// The settings that are tried, by name.
    pub controls: Vec<Control>,
    /// Models to choose from; empty: any.
    pub models: Vec<String>,
    /// Names of the settings that the conversation has of its own.
    pub stored: Vec<&'static str>,
    /// Their effect.
    pub result: WhatIf,
    /// The state that is compared.
    pub etag: String,
}

/// A setting that is tried, as text.
#[derive(Debug, Clone, Default)]
pub struct Control {
    /// The name of its field.
    pub name: &'static str,
    /// Its words for people.
    pub label: &'static str,
    /// The text of the field. Empty: as it is.
    pub value: String,
    /// The value in force now.
    pub placeholder: String,
    /// Why it is refused; empty: it is not.
    pub error: String,
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
    /// Why the settings are refused; empty: they are not.
    pub refusals: Vec<Refusal>,
    /// Settings that would change.
    pub differs: Vec<Change>,
    /// Figures that are compared; empty: nothing is tried.
    pub effects: Vec<Effect>,
}

/// A refused control.
#[derive(Debug, Clone)]
pub struct Refusal {
    /// The name of its field.
    pub name: String,
    /// The words for the field; empty: it has none.
    pub label: &'static str,
    /// Why it is refused.
    pub text: String,
}

/// A setting that would change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// Its name.
    pub name: &'static str,
    /// Its words for people.
    pub label: &'static str,
    /// The value in force now.
    pub now: String,
    /// The value that would be in force.
    pub then: String,
}

/// A figure under the settings of now and under those that are tried.
#[derive(Debug, Clone)]
pub struct Effect {
    /// Its name.
    pub name: &'static str,
    /// Its words for people.
    pub label: &'static str,
    /// Now.
    pub now: u64,
    /// With the settings that are tried.
    pub then: u64,
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
    /// The control of this name.
    fn control(&self, name: &str) -> Control {
        let found = self.controls.iter().find(|control| control.name == name);
        found.cloned().unwrap_or_default()
    }

    /// The shipped profiles.
    #[expect(clippy::unused_self, reason = "templates call methods of the page")]
    fn profiles(&self) -> Vec<(&'static str, &'static str)> {
        let names = [
            "default", "agents", "zeroclaw", "claw0", "ai-panel", "openclaw",
        ];
        names.map(|name| (name, name)).into()
    }

    /// The models to choose from.
    fn named_models(&self) -> Vec<(&str, &str)> {
        let names = self.models.iter().map(String::as_str);
        names.map(|name| (name, name)).collect()
    }

    /// The kinds of cooling.
    #[expect(clippy::unused_self, reason = "templates call methods of the page")]
    fn coolings(&self) -> Vec<(&'static str, &'static str)> {
        ["strict", "stepped"].map(|name| (name, name)).into()
    }

    /// The formats of providers, as forms send them and as people know them.
    #[expect(clippy::unused_self, reason = "templates call methods of the page")]
    fn formats(&self) -> Vec<(&'static str, &'static str)> {
        vec![
            ("openai", "OpenAI chat"),
            ("anthropic", "Anthropic messages"),
            ("gemini", "Gemini contents"),
        ]
    }

    /// The stored settings that may go back to the default.
    fn resets(&self) -> Vec<(&'static str, &'static str)> {
        let stored = self.stored.iter().map(|name| (*name, label(name)));
        std::iter::once(("all", "all settings"))
            .chain(stored)
            .collect()
    }
}

impl Effect {
    /// The difference, with its sign.
    fn difference(&self) -> String {
        let difference = i64::try_from(self.then)
            .unwrap_or(i64::MAX)
            .saturating_sub(i64::try_from(self.now).unwrap_or(i64::MAX));
        let sign = if difference > 0 { "+" } else { "" };
        format!("{sign}{}", number(difference))
    }
}
