//! The data that anneal writes about a conversation beside its messages, so that it can read the
//! conversation back unchanged.

use std::collections::{BTreeMap, VecDeque};

use serde::{Deserialize, Serialize};

use crate::{
    Format, Head, Summary,
    json::{Fields, Unreadable},
};

/// The name of the field with the list of a conversation's summaries and separators.
pub(crate) const MARKS_KEY: &str = "anneal_marks";

/// The head of the conversation and the format of the file: the object `anneal` of a conversation.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct ConversationExtra {
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

impl ConversationExtra {
    /// From a head, without its system prompt: for formats that have a place for the prompt.
    pub(crate) fn new(format: Format, head: &Head) -> Self {
        let Head {
            identity,
            title,
            agent_id,
            metadata,
            ..
        } = head.clone();
        Self {
            format: format.name().into(),
            identity,
            title,
            agent_id,
            system_prompt: String::new(),
            metadata,
        }
    }

    /// From a head, with its system prompt: for formats that have no place for the prompt.
    pub(crate) fn with_system_prompt(format: Format, head: &Head) -> Self {
        Self {
            system_prompt: head.system_prompt.clone(),
            ..Self::new(format, head)
        }
    }

    pub(crate) fn to_json(&self) -> String {
        serde_json::to_string(self).expect("texts are always JSON")
    }

    /// Parses the object `anneal` of a record; None if the record has none.
    pub(crate) fn of(record: &Fields) -> Result<Option<Self>, Unreadable> {
        let extra = record
            .raw(crate::message_extra::ANNEAL_KEY)
            .filter(|raw| raw.starts_with('{'))
            .map(serde_json::from_str);
        extra
            .transpose()
            .map_err(|_| Unreadable::new("its `anneal` cannot be read"))
    }

    /// The format in which anneal wrote the file; None if the name is not a known format.
    pub(crate) fn format(&self) -> Option<Format> {
        FORMATS
            .into_iter()
            .find(|format| format.name() == self.format)
    }

    /// The head of the conversation, with the values that are stored.
    pub(crate) fn head(self) -> Head {
        let Self {
            identity,
            title,
            agent_id,
            system_prompt,
            metadata,
            ..
        } = self;
        Head {
            identity,
            title,
            agent_id,
            system_prompt,
            metadata,
            ..Head::default()
        }
    }
}

/// Every format that anneal writes.
const FORMATS: [Format; 6] = [
    Format::OpenAi,
    Format::Anthropic,
    Format::Claw0,
    Format::Pi,
    Format::ShareGpt,
    Format::ZeroClaw,
];

/// A summary or a separator, with its position among the messages: `after` is the number of
/// messages before it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Mark {
    pub(crate) after: u64,
    /// None for a separator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) summary: Option<SummaryRecord>,
}

/// A summary in the written file.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct SummaryRecord {
    covers: u64,
    text: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    model: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    tokens_before: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    tokens_after: Option<u64>,
}

impl From<&Summary> for SummaryRecord {
    fn from(summary: &Summary) -> Self {
        let Summary {
            covers,
            text,
            model,
            tokens_before,
            tokens_after,
            created_us: _,
        } = summary.clone();
        Self {
            covers,
            text,
            model,
            tokens_before,
            tokens_after,
        }
    }
}

impl From<SummaryRecord> for Summary {
    fn from(record: SummaryRecord) -> Self {
        let SummaryRecord {
            covers,
            text,
            model,
            tokens_before,
            tokens_after,
        } = record;
        Self {
            covers,
            text,
            model,
            tokens_before,
            tokens_after,
            created_us: None,
        }
    }
}

/// The marks of a conversation; an empty list if it has none.
pub(crate) fn parse_marks(conversation: &Fields) -> Result<VecDeque<Mark>, Unreadable> {
    let marks = conversation.raw(MARKS_KEY).map(serde_json::from_str);
    marks
        .transpose()
        .map(Option::unwrap_or_default)
        .map_err(|_| Unreadable::new("its marks cannot be read"))
}
