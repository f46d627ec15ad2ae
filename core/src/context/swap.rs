//! Decides which cool large messages are sent as their summaries.

use super::{Body, Material, TailMessage};
use crate::{
    boundary::Boundary,
    cache::RequestIdentity,
    cooling::{self, Candidate, SwapCost, TailPosition},
    digest::Digest,
    message::{MessageId, Role, outline, plain_text_bytes},
    policy::Cooling,
    provider_format::Format,
    tokens::{FRAMING_PER_MESSAGE, Tokens},
};

/// The parts of the context around the tail, known before the tail is built.
pub(super) struct TailSurroundings<'a> {
    /// The boundary that the context starts after.
    pub(super) boundary: Boundary,
    /// Digest of the system prompt to send.
    pub(super) system_prompt: Digest,
    /// Tokens of the context without the tail, framing included.
    pub(super) tokens: Tokens,
    /// Most tokens of the whole context.
    pub(super) budget: Option<Tokens>,
    /// The format that the context will be rendered in.
    pub(super) format: Format,
    /// The turn from which the age of messages is measured.
    pub(super) current_turn: i32,
    /// The request beside the context; None: not known.
    pub(super) identity: Option<&'a RequestIdentity>,
}

/// Swaps the messages that are due. Returns for each message of the tail whether it is cool.
///
/// With strict cooling the store has already read cool messages as their summaries. With stepped
/// cooling it has read as summaries only the messages that an earlier step swapped. The other cool
/// messages come with original and summary, and are swapped all together or not at all.
pub(super) fn swap_cool_messages(
    material: &mut Material,
    surroundings: &TailSurroundings<'_>,
) -> Vec<bool> {
    let policy = material.policy;
    let positions: Vec<TailPosition> = material
        .tail
        .iter()
        .map(|message| TailPosition {
            turn: message.turn,
            role: message.role,
        })
        .collect();
    let calls_since_cool =
        cooling::calls_since_cool(&positions, surroundings.current_turn, &policy);
    if policy.cooling == Cooling::Stepped && step_is_due(material, surroundings, &calls_since_cool)
    {
        // Small messages have no summary here (`TailMessage::ready_summary`), so they stay.
        for (message, calls) in material.tail.iter_mut().zip(&calls_since_cool) {
            if calls.is_some() {
                message.swap();
            }
        }
    }
    calls_since_cool
        .into_iter()
        .map(|calls| calls.is_some())
        .collect()
}

/// Whether the cool messages are swapped in this context. Collects the candidates and the cost of
/// their swap; [`cooling::step_is_due`] decides.
fn step_is_due(
    material: &Material,
    surroundings: &TailSurroundings<'_>,
    calls_since_cool: &[Option<u64>],
) -> bool {
    let candidates: Vec<Candidate> = material
        .tail
        .iter()
        .zip(calls_since_cool)
        .filter_map(|(message, calls)| candidate(message, (*calls)?, material))
        .collect();
    let Some(oldest) = candidates.first() else {
        return false;
    };
    let lost_from = cache_is_lost_from(material, surroundings);
    let last_call = material.last_call();
    let is_cached =
        |id: MessageId| Some(id) < last_call && lost_from.is_none_or(|lost_from| id < lost_from);
    let sent_after_oldest: Tokens = material
        .tail
        .iter()
        .filter(|message| message.id > oldest.id && is_cached(message.id))
        .map(TailMessage::framed_tokens)
        .sum();
    let saved_after_oldest: Tokens = candidates[1..]
        .iter()
        .filter(|candidate| is_cached(candidate.id))
        .map(|candidate| candidate.saved)
        .sum();
    let cost = SwapCost {
        rewritten: sent_after_oldest.less(saved_after_oldest),
        prices: material.policy.prices,
        free: lost_from.is_some_and(|lost_from| lost_from <= oldest.id)
            || exceeds_budget(material, surroundings),
    };
    cooling::step_is_due(&candidates, &cost)
}

