//! The beginning of a context, which the provider's cache depends on: a hash that changes exactly when it breaks, and what
//! a break costs and saves.

use sha2::{Digest as _, Sha256};

use super::{Body, Draft, Made, ManifestEntry, Material, Reason, RepairKind, Representation, Segment};
use crate::{
    boundary::Boundary,
    digest::Digest,
    message::{MessageId, Part, Role},
    tokens::Tokens,
};

/// One version of the beginning of a conversation's contexts, as it was built first. The newest tells what is swapped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PrefixVersion {
    /// 1, 2, 3 …: one more for each break.
    pub epoch: i64,
    /// What the beginning is made of: equal hashes, equal beginnings.
    pub hash: Digest,
    /// The context starts after this message.
    pub boundary: MessageId,
    /// Digest of the system prompt.
    pub system_prompt: Digest,
    /// Large messages after the boundary that their summaries stand for, also where a budget has cut those.
    pub swapped: Vec<MessageId>,
    /// Whether budget or pressure had cut or dropped something.
    pub cut: bool,
}

/// A version that is new, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewVersion {
    /// The version.
    pub version: PrefixVersion,
    /// The newest message then.
    pub at: MessageId,
    /// Why the version before did not hold any more.
    pub reason: BreakReason,
    /// The first message that is sent otherwise than before; [`MessageId::NONE`] when everything is.
    pub broken_at: MessageId,
    /// Tokens that the provider has to write to its cache again.
    pub rewritten: Tokens,
    /// Tokens that each call saves from then on.
    pub saved: Tokens,
}

/// Why the beginning of a context is not what it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum BreakReason {
    /// There was none before.
    First,
    /// A checkpoint has moved the boundary.
    Checkpoint,
    /// A separator was put or taken away.
    Separator,
    /// Another system prompt.
    SystemPrompt,
    /// Cool large messages gave way to their summaries.
    Swap,
    /// The budget (or pressure) clipped or dropped other messages than before.
    Budget,
    /// A result that came late took the place of a synthetic one.
    Repair,
    /// Nothing changed, but the last call is so old that the provider has forgotten it.
    Idle,
}

/// What a break costs, and what it gains.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CacheBreak {
    /// Why.
    pub reason: BreakReason,
    /// The first message that is sent otherwise than before; [`MessageId::NONE`] when everything is.
    pub at: MessageId,
    /// Tokens of this context that the last call had sent, and that the provider must write to its cache again.
    pub rewritten: Tokens,
    /// Tokens that this call, and each one after it, saves.
    pub saved: Tokens,
    /// Calls after which the saving has paid for the rewriting; None when it never does.
    pub pays_back_after: Option<u64>,
}

/// How a context's beginning relates to the last one's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Prefix {
    /// Equal hashes: the stored part of the earlier context is the beginning of the later one.
    pub hash: Digest,
    /// The newest message up to which the last call sent the same; [`MessageId::NONE`] for nothing.
    pub stable_until: MessageId,
    /// What broke, if anything did.
    pub broken: Option<CacheBreak>,
    /// Tokens of this context that the provider's cache should hold: what the last call sent and nothing has broken.
    pub cached: Tokens,
    /// The version to record, when it is a new one.
    pub new: Option<NewVersion>,
}

/// What is needed of the material once it is taken apart.
pub(super) struct Before {
    pub(super) version: Option<PrefixVersion>,
    pub(super) last_call: Option<MessageId>,
    pub(super) cold: bool,
    pub(super) rho: f64,
    pub(super) checkpoint_saved: Tokens,
    /// Where the checkpoint's summary comes from.
    pub(super) made: Made,
    /// Messages of the tail that their summaries stand for.
    pub(super) swapped: Vec<MessageId>,
}

