//! Remembers how contexts were read last, so that the next read of a context needs one statement:
//! it reserves enough bytes at once, and knows the policy that the conversation probably has. A
//! read that expects too little or another policy is repeated: its first statement finds only the
//! size and the policy.

use anneal_core::caller::{Caller, ConversationId, TenantId};
use anneal_store::StoredPolicy;
use moka::sync::Cache;

use crate::limits::content_budget::FIRST_BYTES;

/// Most bytes that the entries take: those of 50,000 conversations, if their policies are short.
const MAX_BYTES: u64 = 15_000_000;
/// Bytes of an entry besides its policy.
const ENTRY_BYTES: usize = 300;

/// The size and policy that the next read of a context will probably find.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct ExpectedContext {
    /// Its bytes; 0: unknown, or at most [`FIRST_BYTES`].
    pub(crate) bytes: u64,
    /// The conversation's policy.
    pub(crate) policy: StoredPolicy,
}

/// The contexts that were read last, if they have more bytes than [`FIRST_BYTES`] or a policy with
/// overrides. Cheap to clone.
#[derive(Clone)]
pub(crate) struct ContextMemory(Cache<(TenantId, ConversationId), ExpectedContext>);

impl ContextMemory {
    pub(crate) fn new() -> Self {
        let weigh = |_: &(TenantId, ConversationId), expected: &ExpectedContext| {
            u32::try_from(ENTRY_BYTES + expected.policy.bytes()).unwrap_or(u32::MAX)
        };
        Self(
            Cache::builder()
                .weigher(weigh)
                .max_capacity(MAX_BYTES)
                .build(),
        )
    }

    /// The policy of the last read of the context, and an eighth more bytes than it had.
    pub(crate) fn expected(&self, caller: Caller, id: ConversationId) -> ExpectedContext {
        self.0.get(&(caller.tenant(), id)).unwrap_or_default()
    }

    /// Remembers a context that was read.
    pub(crate) fn record(
        &self,
        caller: Caller,
        id: ConversationId,
        bytes: u64,
        policy: &StoredPolicy,
    ) {
        let key = (caller.tenant(), id);
        let bytes = if bytes > FIRST_BYTES {
            bytes + bytes / 8
        } else {
            0
        };
        let expected = ExpectedContext {
            bytes,
            policy: policy.clone(),
        };
        let before = self.0.get(&key);
        if expected == ExpectedContext::default() {
            if before.is_some() {
                self.0.invalidate(&key);
            }
        } else if before.as_ref() != Some(&expected) {
            self.0.insert(key, expected);
        }
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    #[test]
    fn a_context_that_has_become_small_is_forgotten() {
        let contexts = ContextMemory::new();
        let caller = Caller::of(TenantId(Uuid::from_u128(1)));
        let id = ConversationId(Uuid::from_u128(2));
        let policy = StoredPolicy::default();
        let nothing = ExpectedContext::default();
        assert_eq!(contexts.expected(caller, id), nothing);
        contexts.record(caller, id, 8 * FIRST_BYTES, &policy);
        assert_eq!(
            contexts.expected(caller, id).bytes,
            9 * FIRST_BYTES,
            "an eighth more than the last read"
        );
        let stranger = Caller::of(TenantId(Uuid::from_u128(3)));
        assert_eq!(contexts.expected(stranger, id), nothing);
        contexts.record(caller, id, FIRST_BYTES, &policy);
        assert_eq!(contexts.expected(caller, id), nothing);
    }
}
