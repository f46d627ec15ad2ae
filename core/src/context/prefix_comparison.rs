//! Compares the beginning of a context with that of the previous one, by a hash that changes
//! exactly when the beginning changes.

use sha2::{Digest as _, Sha256};

use super::{
    Body, BreakReason, CacheBreak, Draft, Entry, ManifestEntry, Material, NewVersion, Prefix,
    PrefixVersion, Reason, RepairKind, Representation, Segment, SummaryOrigin,
    cache_places::{CacheUse, CachedDraft, LastCall, Unchanged},
};
use crate::{
    boundary::Boundary,
    cache::{CacheAsk, CacheKind, CacheRetention, CacheTtl, RequestIdentity, pays_back_after},
    digest::Digest,
    message::{MessageId, Part, Role},
    tokens::Tokens,
};

/// The facts about the previous context and about the new one that the comparison needs. They are
/// copied before the build consumes the material.
pub(super) struct ComparisonInput {
    /// The newest recorded version.
    pub(super) version: Option<PrefixVersion>,
    /// The assistant message that the last model call wrote.
    pub(super) last_call: Option<MessageId>,
    /// The assistant message that the call before it wrote.
    call_before: Option<MessageId>,
    /// Whether the last call is older than the lifetime of the provider's cache.
    pub(super) cold: bool,
    /// If it is: whether system prompt and summary are kept for longer.
    head_is_warm: bool,
    /// The model's cache; None: an ideal one.
    cache: Option<CacheAsk>,
    /// The model's tokens per token counted here.
    ratio: Option<f64>,
    /// A message with more tokens is large.
    large_threshold: Tokens,
    /// The relative extra cost of cache writes: [`crate::model::Prices::rho`].
    pub(super) rho: f64,
    /// Tokens that the new context's checkpoint summary saves.
    pub(super) checkpoint_saved: Tokens,
    /// Origin of the new context's checkpoint summary.
    pub(super) summary_origin: SummaryOrigin,
    /// Messages that the new context sends as their summaries.
    pub(super) swapped: Vec<MessageId>,
}

impl ComparisonInput {
    /// Copies what is needed from the material. Call it after the swap, so that `swapped` is
    /// complete.
    pub(super) fn of(material: &Material, cache: Option<CacheAsk>) -> Self {
        let mut answers = material
            .tail
            .iter()
            .rev()
            .filter(|message| message.role == Role::Assistant)
            .map(|message| message.id);
        let (last_call, call_before) = (answers.next(), answers.next());
        let keeps_head = cache.as_ref().is_some_and(|ask| {
            ask.marks
                && ask.rules.kind == CacheKind::Marked
                && ask.retention == CacheRetention::LongHead
        });
        let head_seconds = i64::from(CacheTtl::OneHour.seconds());
        let swapped = material
            .tail
            .iter()
            .filter(|message| matches!(message.body, Body::Summary { .. }));
        Self {
            version: material.prefix.clone(),
            last_call,
            call_before,
            cold: material.is_cold(),
            head_is_warm: keeps_head
                && material
                    .idle_seconds
                    .is_some_and(|idle| idle <= head_seconds),
            cache,
            ratio: material.tokens_ratio,
            large_threshold: material.policy.large_message_threshold,
            rho: material.policy.prices.rho(),
            swapped: swapped.map(|message| message.id).collect(),
            checkpoint_saved: material
                .checkpoint
                .as_ref()
                .map_or(Tokens::ZERO, |summary| summary.saved),
            summary_origin: material
                .checkpoint
                .as_ref()
                .map_or(SummaryOrigin::Stored, |summary| summary.origin),
        }
    }

    /// Why the request beside the context makes the cache useless; None: it does not.
    fn identity_change(&self) -> Option<BreakReason> {
        let (ask, version) = self.cache.as_ref().zip(self.version.as_ref())?;
        ask.identity.change_since(&version.identity)
    }

    /// What a new version records of the request beside the context.
    fn identity(&self) -> RequestIdentity {
        let before = self.version.as_ref().map(|version| &version.identity);
        let ask = self.cache.as_ref().map(|ask| ask.identity.clone());
        ask.unwrap_or_default().over(before)
    }

    /// Number of the newest mark; 0: there is none.
    fn change_epoch(&self) -> i64 {
        self.version
            .as_ref()
            .map_or(0, |version| version.change_epoch)
    }
}

impl PrefixVersion {
    /// Whether the beginning with this hash is the one that was recorded, and is unchanged.
    fn is_of(&self, hash: Digest) -> bool {
        self.hash == hash && self.pending.is_none()
    }
}

