//! Shortens a context that is too long for its model: replaces the previous checkpoint and the
//! older half of the tail (the messages after the boundary) by an extractive summary. This summary
//! serves one answer; the worker makes the checkpoint that stays.

use anneal_core::{
    context::{
        Body, CheckpointSummary, Material, SummaryOrigin, TailMessage, checkpoint_overhead_tokens,
    },
    cut::{self, Cut, TailItem, Trigger},
    message::{MessageId, outline, plain_text, plain_text_bytes},
    policy::{KeepRecent, Policy},
    tokens::Tokens,
};
use anneal_llm::{Extractive, Purpose, Quote, Source, SourceBody, Summarizer as _, SummaryAsk};

/// The part of the tail that is kept: half of its messages. Wherever the cut is, at least a fifth
/// of the messages and at least four messages stay.
pub(crate) const KEPT_TAIL: KeepRecent = KeepRecent::Share(50);
/// Most tokens of the summary.
const MAX_SUMMARY_TOKENS: Tokens = Tokens::new(2_000);

/// Replaces the older half of the tail by a summary. Returns the material unchanged if nothing can
/// be cut or the summary would not be shorter.
pub(crate) fn shorten_tail(mut material: Material) -> Material {
    let items: Vec<TailItem> = material.tail.iter().map(item).collect();
    let policy = Policy {
        keep_recent: KEPT_TAIL,
        ..material.policy
    };
    let checkpoint_tokens = material
        .checkpoint
        .as_ref()
        .map_or(Tokens::ZERO, |checkpoint| checkpoint.tokens);
    let Some(cut) = cut::plan(
        &items,
        &policy,
        Trigger::Manual,
        material.system_prompt_tokens + checkpoint_tokens,
    ) else {
        return material;
    };
    let cut_count = material
        .tail
        .partition_point(|message| message.id <= cut.last);
    let tokens_before = items[..cut_count]
        .iter()
        .map(|item| item.tokens)
        .sum::<Tokens>()
        + checkpoint_tokens;
    if let Some(summary) = summarize(&material, &cut, cut_count, tokens_before) {
        material.tail.drain(..cut_count);
        material.checkpoint = Some(summary);
    }
    material
}

/// Summarizes the previous checkpoint and the first `cut_count` messages of the tail. Together they
/// have `tokens_before` tokens. None: the summary would not be shorter.
fn summarize(
    material: &Material,
    cut: &Cut,
    cut_count: usize,
    tokens_before: Tokens,
) -> Option<CheckpointSummary> {
    let cut_messages = &material.tail[..cut_count];
    let is_quoted = |message: &&TailMessage| cut.quoted.binary_search(&message.id).is_ok();
    let quoted = cut_messages
        .iter()
        .filter(is_quoted)
        .map(text)
        .collect::<Vec<_>>()
        .join("\n\n");
    let sources: Vec<Source> = cut_messages.iter().map(source).collect();
    let counter = material.encoding.counter();
    let measure = |text: &str| counter.count(text);
    let ask = SummaryAsk {
        purpose: Purpose::Range,
        previous: material
            .checkpoint
            .as_ref()
            .map(|checkpoint| checkpoint.text.as_str()),
        quoted: cut.quoted.first().map(|id| Quote {
            message_id: *id,
            text: &quoted,
        }),
        sources: &sources,
        focus: None,
        target: Purpose::Range.target(tokens_before, MAX_SUMMARY_TOKENS),
        measure: &measure,
    };
    let summary = Extractive.summarize(&ask).ok()?;
    let tokens = summary.tokens + checkpoint_overhead_tokens(cut.last, material.encoding);
    (tokens < tokens_before).then(|| CheckpointSummary {
        last: cut.last,
        text: summary.text,
        tokens: summary.tokens,
        saved: tokens_before.less(tokens),
        origin: SummaryOrigin::ForThisCall,
    })
}

fn item(message: &TailMessage) -> TailItem {
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

/// The request id of the checkpoint that makes an emergency compaction permanent. It is the same
/// for every call with this last message, so that only one checkpoint is made.
pub(crate) fn request_id(last: MessageId) -> String {
    format!("pressure at {last}")
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
        let item = item(&message);
        assert_eq!((item.tokens, item.bytes), (Tokens::new(2), 8));
    }
}