impl Before {
    /// Of the material as it is sent: after what is to be swapped has been.
    pub(super) fn of(material: &Material) -> Self {
        let swapped = material.tail.iter().filter(|message| matches!(message.body, Body::Summary { .. }));
        Self {
            version: material.prefix.clone(),
            last_call: material.last_call(),
            cold: material.is_cold(),
            rho: material.policy.prices.rho(),
            swapped: swapped.map(|message| message.id).collect(),
            checkpoint_saved: material.checkpoint.as_ref().map_or(Tokens::ZERO, |held| held.saved),
            made: material.checkpoint.as_ref().map_or(Made::Stored, |held| held.made),
        }
    }
}

/// Compares a finished draft with what was sent before.
pub(super) fn compare(
    draft: &Draft,
    before: &Before,
    boundary: Boundary,
    system_prompt: Digest,
    last_message_id: MessageId,
) -> Prefix {
    let hash = hash(draft, before, boundary, system_prompt);
    let cut = draft.manifest.iter().any(is_cut);
    let sent_until = before.last_call.map_or(MessageId::NONE, |call| MessageId(call.0 - 1).max(boundary.after()));
    let version = before.version.as_ref();
    let sent = sent(draft, MessageId::NONE, before.last_call);
    if version.is_some_and(|version| version.hash == hash) && !before.cold {
        return Prefix { hash, stable_until: sent_until, broken: None, cached: sent, new: None };
    }
    let (reason, broken_at) = reason(draft, before, boundary, system_prompt, hash);
    let saved = match reason {
        BreakReason::Swap => saved(draft, version.map_or(&[], |version| &version.swapped)),
        BreakReason::Checkpoint => before.checkpoint_saved,
        _ => Tokens::ZERO,
    };
    let rewritten = self::sent(draft, broken_at, before.last_call);
    // A summary that was made for one answer begins no other one: the version before stays the one to compare with.
    let changed = before.made == Made::Stored && version.is_none_or(|version| version.hash != hash);
    let stable_until =
        if broken_at > boundary.after().next() { MessageId(broken_at.0 - 1).min(sent_until) } else { MessageId::NONE };
    Prefix {
        hash,
        stable_until,
        broken: (reason != BreakReason::First).then(|| CacheBreak {
            reason,
            at: broken_at,
            rewritten,
            saved,
            pays_back_after: (saved > Tokens::ZERO)
                .then(|| (before.rho * rewritten.get() as f64 / saved.get() as f64).ceil() as u64),
        }),
        cached: if reason == BreakReason::First { Tokens::ZERO } else { sent.less(rewritten) },
        new: changed.then(|| {
            let epoch = version.map_or(0, |version| version.epoch) + 1;
            let swapped = before.swapped.clone();
            let version = PrefixVersion { epoch, hash, boundary: boundary.after(), system_prompt, swapped, cut };
            NewVersion { version, at: last_message_id, reason, broken_at, rewritten, saved }
        }),
    }
}

/// Everything that decides the beginning: messages are immutable, so ids and what became of them say it all.
fn hash(draft: &Draft, before: &Before, boundary: Boundary, system_prompt: Digest) -> Digest {
    let mut hash = Sha256::new();
    hash.update(system_prompt);
    let kind: u8 = match (boundary, before.made) {
        (Boundary::Start, _) => 0,
        (Boundary::Separator(_), _) => 1,
        (Boundary::Checkpoint(_), Made::Stored) => 2,
        // The checkpoint that will be stored at the same boundary reads otherwise.
        (Boundary::Checkpoint(_), Made::ForThisCall) => 3,
    };
    hash.update([kind, draft.format as u8]);
    hash.update(boundary.after().0.to_le_bytes());
    for id in &before.swapped {
        hash.update(id.0.to_le_bytes());
    }
    for line in draft.manifest.iter().filter(|line| is_cut(line)) {
        hash.update([line.representation as u8]);
        hash.update(line.first.0.to_le_bytes());
        hash.update(line.tokens.get().to_le_bytes());
    }
    let spoken = last_spoken(draft);
    for repair in &draft.repairs {
        let counts = match repair.kind {
            // Behind a later message the synthetic result keeps its place, or else the true one is moved there.
            RepairKind::ResultAdded => repair.message.is_some_and(|asker| asker >= spoken),
            RepairKind::ResultMoved => true,
            _ => false,
        };
        if counts {
            hash.update([repair.kind as u8]);
            hash.update(repair.message.unwrap_or_default().0.to_le_bytes());
            hash.update(repair.call.as_bytes());
        }
    }
    hash.finalize().into()
}

