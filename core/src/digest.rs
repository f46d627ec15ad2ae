//! SHA-256 digests of a text, of an append request, of a list of fields, and of the messages that a
//! summarizer read.

use sha2::{Digest as _, Sha256};

use crate::message::{Message, MessageId};

/// A SHA-256 digest.
pub type Digest = [u8; 32];

/// Digest of a text, such as a message's stored content or a system prompt.
pub fn of_content(content: &str) -> Digest {
    Sha256::digest(content.as_bytes()).into()
}

/// Digest of an append request: `contents` holds the stored content of each of `messages`. Two
/// appends with equal digests ask for the same messages.
pub fn of_append(messages: &[Message], contents: &[String]) -> Digest {
    let mut digest = Sha256::new();
    for (message, content) in messages.iter().zip(contents) {
        feed(&mut digest, message.role.name().as_bytes());
        feed(&mut digest, content.as_bytes());
        for (key, value) in &message.metadata {
            feed(&mut digest, key.as_bytes());
            feed(&mut digest, value.as_bytes());
        }
        // Marks the end of the message. No field is so long that its length has this value.
        digest.update(u64::MAX.to_be_bytes());
    }
    digest.finalize().into()
}

/// Digest of fields in the given order, such as those of a request.
pub fn of_fields<'a>(fields: impl IntoIterator<Item = &'a [u8]>) -> Digest {
    let mut digest = Sha256::new();
    for field in fields {
        feed(&mut digest, field);
    }
    digest.finalize().into()
}

/// Digest of the messages that a checkpoint's summarizer read: ids and content digests, in id
/// order.
pub fn of_sources<'a>(sources: impl IntoIterator<Item = (MessageId, &'a [u8])>) -> Digest {
    let mut digest = SourceDigest::default();
    digest.add(sources);
    digest.finish()
}

/// [`of_sources`] for messages that arrive in batches.
#[derive(Debug, Clone, Default)]
pub struct SourceDigest(Sha256);

impl SourceDigest {
    /// Adds the next messages.
    pub fn add<'a>(&mut self, sources: impl IntoIterator<Item = (MessageId, &'a [u8])>) {
        for (id, content_digest) in sources {
            self.0.update(id.0.to_be_bytes());
            feed(&mut self.0, content_digest);
        }
    }

    /// The digest of all added messages.
    pub fn finish(self) -> Digest {
        self.0.finalize().into()
    }
}

/// Writes the length before the bytes, so that two lists of fields never have the same encoding.
fn feed(digest: &mut Sha256, bytes: &[u8]) {
    digest.update((bytes.len() as u64).to_be_bytes());
    digest.update(bytes);
}