/// Compares a finished draft with what was sent before, and says what the cache gives and keeps.
pub(super) fn compare(
    draft: &Draft,
    input: &ComparisonInput,
    boundary: Boundary,
    system_prompt: Digest,
    last_message_id: MessageId,
) -> (Prefix, CacheUse) {
    let hash = prefix_hash(draft, input, boundary, system_prompt);
    let cut = draft.manifest.iter().any(is_cut);
    let sent_until = input.last_call.map_or(MessageId::NONE, |call| {
        MessageId(call.0 - 1).max(boundary.after())
    });
    let version = input.version.as_ref();
    let sent = sent_tokens(draft, MessageId::NONE, input.last_call);
    let is_recorded =
        version.is_some_and(|version| version.is_of(hash)) && input.identity_change().is_none();
    if is_recorded && !input.cold {
        let cache = use_cache(draft, input, Unchanged::of_unbroken(input), cut, sent);
        let prefix = Prefix {
            hash,
            stable_until: sent_until,
            cache_break: None,
            cached: cache.cached,
            new_version: None,
        };
        return (prefix, cache);
    }
    let (reason, broken_at) = break_reason(draft, input, boundary, system_prompt, hash);
    let saved = match reason {
        BreakReason::Swap => saved_tokens(draft, version.map_or(&[], |version| &version.swapped)),
        BreakReason::Checkpoint => input.checkpoint_saved,
        _ => Tokens::ZERO,
    };
    let rewritten = sent_tokens(draft, broken_at, input.last_call);
    // A summary that was made for one answer starts no version. Later contexts are compared with
    // the version before it.
    let starts_version = input.summary_origin == SummaryOrigin::Stored && !is_recorded;
    let stable_until = if broken_at > boundary.after().next() {
        MessageId(broken_at.0 - 1).min(sent_until)
    } else {
        MessageId::NONE
    };
    let ideal = if reason == BreakReason::First {
        Tokens::ZERO
    } else {
        sent.less(rewritten)
    };
    let unchanged = Unchanged::of_break(reason, broken_at, input, system_prompt);
    let cache = use_cache(draft, input, unchanged, cut, ideal);
    let prefix = Prefix {
        hash,
        stable_until,
        cache_break: (reason != BreakReason::First).then(|| CacheBreak {
            reason,
            at: broken_at,
            rewritten,
            saved,
            pays_back_after: pays_back_after(input.rho, rewritten, saved),
        }),
        cached: cache.cached,
        new_version: starts_version.then(|| {
            let epoch = version.map_or(0, |version| version.epoch) + 1;
            let swapped = input.swapped.clone();
            let version = PrefixVersion {
                epoch,
                hash,
                boundary: boundary.after(),
                system_prompt,
                swapped,
                cut,
                change_epoch: input.change_epoch(),
                pending: None,
                identity: input.identity(),
            };
            NewVersion {
                version,
                last_message_id,
                reason,
                broken_at,
                rewritten,
                saved,
            }
        }),
    };
    (prefix, cache)
}

impl Unchanged {
    /// What the last call has sent too if nothing has changed since.
    fn of_unbroken(input: &ComparisonInput) -> Self {
        input.last_call.map_or(Self::Nothing, Self::Until)
    }

    /// What the last call has sent too, and the cache still holds, after this break.
    fn of_break(
        reason: BreakReason,
        at: MessageId,
        input: &ComparisonInput,
        system_prompt: Digest,
    ) -> Self {
        let (Some(answer), Some(version)) = (input.last_call, &input.version) else {
            return Self::Nothing;
        };
        let up_to_prompt = if version.system_prompt == system_prompt {
            Self::SystemPrompt
        } else {
            Self::Tools
        };
        let kind = input.cache.as_ref().map(|ask| ask.rules.kind);
        match reason {
            BreakReason::First | BreakReason::Model | BreakReason::Tools => Self::Nothing,
            _ if input.cold && !input.head_is_warm => Self::Nothing,
            // The head is the same, and is kept for longer than the rest.
            BreakReason::Idle => Self::Until(MessageId::NONE.next()),
            // Anthropic keeps the tools and the system prompt. The others put some options before
            // them.
            BreakReason::Options if kind != Some(CacheKind::Marked) => Self::Nothing,
            _ if at == MessageId::NONE => up_to_prompt,
            _ => Self::Until(at.min(answer)),
        }
    }
}

