//! What anneal writes of a conversation beside the list of its messages.

use std::collections::{BTreeMap, VecDeque};

use serde::{Deserialize, Serialize};

use crate::{
    Format, Head, Summary,
    json::{Bad, Fields},
};

/// The name of the marks' list.
pub(crate) const MARKS: &str = "anneal_marks";

/// The conversation's head, without its system prompt, and which format it is written in.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct About {
    pub(crate) format: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    identity: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    title: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    agent_id: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    system_prompt: String,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    metadata: BTreeMap<String, String>,
}

impl About {
    /// Of this head. The format keeps the system prompt itself.
    pub(crate) fn new(format: Format, head: &Head) -> Self {
        let Head { identity, title, agent_id, metadata, .. } = head.clone();
        Self { format: format.name().into(), identity, title, agent_id, system_prompt: String::new(), metadata }
    }

    /// Of this head, with the system prompt, for formats that have no place for it.
    pub(crate) fn whole(format: Format, head: &Head) -> Self {
        Self { system_prompt: head.system_prompt.clone(), ..Self::new(format, head) }
    }

    /// As JSON.
    pub(crate) fn json(&self) -> String {
        serde_json::to_string(self).expect("texts are always JSON")
    }

    /// Of a record; None when it has none.
    pub(crate) fn of(record: &Fields) -> Result<Option<Self>, Bad> {
        let about = record.raw(crate::extra::KEY).filter(|raw| raw.starts_with('{')).map(serde_json::from_str);
        about.transpose().map_err(|_| Bad::new("its `anneal` cannot be read"))
    }

    /// The format that it was written in; None when it is of none.
    pub(crate) fn written(&self) -> Option<Format> {
        FORMATS.into_iter().find(|format| format.name() == self.format)
    }

    /// The head.
    pub(crate) fn head(self) -> Head {
        let Self { identity, title, agent_id, system_prompt, metadata, .. } = self;
        Head { identity, title, agent_id, system_prompt, metadata, created_us: None }
    }
}

const FORMATS: [Format; 6] =
    [Format::OpenAi, Format::Anthropic, Format::Claw0, Format::Pi, Format::ShareGpt, Format::ZeroClaw];

/// A summary or a separator after so many messages.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Mark {
    pub(crate) after: u64,
    /// The summary; None: a separator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) summary: Option<SaidSummary>,
}

/// A summary as it is written.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct SaidSummary {
    covers: u64,
    text: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    model: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    tokens_before: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    tokens_after: Option<u64>,
}

impl From<&Summary> for SaidSummary {
    fn from(summary: &Summary) -> Self {
        let Summary { covers, text, model, tokens_before, tokens_after } = summary.clone();
        Self { covers, text, model, tokens_before, tokens_after }
    }
}

impl From<SaidSummary> for Summary {
    fn from(said: SaidSummary) -> Self {
        let SaidSummary { covers, text, model, tokens_before, tokens_after } = said;
        Self { covers, text, model, tokens_before, tokens_after }
    }
}

/// The marks of a conversation.
pub(crate) fn marks(conversation: &Fields) -> Result<VecDeque<Mark>, Bad> {
    let marks = conversation.raw(MARKS).map(serde_json::from_str);
    marks.transpose().map(Option::unwrap_or_default).map_err(|_| Bad::new("its marks cannot be read"))
}
