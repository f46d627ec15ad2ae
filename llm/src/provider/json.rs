//! Defensive parsing of providers' JSON: short input never takes much memory, and an unexpected
//! field does not fail the rest.

use std::fmt;

use anneal_core::tokens::Tokens;
use serde::{
    Deserialize, Deserializer,
    de::{DeserializeOwned, Error as _, SeqAccess, Visitor},
};
use serde_json::value::RawValue;

/// Most entries of a list in one event.
const MAX_ENTRIES: usize = 256;

/// A list of at most [`MAX_ENTRIES`] entries; a longer one is an error, and null counts as an empty
/// list. Without the limit, each three bytes of input (`{},`) would take hundreds of bytes in
/// memory.
#[derive(Debug)]
pub(super) struct BoundedList<T>(pub(super) Vec<T>);

impl<T> Default for BoundedList<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for BoundedList<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(BoundedListVisitor(std::marker::PhantomData))
    }
}

struct BoundedListVisitor<T>(std::marker::PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for BoundedListVisitor<T> {
    type Value = BoundedList<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list")
    }

    fn visit_unit<E>(self) -> Result<BoundedList<T>, E> {
        Ok(BoundedList::default())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<BoundedList<T>, A::Error> {
        let mut list = Vec::new();
        while let Some(entry) = seq.next_element()? {
            if list.len() == MAX_ENTRIES {
                return Err(A::Error::custom("a list is too long"));
            }
            list.push(entry);
        }
        Ok(BoundedList(list))
    }
}

#[derive(Deserialize)]
struct TextPiece {
    #[serde(default)]
    text: Option<String>,
}

/// The text of a field that holds a string, or a list of objects with `text`; None for any other
/// value, and for a list that is malformed or too long.
pub(super) fn text(raw: Option<&RawValue>) -> Option<String> {
    let json = raw?.get();
    match json.as_bytes().first() {
        Some(b'"') => serde_json::from_str(json).ok(),
        Some(b'[') => {
            let pieces: BoundedList<TextPiece> = serde_json::from_str(json).ok()?;
            Some(
                pieces
                    .0
                    .into_iter()
                    .filter_map(|piece| piece.text)
                    .collect(),
            )
        }
        _ => None,
    }
}

/// An optional field: a value that does not follow the protocol counts as missing.
pub(super) fn lenient<T: DeserializeOwned + Default>(raw: Option<&RawValue>) -> Option<T> {
    serde_json::from_str(raw?.get()).ok()
}

/// A provider's token count, limited so that sums cannot overflow; 0 if it is missing.
pub(super) fn tokens(count: Option<u64>) -> Tokens {
    Tokens::new(count.unwrap_or_default().min(u64::from(u32::MAX)))
}