/// What the provider's cache gives to this call, and keeps of it. `ideal`: tokens that an ideal
/// cache would give.
fn use_cache(
    draft: &Draft,
    input: &ComparisonInput,
    unchanged: Unchanged,
    cut: bool,
    ideal: Tokens,
) -> CacheUse {
    let Some(ask) = input
        .cache
        .as_ref()
        .filter(|ask| ask.rules.kind != CacheKind::None)
    else {
        return CacheUse {
            cached: ideal,
            ..CacheUse::default()
        };
    };
    let swapped_before = input
        .version
        .as_ref()
        .map(|version| version.swapped.as_slice())
        .unwrap_or_default();
    let was_cut = input.version.as_ref().is_some_and(|version| version.cut);
    let changed_from = input.version.as_ref().and_then(|version| version.pending);
    // What a changed message was at the last call is not known.
    let was_large = |entry: &&ManifestEntry| {
        !was_cut
            && entry.original_tokens > input.large_threshold
            && swapped_before.binary_search(&entry.first).is_err()
            && changed_from.is_none_or(|change| entry.first < change.at)
    };
    let last_call = input.last_call.map(|answer| LastCall {
        answer,
        answer_before: input.call_before,
        oldest_large: draft
            .manifest
            .iter()
            .find(was_large)
            .map(|entry| entry.first),
    });
    // After a cut it is not known what the next context leaves out.
    let oldest_large = draft
        .manifest
        .iter()
        .find(|entry| is_large_original(entry))
        .filter(|_| !cut)
        .map(|entry| entry.first);
    CachedDraft::new(draft, ask, input.ratio).plan(last_call, unchanged, oldest_large)
}

/// Whether a large message is sent as its original, so that its summary may replace it later.
fn is_large_original(manifest_entry: &ManifestEntry) -> bool {
    manifest_entry.representation == Representation::Original
        && matches!(
            manifest_entry.reason,
            Reason::Hot | Reason::SummaryPending | Reason::StepPending
        )
}

/// Hash of everything that decides the beginning. The content of messages changes only at a mark,
/// so their ids and representations and the number of the newest mark suffice.
fn prefix_hash(
    draft: &Draft,
    input: &ComparisonInput,
    boundary: Boundary,
    system_prompt: Digest,
) -> Digest {
    let mut hash = Sha256::new();
    hash.update(system_prompt);
    let kind: u8 = match (boundary, input.summary_origin) {
        (Boundary::Start, _) => 0,
        (Boundary::Separator(_), _) => 1,
        (Boundary::Checkpoint(_), SummaryOrigin::Stored) => 2,
        // The checkpoint that will be stored at the same boundary has another summary.
        (Boundary::Checkpoint(_), SummaryOrigin::ForThisCall) => 3,
    };
    hash.update([kind, draft.format as u8]);
    hash.update(boundary.after().0.to_le_bytes());
    for id in &input.swapped {
        hash.update(id.0.to_le_bytes());
    }
    for manifest_entry in draft
        .manifest
        .iter()
        .filter(|manifest_entry| is_cut(manifest_entry))
    {
        hash.update([manifest_entry.representation as u8]);
        hash.update(manifest_entry.first.0.to_le_bytes());
        hash.update(manifest_entry.tokens.get().to_le_bytes());
    }
    let newest = last_non_result(draft);
    for repair in &draft.repairs {
        let counts = match repair.kind {
            // A synthetic result changes the hash only while nothing but results follows its call.
            // Once another message follows, the synthetic result stays, or the late result is moved
            // to its place and counts as `ResultMoved`.
            RepairKind::ResultAdded => repair.message.is_some_and(|with_call| with_call >= newest),
            RepairKind::ResultMoved => true,
            _ => false,
        };
        if counts {
            hash.update([repair.kind as u8]);
            hash.update(repair.message.unwrap_or_default().0.to_le_bytes());
            hash.update(repair.call.as_bytes());
        }
    }
    let unmarked: Digest = hash.finalize().into();
    let change_epoch = input.change_epoch();
    if change_epoch == 0 {
        // Conversations without a mark keep the hashes that were recorded before there were marks.
        return unmarked;
    }
    // A hash of its own: appended to the fields above, the epoch could be read as a swapped id.
    let mut marked = Sha256::new();
    marked.update(unmarked);
    marked.update(change_epoch.to_le_bytes());
    marked.finalize().into()
}

