//! The encodings of conversations, as far as appends have learned them. An append is counted before
//! its conversation's row is read, in the encoding that is expected here. If that is the wrong one,
//! a worker counts the messages.

use anneal_core::{caller::ConversationId, tokens::Encoding};
use anneal_store::{Append, Appended};
use moka::sync::Cache;

/// Most conversations that are remembered. An entry takes about 200 bytes.
const MAX_CONVERSATIONS: u64 = 10_000;

/// Conversations whose encoding is not the default one. Cheap to clone.
#[derive(Clone)]
pub(crate) struct ConversationEncodings(Cache<ConversationId, Encoding>);

impl ConversationEncodings {
    pub(crate) fn new() -> Self {
        Self(Cache::new(MAX_CONVERSATIONS))
    }

    /// The encoding that the conversation has, or the default one if it is not known. An encoding
    /// never changes.
    pub(crate) fn expected(&self, id: ConversationId) -> Encoding {
        self.0.get(&id).unwrap_or_default()
    }

    /// Remembers the encoding of the conversation to which an append was stored.
    pub(crate) fn record(&self, append: &Append, appended: &Appended) {
        if let Some(encoding) = appended.encoding
            && append
                .counted_in()
                .is_some_and(|counted_in| counted_in != encoding)
        {
            self.0.insert(append.conversation(), encoding);
        }
    }
}
