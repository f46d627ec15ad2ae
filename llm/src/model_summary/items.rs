//! What a model is told, line by line: one JSON object per text, so that no text can forge a line.

use std::borrow::Cow;

use serde::Serialize;

use crate::{
    extractive::{
        pieces::{CallNames, Voice, pieces},
        text,
    },
    port::{Quote, SourceBody, SummaryAsk},
};

/// Characters of a tool's name or a file's address that are told.
const MARK_CHARS: usize = 80;

/// What a text is to the one who summarises it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Said,
    Thought,
    ToolCall,
    ToolResult,
    ToolError,
    /// The cached summary of a long message.
    Digest,
    /// Words that the summary quotes, of a message that is not among the sources.
    Opening,
    /// The previous checkpoint's summary, or a part of it.
    Earlier,
    /// What a model has written of a piece.
    Part,
}

impl Kind {
    /// Its name in a line; what is said needs none.
    const fn name(self) -> Option<&'static str> {
        Some(match self {
            Self::Said => return None,
            Self::Thought => "thought",
            Self::ToolCall => "tool_call",
            Self::ToolResult => "tool_result",
            Self::ToolError => "tool_error",
            Self::Digest => "digest",
            Self::Opening => "opening",
            Self::Earlier => "earlier_summary",
            Self::Part => "part_summary",
        })
    }

    /// Whether somebody says it in the language of the conversation; programs say what they say.
    pub(super) const fn is_spoken(self) -> bool {
        !matches!(self, Self::ToolCall | Self::ToolResult | Self::ToolError)
    }

    /// Whether it comes from the conversation itself, not from a summary of it.
    pub(super) const fn is_first_hand(self) -> bool {
        !matches!(self, Self::Digest | Self::Earlier | Self::Part)
    }
}

/// One text of the material.
#[derive(Debug, Clone)]
pub(super) struct Item<'a> {
    /// The first and the last message that it speaks of.
    pub(super) messages: Option<(i64, i64)>,
    role: Option<&'static str>,
    pub(super) kind: Kind,
    /// A tool's name, a file's address; empty for most.
    pub(super) mark: String,
    pub(super) text: Cow<'a, str>,
}

/// The form of an item that a model reads.
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
    #[serde(skip_serializing_if = "str::is_empty")]
    mark: &'a str,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    continues: bool,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    goes_on: bool,
    text: &'a str,
}

impl<'a> Item<'a> {
    /// The previous checkpoint's summary.
    pub(super) fn earlier(text: &'a str) -> Self {
        Self { messages: None, role: None, kind: Kind::Earlier, mark: String::new(), text: text::clean(text) }
    }

    /// What a model has written of these items; still the earlier summary where it is nothing but that.
    pub(super) fn part<'i>(of: impl Iterator<Item = &'i Item<'i>> + Clone, text: String) -> Self {
        let kind = if of.clone().all(|item| item.kind == Kind::Earlier) { Kind::Earlier } else { Kind::Part };
        let messages = of.filter_map(|item| item.messages).reduce(|(a, b), (c, d)| (a.min(c), b.max(d)));
        Self { messages, role: None, kind, mark: String::new(), text: Cow::Owned(text) }
    }

    /// The same with only a stretch of the text.
    pub(super) fn stretch<'b>(&self, range: std::ops::Range<usize>) -> Item<'b> {
        let text = Cow::Owned(self.text[range].to_owned());
        Item { messages: self.messages, role: self.role, kind: self.kind, mark: self.mark.clone(), text }
    }

    fn opening(quote: &Quote<'a>) -> Self {
        let id = quote.message_id.0;
        let text = text::clean(quote.text);
        Self { messages: Some((id, id)), role: Some("user"), kind: Kind::Opening, mark: String::new(), text }
    }

    /// The line that tells this stretch of the text.
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
            mark: &self.mark,
            continues: range.start > 0,
            goes_on: range.end < self.text.len(),
            text: &self.text[range],
        };
        serde_json::to_string(&line).expect("strings and numbers in a struct always serialise")
    }
}

/// The messages of an ask, and the quoted opening where it is none of them; what says nothing is left out.
pub(super) fn items<'a>(ask: &SummaryAsk<'a>) -> Vec<Item<'a>> {
    let names = CallNames::of(ask.sources);
    let elsewhere = |quote: &Quote<'_>| ask.sources.iter().all(|source| source.message_id != quote.message_id);
    let opening = ask.quoted.filter(elsewhere).map(|quote| Item::opening(&quote));
    let said = ask.sources.iter().flat_map(|source| {
        let digest = matches!(source.body, SourceBody::Digest(_));
        pieces(source, &names).into_iter().map(move |piece| Item {
            messages: Some((source.message_id.0, source.message_id.0)),
            role: Some(source.role.name()),
            kind: if digest { Kind::Digest } else { kind(piece.voice) },
            mark: text::clip(&piece.lead, MARK_CHARS).into_owned(),
            text: piece.text,
        })
    });
    opening.into_iter().chain(said).collect()
}

const fn kind(voice: Voice) -> Kind {
    match voice {
        Voice::Said => Kind::Said,
        Voice::Called => Kind::ToolCall,
        Voice::Answered => Kind::ToolResult,
        Voice::Failed => Kind::ToolError,
        Voice::Thought => Kind::Thought,
    }
}