/// The newest stored message that is no result.
fn last_spoken(draft: &Draft) -> MessageId {
    let tail = draft.entries.iter().filter(|entry| entry.segment == Segment::Tail && entry.role != Role::Tool);
    let spoken = tail.filter(|entry| entry.parts.iter().any(|part| !matches!(part, Part::ToolResult { .. })));
    spoken.filter_map(|entry| entry.ids.last().copied()).max().unwrap_or(MessageId::NONE)
}

/// Whether budget or pressure has changed a message.
fn is_cut(line: &ManifestEntry) -> bool {
    matches!(line.representation, Representation::Dropped | Representation::Clipped)
        || line.representation == Representation::Summary && line.reason != Reason::Cool
}

/// Why the beginning is another, and from which message on.
fn reason(
    draft: &Draft,
    before: &Before,
    boundary: Boundary,
    system_prompt: Digest,
    hash: Digest,
) -> (BreakReason, MessageId) {
    let Some(version) = &before.version else { return (BreakReason::First, MessageId::NONE) };
    if version.boundary != boundary.after() {
        let moved_on = matches!(boundary, Boundary::Checkpoint(last) if last > version.boundary);
        let reason = if moved_on { BreakReason::Checkpoint } else { BreakReason::Separator };
        return (reason, MessageId::NONE);
    }
    if version.system_prompt != system_prompt {
        return (BreakReason::SystemPrompt, MessageId::NONE);
    }
    if version.hash == hash || before.cold {
        return (BreakReason::Idle, MessageId::NONE);
    }
    let only_in =
        |one: &[MessageId], other: &[MessageId]| one.iter().copied().find(|id| other.binary_search(id).is_err());
    let (now, then) = (&before.swapped, &version.swapped);
    let swap = only_in(now, then).into_iter().chain(only_in(then, now)).min();
    // Which messages were cut before is not known: whatever follows the summary may be sent otherwise.
    let cut = version.cut || draft.manifest.iter().any(is_cut);
    let moved = draft.repairs.iter().rev().find(|repair| matches!(repair.kind, RepairKind::ResultMoved));
    let start = boundary.after().next();
    match (swap, moved) {
        (Some(_), _) if cut => (BreakReason::Swap, start),
        (Some(at), _) => (BreakReason::Swap, at),
        (None, _) if cut || draft.budget.is_some() => (BreakReason::Budget, start),
        (None, Some(repair)) => (BreakReason::Repair, repair.message.unwrap_or_default()),
        (None, None) => (BreakReason::Repair, start),
    }
}

/// Tokens that newly swapped messages save.
fn saved(draft: &Draft, swapped_before: &[MessageId]) -> Tokens {
    let swapped = draft
        .manifest
        .iter()
        .filter(|line| line.reason == Reason::Cool && swapped_before.binary_search(&line.first).is_err());
    swapped.map(|line| line.original_tokens.less(line.tokens)).sum()
}

/// Tokens from message `at` on (from [`MessageId::NONE`]: all) that the last call had sent.
fn sent(draft: &Draft, at: MessageId, last_call: Option<MessageId>) -> Tokens {
    let Some(last_call) = last_call else { return Tokens::ZERO };
    let sent = draft.entries.iter().filter(|entry| match (entry.segment, entry.message()) {
        (Segment::SystemPrompt | Segment::CheckpointSummary, _) => at == MessageId::NONE,
        (Segment::Tail, Some(id)) => id >= at && id < last_call,
        (Segment::Tail | Segment::CurrentInput, _) => false,
    });
    sent.map(super::Entry::framed).sum()
}
