//! SHA-256 digests of a text, of an append request, of a list of fields, of the messages that a
//! summarizer read, and of a set of ids.

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

/// Digest of a set of ids, whatever their order: the sum of their SHA-256 digests modulo 2^256, as
/// big-endian numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SetDigest(pub Digest);

impl SetDigest {
    /// Adds an id, which must not be in the set yet.
    pub fn add(&mut self, id: &[u8]) {
        let digest: Digest = Sha256::digest(id).into();
        let mut carry = 0;
        for (sum, byte) in self.0.iter_mut().zip(digest).rev() {
            let total = u16::from(*sum) + u16::from(byte) + carry;
            let [over, low] = total.to_be_bytes();
            (*sum, carry) = (low, u16::from(over));
        }
    }
}

/// Writes the length before the bytes, so that two lists of fields never have the same encoding.
fn feed(digest: &mut Sha256, bytes: &[u8]) {
    digest.update((bytes.len() as u64).to_be_bytes());
    digest.update(bytes);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(ids: &[&str]) -> SetDigest {
        let mut digest = SetDigest::default();
        for id in ids {
            digest.add(id.as_bytes());
        }
        digest
    }

    #[test]
    fn the_digest_of_a_set_depends_on_its_ids_and_not_on_their_order() {
        assert_eq!(set(&["a"]).0, of_content("a"));
        assert_eq!(set(&["a", "b", "c"]), set(&["c", "a", "b"]));
        let others = [
            set(&["a", "b"]),
            set(&["a", "b", "d"]),
            set(&["a", "b", "c", "c"]),
        ];
        for other in others {
            assert_ne!(set(&["a", "b", "c"]), other);
        }
    }

    #[test]
    fn sums_of_digests_carry_and_wrap() {
        let mut digest = SetDigest([0xff; 32]);
        digest.add(b"a");
        let mut expected = of_content("a");
        // One less: 2^256 - 1 was there before.
        for byte in expected.iter_mut().rev() {
            let (less, borrows) = byte.overflowing_sub(1);
            *byte = less;
            if !borrows {
                break;
            }
        }
        assert_eq!(digest.0, expected);
    }
}
