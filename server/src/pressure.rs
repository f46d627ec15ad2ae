//! What is done at once when a model has refused a context as too long: the older half of the tail gives way to a mechanical
//! summary. The checkpoint that makes it last is the worker's; this one is for one answer.

use anneal_core::{
    context::{Body, CheckpointSummary, Made, Material, TailMessage, checkpoint_tokens_around},
    cut::{self, Cut, TailItem, Trigger},
    message::{MessageId, outline, plain_text, plain_text_bytes},
    policy::{KeepRecent, Policy},
    tokens::Tokens,
};
use anneal_llm::{Extractive, Purpose, Quote, Source, SourceBody, Summarizer as _, SummaryAsk};

/// What stays of the tail, in percent of its messages; never less than a fifth of them and four.
pub(crate) const KEEP: KeepRecent = KeepRecent::Share(50);
/// The longest summary.
const TARGET: Tokens = Tokens::new(2_000);

/// Puts a summary in the place of the older half of the tail. Leaves the material as it is when there is nothing to cut, or
/// nothing shorter to say.
pub(crate) async fn compact(mut material: Material) -> Material {
    let items: Vec<TailItem> = material.tail.iter().map(item).collect();
    let policy = Policy { keep_recent: KEEP, ..material.policy };
    let held = material.checkpoint.as_ref().map_or(Tokens::ZERO, |held| held.tokens);
    let Some(cut) = cut::plan(&items, &policy, Trigger::Manual, material.system_prompt_tokens + held) else {
        return material;
    };
    let gone = material.tail.partition_point(|message| message.id <= cut.last);
    let before = items[..gone].iter().map(|item| item.tokens).sum::<Tokens>() + held;
    if let Some(summary) = summary(&material, &cut, gone, before).await {
        material.tail.drain(..gone);
        material.checkpoint = Some(summary);
    }
    material
}

/// The summary of the first `gone` messages and of the checkpoint before them, which count `before`.
async fn summary(material: &Material, cut: &Cut, gone: usize, before: Tokens) -> Option<CheckpointSummary> {
    let taken = &material.tail[..gone];
    let is_quoted = |message: &&TailMessage| cut.quoted.binary_search(&message.id).is_ok();
    let quoted = taken.iter().filter(is_quoted).map(text).collect::<Vec<_>>().join("\n\n");
    let sources: Vec<Source> = taken.iter().map(source).collect();
    let counter = material.encoding.counter();
    let measure = |text: &str| counter.count(text);
    let ask = SummaryAsk {
        purpose: Purpose::Range,
        previous: material.checkpoint.as_ref().map(|held| held.text.as_str()),
        quoted: cut.quoted.first().map(|id| Quote { message_id: *id, text: &quoted }),
        sources: &sources,
        focus: None,
        target: Purpose::Range.target(before, TARGET),
        measure: &measure,
    };
    let summary = Extractive.summarize(&ask).await.ok()?;
    let tokens = summary.tokens + checkpoint_tokens_around(cut.last, material.encoding);
    (tokens < before).then(|| CheckpointSummary {
        last: cut.last,
        text: summary.text,
        tokens: summary.tokens,
        saved: before.less(tokens),
        made: Made::ForThisCall,
    })
}

fn item(message: &TailMessage) -> TailItem {
    let (tokens, bytes, marks) = match &message.body {
        Body::Original(parts) => (message.tokens, plain_text_bytes(parts) as u64, outline(parts)),
        Body::Summary { tokens, outline, .. } => (*tokens, 0, outline.clone()),
    };
    TailItem { id: message.id, role: message.role, turn: message.turn, tokens, bytes, outline: marks }
}

fn source(message: &TailMessage) -> Source {
    let body = match &message.body {
        Body::Original(parts) => SourceBody::Original(parts.clone()),
        Body::Summary { text, .. } => SourceBody::Digest(text.clone()),
    };
    Source { message_id: message.id, role: message.role, body }
}

fn text(message: &TailMessage) -> String {
    match &message.body {
        Body::Original(parts) => plain_text(parts),
        Body::Summary { text, .. } => text.clone(),
    }
}

/// The request id of the compaction that pressure at this message asks for: however often it is felt, one checkpoint.
pub(crate) fn request_id(last: MessageId) -> String {
    format!("pressure at {last}")
}
