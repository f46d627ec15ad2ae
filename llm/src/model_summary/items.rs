//! The lines that a model reads: one JSON object for each source text, so that no text can forge a
//! line. `prompt.rs` puts the lines into a prompt.

use std::borrow::Cow;

use serde::Serialize;

use crate::{
    extractive::{
        fragments::{CallNames, FragmentKind, fragments},
        text,
    },
    summarizer::{Quote, SourceBody, SummaryAsk},
};

/// Most characters of [`Item::lead`].
const MAX_LEAD_CHARS: usize = 80;

/// The kind of a source text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Text,
    Reasoning,
    ToolCall,
    ToolResult,
    ToolError,
    /// The cached summary of a large message.
    CachedSummary,
    /// The user message that the summary must quote: it opens the turn in whose middle the
    /// checkpoint ends. An item of its own only if that message is not among the sources.
    TurnOpening,
    /// The previous checkpoint's summary, or a part of it.
    PreviousSummary,
    /// A model's summary of a chunk.
    PartSummary,
}

impl Kind {
    /// Its name in a line, which `rules.txt` explains to the model. Plain text has none.
    const fn name(self) -> Option<&'static str> {
        Some(match self {
            Self::Text => return None,
            Self::Reasoning => "thought",
            Self::ToolCall => "tool_call",
            Self::ToolResult => "tool_result",
            Self::ToolError => "tool_error",
            Self::CachedSummary => "digest",
            Self::TurnOpening => "opening",
            Self::PreviousSummary => "earlier_summary",
            Self::PartSummary => "part_summary",
        })
    }

    /// Whether a person or a model wrote the text, so that it is in the language of the
    /// conversation. False for calls and results of tools.
    pub(super) const fn is_dialogue(self) -> bool {
        !matches!(self, Self::ToolCall | Self::ToolResult | Self::ToolError)
    }

    /// Whether the text is from the conversation itself, not from a summary.
    pub(super) const fn is_original(self) -> bool {
        !matches!(
            self,
            Self::CachedSummary | Self::PreviousSummary | Self::PartSummary
        )
    }
}

/// One source text.
#[derive(Debug, Clone)]
pub(super) struct Item<'a> {
    /// Ids of the first and the last message from which the text comes; None for the previous
    /// summary.
    pub(super) messages: Option<(i64, i64)>,
    role: Option<&'static str>,
    pub(super) kind: Kind,
    /// The words before the text: the name of a tool (`→ name`) or the address of a file; empty
    /// for most items.
    pub(super) lead: String,
    pub(super) text: Cow<'a, str>,
}

/// The JSON form of an item.
#[derive(Serialize)]
struct Line<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    messages: Option<(i64, i64)>,
    #[serde(skip_serializing_if = "Option::is_none")]
    role: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    kind: Option<&'static str>,
    /// The item's lead. (The marks around the data, BEGIN and END, are something else.)
    #[serde(skip_serializing_if = "str::is_empty")]
    mark: &'a str,
    /// Whether the item has text before this range.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    continues: bool,
    /// Whether the item has text after this range.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    goes_on: bool,
    text: &'a str,
}

impl<'a> Item<'a> {
    /// The previous checkpoint's summary.
    pub(super) fn previous_summary(text: &'a str) -> Self {
        Self {
            messages: None,
            role: None,
            kind: Kind::PreviousSummary,
            lead: String::new(),
            text: text::clean(text),
        }
    }

    /// The item for a model's summary of these items. Its kind is [`Kind::PreviousSummary`] if all
    /// of them are pieces of the previous summary, or else [`Kind::PartSummary`].
    pub(super) fn part<'i>(
        items: impl Iterator<Item = &'i Item<'i>> + Clone,
        text: String,
    ) -> Self {
        let kind = if items.clone().all(|item| item.kind == Kind::PreviousSummary) {
            Kind::PreviousSummary
        } else {
            Kind::PartSummary
        };
        let messages = items
            .filter_map(|item| item.messages)
            .reduce(|(a, b), (c, d)| (a.min(c), b.max(d)));
        Self {
            messages,
            role: None,
            kind,
            lead: String::new(),
            text: Cow::Owned(text),
        }
    }

    /// This item with only a range of its text.
    pub(super) fn cut_to<'b>(&self, range: std::ops::Range<usize>) -> Item<'b> {
        let text = Cow::Owned(self.text[range].to_owned());
        Item {
            messages: self.messages,
            role: self.role,
            kind: self.kind,
            lead: self.lead.clone(),
            text,
        }
    }

    /// The message that the summary must quote.
    fn turn_opening(quote: &Quote<'a>) -> Self {
        let id = quote.message_id.0;
        let text = text::clean(quote.text);
        Self {
            messages: Some((id, id)),
            role: Some("user"),
            kind: Kind::TurnOpening,
            lead: String::new(),
            text,
        }
    }

    /// The line that holds this range of the text.
    pub(super) fn line(&self, range: std::ops::Range<usize>) -> String {
        let (message, messages) = match self.messages {
            Some((first, last)) if first == last => (Some(first), None),
            messages => (None, messages),
        };
        let line = Line {
            message,
            messages,
            role: self.role,
            kind: self.kind.name(),
            mark: &self.lead,
            continues: range.start > 0,
            goes_on: range.end < self.text.len(),
            text: &self.text[range],
        };
        serde_json::to_string(&line).expect("strings and numbers in a struct always serialize")
    }
}

/// The texts of the sources. If the quoted message is not a source, its text comes first. Blank
/// texts of the sources are left out, unless they have a lead.
pub(super) fn items<'a>(ask: &SummaryAsk<'a>) -> Vec<Item<'a>> {
    let names = CallNames::of(ask.sources);
    let is_no_source = |quote: &Quote<'_>| {
        ask.sources
            .iter()
            .all(|source| source.message_id != quote.message_id)
    };
    let opening = ask
        .quoted
        .filter(is_no_source)
        .map(|quote| Item::turn_opening(&quote));
    let messages = ask.sources.iter().flat_map(|source| {
        let is_cached_summary = matches!(source.body, SourceBody::CachedSummary(_));
        fragments(source, &names)
            .into_iter()
            .map(move |fragment| Item {
                messages: Some((source.message_id.0, source.message_id.0)),
                role: Some(source.role.name()),
                kind: if is_cached_summary {
                    Kind::CachedSummary
                } else {
                    kind(fragment.kind)
                },
                lead: text::clip(&fragment.lead, MAX_LEAD_CHARS).into_owned(),
                text: fragment.text,
            })
    });
    opening.into_iter().chain(messages).collect()
}

const fn kind(fragment: FragmentKind) -> Kind {
    match fragment {
        FragmentKind::Text => Kind::Text,
        FragmentKind::ToolCall => Kind::ToolCall,
        FragmentKind::ToolResult => Kind::ToolResult,
        FragmentKind::ToolError => Kind::ToolError,
        FragmentKind::Reasoning => Kind::Reasoning,
    }
}
