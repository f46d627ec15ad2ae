//! The beginning of a context's tail, and the extract that the built-in summarizer makes of it.

use std::time::Instant;

use anneal_core::{
    context::{Body, Material, TailMessage},
    cut::{Cut, TailItem},
    message::{MessageId, outline, part_bytes, plain_text, plain_text_bytes},
    tokens::{Encoding, Tokens},
};
use anneal_llm::{Extractive, Purpose, Quote, Source, SourceBody, Summarizer as _, SummaryAsk};
use anneal_store::{ModelSpend, SummaryKind, SummarySpec};

/// The previous checkpoint's summary and the messages before a cut, as the summarizer reads them.
pub(super) struct TailExtract {
    previous: Option<String>,
    /// If the cut splits a turn: the user messages that open the turn, as one text, and the id of
    /// the first one.
    quoted: Option<(MessageId, String)>,
    sources: Vec<Source>,
    encoding: Encoding,
    /// Tokens of everything that the summary replaces.
    replaced: Tokens,
}

impl TailExtract {
    /// Copies what is before the cut, which has `replaced` tokens.
    pub(super) fn of(material: &Material, cut: &Cut, replaced: Tokens) -> Self {
        let cut_messages = &material.tail[..messages_before(material, cut)];
        let is_quoted = |message: &&TailMessage| cut.quoted.binary_search(&message.id).is_ok();
        let quoted = cut.quoted.first().map(|first| {
            let texts = cut_messages.iter().filter(is_quoted).map(text);
            (*first, texts.collect::<Vec<_>>().join("\n\n"))
        });
        Self {
            previous: material
                .checkpoint
                .as_ref()
                .map(|checkpoint| checkpoint.text.clone()),
            quoted,
            sources: cut_messages.iter().map(source).collect(),
            encoding: material.encoding,
            replaced,
        }
    }

    /// Writes the summary, with at most `most` tokens. None: it would not be shorter. Call it on a
    /// blocking thread.
    pub(super) fn write(&self, most: Tokens) -> Option<SummarySpec> {
        let started = Instant::now();
        let counter = self.encoding.counter();
        let measure = |text: &str| counter.count(text);
        let ask = SummaryAsk {
            purpose: Purpose::Range,
            previous: self.previous.as_deref(),
            quoted: self.quoted.as_ref().map(|(id, text)| Quote {
                message_id: *id,
                text,
            }),
            sources: &self.sources,
            focus: None,
            target: Purpose::Range.target(self.replaced, most),
            measure: &measure,
        };
        let summary = Extractive.summarize(&ask).ok()?;
        Some(SummarySpec {
            text: summary.text,
            tokens: summary.tokens,
            kind: SummaryKind::Extractive,
            model: Extractive.name().to_owned(),
            prompt_version: Extractive.prompt_version(),
            spent: ModelSpend::default(),
            duration_ms: i64::try_from(started.elapsed().as_millis()).unwrap_or(i64::MAX),
        })
    }
}

/// Number of the tail's messages before a cut.
pub(super) fn messages_before(material: &Material, cut: &Cut) -> usize {
    material
        .tail
        .partition_point(|message| message.id <= cut.last)
}

/// Bytes of what was read of a message.
pub(super) fn body_bytes(message: &TailMessage) -> usize {
    match &message.body {
        Body::Original(parts) => parts.iter().map(part_bytes).sum(),
        Body::Summary { text, .. } => text.len(),
    }
}

/// A message as the cut sees it.
pub(super) fn tail_item(message: &TailMessage) -> TailItem {
    let (tokens, bytes, outline) = match &message.body {
        Body::Original(parts) => (
            message.tokens,
            plain_text_bytes(parts) as u64,
            outline(parts),
        ),
        Body::Summary {
            text,
            tokens,
            outline,
            ..
        } => (*tokens, text.len() as u64, outline.clone()),
    };
    TailItem {
        id: message.id,
        role: message.role,
        turn: message.turn,
        tokens,
        bytes,
        outline,
    }
}

fn source(message: &TailMessage) -> Source {
    let body = match &message.body {
        Body::Original(parts) => SourceBody::Original(parts.clone()),
        Body::Summary { text, .. } => SourceBody::CachedSummary(text.clone()),
    };
    Source {
        message_id: message.id,
        role: message.role,
        body,
    }
}

fn text(message: &TailMessage) -> String {
    match &message.body {
        Body::Original(parts) => plain_text(parts),
        Body::Summary { text, .. } => text.clone(),
    }
}

#[cfg(test)]
mod tests {
    use anneal_core::message::Role;

    use super::*;

    #[test]
    fn a_message_that_is_sent_as_its_summary_counts_with_the_bytes_of_the_summary() {
        let message = TailMessage {
            id: MessageId(1),
            role: Role::User,
            turn: 1,
            tokens: Tokens::new(900),
            estimated: false,
            body: Body::Summary {
                text: "größer".into(),
                tokens: Tokens::new(2),
                original_bytes: 4_000,
                outline: vec![],
            },
            ready_summary: None,
        };
        let item = tail_item(&message);
        assert_eq!((item.tokens, item.bytes), (Tokens::new(2), 8));
    }
}
