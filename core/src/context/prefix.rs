//! The beginning (prefix) of a context, which the provider's prefix cache depends on: its recorded
//! versions, and what a break costs and saves. A break is the place from which on the cache is
//! useless: the context differs there from the previous one, or the cache has expired.
//! `prefix_comparison` finds it.

use crate::{
    cache::{BreakReason, RequestIdentity},
    digest::Digest,
    message::MessageId,
    tokens::Tokens,
};

/// One version of the beginning of a conversation's contexts, as first built. The newest version
/// says which messages are swapped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PrefixVersion {
    /// Number of the version: 1, 2, 3 …
    pub epoch: i64,
    /// Hash of everything that decides the beginning. Equal hashes mean equal beginnings.
    pub hash: Digest,
    /// The context starts after this message.
    pub boundary: MessageId,
    /// Digest of the system prompt.
    pub system_prompt: Digest,
    /// Large messages after the boundary that are sent as their summaries, including summaries that
    /// a budget has clipped.
    pub swapped: Vec<MessageId>,
    /// Whether the budget, pressure or the content limit clipped or dropped a message.
    pub cut: bool,
    /// Number of the newest mark up to this version; 0: there is none. A mark takes the number of a
    /// version when stored messages are changed: a context with equal ids may then have another
    /// content.
    pub change_epoch: i64,
    /// The change after which no version was recorded; None: the version is newer than every change.
    pub pending: Option<PendingChange>,
    /// The request beside the context. Its tokens are not recorded.
    pub identity: RequestIdentity,
}

/// A change of stored messages since the last recorded version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PendingChange {
    /// The kind of change; [`BreakReason::First`] if no version was recorded before it.
    pub reason: BreakReason,
    /// The first changed message; [`MessageId::NONE`] if the boundary moved, so that every message
    /// is sent differently.
    pub at: MessageId,
}

/// A version to record, and why it differs from the version before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewVersion {
    /// The version.
    pub version: PrefixVersion,
    /// The newest message when the version was built.
    pub last_message_id: MessageId,
    /// Why the version before is no longer valid.
    pub reason: BreakReason,
    /// The first message that is sent differently than before; [`MessageId::NONE`] if every message
    /// is.
    pub broken_at: MessageId,
    /// Tokens that the provider must write to its cache again.
    pub rewritten: Tokens,
    /// Tokens that this call and each later one saves.
    pub saved: Tokens,
}

/// Cost and saving of a break.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CacheBreak {
    /// Why the beginning changed.
    pub reason: BreakReason,
    /// The first message that is sent differently than before; [`MessageId::NONE`] if every message
    /// is.
    pub at: MessageId,
    /// Tokens that the last call sent and that the provider must write to its cache again.
    pub rewritten: Tokens,
    /// Tokens that this call and each later one saves.
    pub saved: Tokens,
    /// Calls after which the savings have paid for the rewriting; None if nothing is saved.
    pub pays_back_after: Option<u64>,
}

/// How a context's beginning compares with that of the previous context.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Prefix {
    /// Hash of the beginning. If two contexts have equal hashes, the messages that the earlier one
    /// sent from the store are the beginning of the later one.
    pub hash: Digest,
    /// Up to this message the last call sent the same; [`MessageId::NONE`] if nothing is the same.
    pub stable_until: MessageId,
    /// The break, if the beginning changed.
    pub cache_break: Option<CacheBreak>,
    /// Tokens of the call that the provider's cache should hold, those of its tools included: what
    /// the last call sent and no break affects, as far as the rules of the model's cache keep it.
    pub cached: Tokens,
    /// The version to record; None if it is recorded already, or if the context has a summary that
    /// was made for this call only.
    pub new_version: Option<NewVersion>,
}
