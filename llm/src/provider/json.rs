//! JSON of strangers: a few bytes of it never become much memory, and an odd field never spoils the rest.

use std::fmt;

use anneal_core::tokens::Tokens;
use serde::{
    Deserialize, Deserializer,
    de::{DeserializeOwned, Error as _, SeqAccess, Visitor},
};
use serde_json::value::RawValue;

/// Most entries of any list in one event.
const LISTED: usize = 256;

/// A list of at most [`LISTED`] entries; null is an empty one. Three bytes of `{},` would else become hundreds.
#[derive(Debug)]
pub(super) struct Few<T>(pub(super) Vec<T>);

impl<T> Default for Few<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Few<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(FewVisitor(std::marker::PhantomData))
    }
}

struct FewVisitor<T>(std::marker::PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for FewVisitor<T> {
    type Value = Few<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list")
    }

    fn visit_unit<E>(self) -> Result<Few<T>, E> {
        Ok(Few::default())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Few<T>, A::Error> {
        let mut list = Vec::new();
        while let Some(entry) = seq.next_element()? {
            if list.len() == LISTED {
                return Err(A::Error::custom("a list is too long"));
            }
            list.push(entry);
        }
        Ok(Few(list))
    }
}

#[derive(Deserialize)]
struct TextPiece {
    #[serde(default)]
    text: Option<String>,
}

/// The text of a field that holds a string, or a list of pieces with `text`; None for all else.
pub(super) fn text(raw: Option<&RawValue>) -> Option<String> {
    let json = raw?.get();
    match json.as_bytes().first() {
        Some(b'"') => serde_json::from_str(json).ok(),
        Some(b'[') => {
            let pieces: Few<TextPiece> = serde_json::from_str(json).ok()?;
            Some(pieces.0.into_iter().filter_map(|piece| piece.text).collect())
        }
        _ => None,
    }
}

/// A field that nothing depends on: what is not as the protocol says counts as not there.
pub(super) fn lenient<T: DeserializeOwned + Default>(raw: Option<&RawValue>) -> Option<T> {
    serde_json::from_str(raw?.get()).ok()
}

/// Tokens as a provider says them: never so many that sums of them overflow.
pub(super) fn tokens(said: Option<u64>) -> Tokens {
    Tokens::new(said.unwrap_or_default().min(u64::from(u32::MAX)))
}
