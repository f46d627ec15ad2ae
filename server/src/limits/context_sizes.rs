//! Remembers the sizes of long contexts, so that the next read of a context reserves enough bytes
//! at once. A read that reserves too little is repeated: its first statement finds only the size.

use anneal_core::caller::{Caller, ConversationId, TenantId};
use moka::sync::Cache;

use super::content_budget::FIRST_BYTES;

/// Most conversations whose size is remembered; an entry takes about 150 bytes.
const MAX_SIZES: u64 = 50_000;

/// Bytes of the contexts that were read last, if they exceed [`FIRST_BYTES`]. Cheap to clone.
#[derive(Clone)]
pub(crate) struct ContextSizes(Cache<(TenantId, ConversationId), u64>);

impl ContextSizes {
    pub(crate) fn new() -> Self {
        Self(Cache::new(MAX_SIZES))
    }

    /// The bytes that the next read of the context will probably take: an eighth more than the last
    /// read. Zero if the size is unknown or small.
    pub(crate) fn expected(&self, caller: Caller, id: ConversationId) -> u64 {
        let last = self.0.get(&(caller.tenant(), id)).unwrap_or(0);
        last + last / 8
    }

    /// Remembers the bytes of a context that was read.
    pub(crate) fn record(&self, caller: Caller, id: ConversationId, bytes: u64) {
        let key = (caller.tenant(), id);
        if bytes > FIRST_BYTES {
            self.0.insert(key, bytes);
        } else if self.0.contains_key(&key) {
            self.0.invalidate(&key);
        }
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    #[test]
    fn a_context_that_has_become_small_is_forgotten() {
        let sizes = ContextSizes::new();
        let caller = Caller::of(TenantId(Uuid::from_u128(1)));
        let id = ConversationId(Uuid::from_u128(2));
        assert_eq!(sizes.expected(caller, id), 0);
        sizes.record(caller, id, 8 * FIRST_BYTES);
        assert_eq!(
            sizes.expected(caller, id),
            9 * FIRST_BYTES,
            "an eighth more than the last read"
        );
        let stranger = Caller::of(TenantId(Uuid::from_u128(3)));
        assert_eq!(sizes.expected(stranger, id), 0);
        sizes.record(caller, id, FIRST_BYTES);
        assert_eq!(sizes.expected(caller, id), 0);
    }
}
