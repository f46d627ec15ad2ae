//! Shortens a context that is too long for its model: replaces the previous checkpoint and the
//! older half of the tail (the messages after the boundary) by an extractive summary. This summary
//! serves one answer; the worker makes the checkpoint that stays.

use anneal_core::{
    context::{CheckpointSummary, Material, SummaryOrigin, checkpoint_overhead_tokens},
    cut::{self, TailItem, Trigger},
    message::MessageId,
    policy::{KeepRecent, Policy},
    tokens::Tokens,
};

use crate::usecases::tail_extract::{TailExtract, messages_before, tail_item};

/// The part of the tail that is kept: half of its messages. Wherever the cut is, at least a fifth
/// of the messages and at least four messages stay.
pub(crate) const KEPT_TAIL: KeepRecent = KeepRecent::Share(50);
/// Most tokens of the summary.
const MAX_SUMMARY_TOKENS: Tokens = Tokens::new(2_000);

/// Replaces the older half of the tail by a summary. Returns the material unchanged if nothing can
/// be cut or the summary would not be shorter.
pub(crate) fn shorten_tail(mut material: Material) -> Material {
    let items: Vec<TailItem> = material.tail.iter().map(tail_item).collect();
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
    let cut_count = messages_before(&material, &cut);
    let tokens_before = items[..cut_count]
        .iter()
        .map(|item| item.tokens)
        .sum::<Tokens>()
        + checkpoint_tokens;
    let extract = TailExtract::of(&material, &cut, tokens_before);
    let Some(summary) = extract.write(MAX_SUMMARY_TOKENS) else {
        return material;
    };
    let tokens = summary.tokens + checkpoint_overhead_tokens(cut.last, material.encoding);
    if tokens < tokens_before {
        material.tail.drain(..cut_count);
        material.checkpoint = Some(CheckpointSummary {
            last: cut.last,
            text: summary.text,
            tokens: summary.tokens,
            saved: tokens_before.less(tokens),
            origin: SummaryOrigin::ForThisCall,
        });
    }
    material
}

/// The request id of the checkpoint that makes an emergency compaction permanent. It is the same
/// for every call with this last message, so that only one checkpoint is made.
pub(crate) fn request_id(last: MessageId) -> String {
    format!("pressure at {last}")
}