/// The newest stored message that holds something other than tool results.
fn last_non_result(draft: &Draft) -> MessageId {
    let tail = draft
        .entries
        .iter()
        .filter(|entry| entry.segment == Segment::Tail && entry.role != Role::Tool);
    let others = tail.filter(|entry| {
        entry
            .parts
            .iter()
            .any(|part| !matches!(part, Part::ToolResult { .. }))
    });
    others
        .filter_map(|entry| entry.ids.last().copied())
        .max()
        .unwrap_or(MessageId::NONE)
}

/// Whether the budget, pressure or the content limit changed what is sent for a message. A clipped
/// summary is still reported as a summary, but its reason is no longer that it is cool.
fn is_cut(manifest_entry: &ManifestEntry) -> bool {
    matches!(
        manifest_entry.representation,
        Representation::Dropped | Representation::Clipped
    ) || manifest_entry.representation == Representation::Summary
        && manifest_entry.reason != Reason::Cool
}

/// Why the beginning differs, and the first message that differs.
fn break_reason(
    draft: &Draft,
    input: &ComparisonInput,
    boundary: Boundary,
    system_prompt: Digest,
    hash: Digest,
) -> (BreakReason, MessageId) {
    let Some(version) = &input.version else {
        return (BreakReason::First, MessageId::NONE);
    };
    if let Some(reason) = input.identity_change() {
        return (reason, MessageId::NONE);
    }
    if let Some(change) = version.pending
        && change.at == MessageId::NONE
    {
        return (change.reason, MessageId::NONE);
    }
    if version.boundary != boundary.after() {
        let is_checkpoint =
            matches!(boundary, Boundary::Checkpoint(last) if last > version.boundary);
        let reason = if is_checkpoint {
            BreakReason::Checkpoint
        } else {
            BreakReason::Separator
        };
        return (reason, MessageId::NONE);
    }
    if version.system_prompt != system_prompt {
        return (BreakReason::SystemPrompt, MessageId::NONE);
    }
    if input.cold || version.is_of(hash) {
        return (BreakReason::Idle, MessageId::NONE);
    }
    let first_only_in = |one: &[MessageId], other: &[MessageId]| {
        one.iter()
            .copied()
            .find(|id| other.binary_search(id).is_err())
    };
    let (swapped_now, swapped_before) = (&input.swapped, &version.swapped);
    let first_swap_change = first_only_in(swapped_now, swapped_before)
        .into_iter()
        .chain(first_only_in(swapped_before, swapped_now))
        .min();
    // The version does not say which messages were cut, so everything after the summary may differ.
    let any_cut = version.cut || draft.manifest.iter().any(is_cut);
    let last_moved_result = draft
        .repairs
        .iter()
        .rev()
        .find(|repair| matches!(repair.kind, RepairKind::ResultMoved));
    let start = boundary.after().next();
    if let Some(change) = version.pending {
        return match first_swap_change {
            _ if any_cut => (change.reason, start),
            Some(message) if message < change.at => (BreakReason::Swap, message),
            _ => (change.reason, change.at.max(start)),
        };
    }
    match (first_swap_change, last_moved_result) {
        (Some(_), _) if any_cut => (BreakReason::Swap, start),
        (Some(message), _) => (BreakReason::Swap, message),
        (None, _) if any_cut || draft.budget.is_some() => (BreakReason::Budget, start),
        (None, Some(repair)) => (BreakReason::Repair, repair.message.unwrap_or_default()),
        (None, None) => (BreakReason::Repair, start),
    }
}

/// Tokens that the newly swapped messages save.
fn saved_tokens(draft: &Draft, swapped_before: &[MessageId]) -> Tokens {
    let swapped = draft.manifest.iter().filter(|manifest_entry| {
        manifest_entry.reason == Reason::Cool
            && swapped_before.binary_search(&manifest_entry.first).is_err()
    });
    swapped
        .map(|manifest_entry| manifest_entry.original_tokens.less(manifest_entry.tokens))
        .sum()
}

/// Tokens that the last call sent, from message `from` on ([`MessageId::NONE`]: all).
fn sent_tokens(draft: &Draft, from: MessageId, last_call: Option<MessageId>) -> Tokens {
    let Some(last_call) = last_call else {
        return Tokens::ZERO;
    };
    let sent = draft
        .entries
        .iter()
        .filter(|entry| match (entry.segment, entry.message_id()) {
            (Segment::SystemPrompt | Segment::CheckpointSummary, _) => from == MessageId::NONE,
            (Segment::Tail, Some(id)) => id >= from && id < last_call,
            (Segment::Tail | Segment::CurrentInput, _) => false,
        });
    sent.map(Entry::framed_tokens).sum()
}