/// A cool message as a candidate for the swap; None unless it is large, has a summary and is still
/// sent as its original.
fn candidate(message: &TailMessage, calls: u64, material: &Material) -> Option<Candidate> {
    let summary = message.ready_summary.as_ref()?;
    let large = cooling::is_large(message.tokens, &material.policy);
    (large && matches!(message.body, Body::Original(_))).then(|| Candidate {
        id: message.id,
        saved: message.tokens.less(summary.tokens),
        calls,
    })
}

/// The message from which on the provider's cache is lost even if nothing is swapped, because the
/// context differs there from the previous one, the model or its tools are others, or the last call
/// is older than the cache's lifetime; [`MessageId::NONE`] if all of it is lost. None: nothing is
/// lost.
fn cache_is_lost_from(
    material: &Material,
    surroundings: &TailSurroundings<'_>,
) -> Option<MessageId> {
    let Some(before) = &material.prefix else {
        return Some(MessageId::NONE);
    };
    let other_request = surroundings
        .identity
        .and_then(|identity| identity.change_since(&before.identity));
    if other_request.is_some()
        || before.boundary != surroundings.boundary.after()
        || before.system_prompt != surroundings.system_prompt
        || material.is_cold()
    {
        return Some(MessageId::NONE);
    }
    before.pending.map(|change| change.at)
}

/// Whether the context would exceed its budget without a swap. Near the budget this may say yes too
/// early, because the tokens that repairs and marks add are not known yet. A swap loses less than a
/// clip.
fn exceeds_budget(material: &Material, surroundings: &TailSurroundings<'_>) -> bool {
    let tail_tokens: Tokens = material.tail.iter().map(TailMessage::framed_tokens).sum();
    let summary_count = material
        .tail
        .iter()
        .filter(|message| matches!(message.body, Body::Summary { .. }))
        .count() as u64;
    let repair_tokens = if surroundings.format == Format::Neutral {
        0
    } else {
        REPAIR_TOKENS + REPAIR_TOKENS_PER_MESSAGE * material.tail.len() as u64
    };
    let added = Tokens::new(MARK_TOKENS * summary_count + repair_tokens);
    surroundings
        .budget
        .is_some_and(|budget| surroundings.tokens + tail_tokens + added > budget)
}

/// Most tokens of the mark before a message's summary, without the message's tool calls.
/// (`economics` has a typical value, for replays.)
const MARK_TOKENS: u64 = 32;
/// Tokens assumed for what repairs add to a context as a whole, such as user messages at its ends.
const REPAIR_TOKENS: u64 = 64;
/// Tokens assumed for what repairs add to each message, such as names in tool results.
const REPAIR_TOKENS_PER_MESSAGE: u64 = 8;

impl Material {
    /// The newest assistant message of the tail. Everything before it was sent in the last call.
    pub(super) fn last_call(&self) -> Option<MessageId> {
        self.tail
            .iter()
            .rev()
            .find(|message| message.role == Role::Assistant)
            .map(|message| message.id)
    }

    /// Whether the last call is older than the lifetime of the provider's cache.
    pub fn is_cold(&self) -> bool {
        self.idle_seconds
            .is_some_and(|idle| idle > i64::from(self.policy.cache_ttl_seconds))
    }
}

impl TailMessage {
    /// Tokens of the original or summary that is sent, framing included, without the summary's
    /// mark.
    fn framed_tokens(&self) -> Tokens {
        let tokens = match &self.body {
            Body::Original(_) => self.tokens,
            Body::Summary { tokens, .. } => *tokens,
        };
        tokens + FRAMING_PER_MESSAGE
    }

    /// Replaces the original by the summary, if there is one.
    pub(super) fn swap(&mut self) {
        let Body::Original(parts) = &self.body else {
            return;
        };
        let Some(summary) = self.ready_summary.take() else {
            return;
        };
        self.body = Body::Summary {
            original_bytes: plain_text_bytes(parts) as u64,
            outline: outline(parts),
            text: summary.text,
            tokens: summary.tokens,
        };
    }
}
