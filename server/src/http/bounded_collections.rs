//! Lists and maps with a maximum size. One entry more than the maximum is kept, so that the check
//! of the size can refuse the request. Further entries are skipped: a body may hold 4 MiB of them,
//! which take much more memory once they are parsed.

use std::{collections::HashMap, fmt, marker::PhantomData};

use anneal_core::limits::{CHANGE_IDS, FALLBACK_MODELS, METADATA_KEYS, PARTS_PER_MESSAGE};
use serde::{
    Deserialize, Deserializer, Serialize,
    de::{IgnoredAny, MapAccess, SeqAccess, Visitor},
};

/// Labels of a session, at most one more than [`METADATA_KEYS`].
#[derive(Debug, Default, Clone, Serialize)]
pub(super) struct BoundedLabels(pub(super) HashMap<String, String>);

/// Pictures of a message, at most one more than [`PARTS_PER_MESSAGE`].
#[derive(Debug, Default, Clone, Serialize)]
pub(super) struct BoundedPictures(pub(super) Vec<String>);

/// Names of models, at most one more than [`FALLBACK_MODELS`].
#[derive(Debug, Default, Clone)]
pub(super) struct BoundedModels(pub(super) Vec<String>);

/// Ids of messages to change, at most one more than [`CHANGE_IDS`].
#[derive(Debug, Default, Serialize)]
pub(super) struct BoundedIds(pub(super) Vec<i64>);

impl<'de> Deserialize<'de> for BoundedLabels {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Reader;

        impl<'de> Visitor<'de> for Reader {
            type Value = BoundedLabels;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a map")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<BoundedLabels, A::Error> {
                let mut labels = HashMap::new();
                while labels.len() <= METADATA_KEYS {
                    let Some((key, value)) = map.next_entry::<String, String>()? else {
                        return Ok(BoundedLabels(labels));
                    };
                    labels.insert(key, value);
                }
                while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
                Ok(BoundedLabels(labels))
            }
        }

        from.deserialize_map(Reader)
    }
}

/// Reads a list, and keeps at most one entry more than `max`.
pub(super) struct ListReader<T> {
    max: usize,
    entry: PhantomData<T>,
}

impl<T> ListReader<T> {
    pub(super) const fn new(max: usize) -> Self {
        Self {
            max,
            entry: PhantomData,
        }
    }
}

impl<'de, T: Deserialize<'de>> Visitor<'de> for ListReader<T> {
    type Value = Vec<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a sequence")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Vec<T>, A::Error> {
        let mut entries = Vec::new();
        while entries.len() <= self.max {
            let Some(entry) = list.next_element()? else {
                return Ok(entries);
            };
            entries.push(entry);
        }
        while list.next_element::<IgnoredAny>()?.is_some() {}
        Ok(entries)
    }
}

impl<'de> Deserialize<'de> for BoundedPictures {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_seq(ListReader::new(PARTS_PER_MESSAGE))
            .map(Self)
    }
}

impl<'de> Deserialize<'de> for BoundedModels {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_seq(ListReader::new(FALLBACK_MODELS))
            .map(Self)
    }
}

impl<'de> Deserialize<'de> for BoundedIds {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_seq(ListReader::new(CHANGE_IDS)).map(Self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn collections_keep_at_most_one_entry_above_their_limit() {
        let labels = |count: usize| {
            (0..count)
                .map(|n| format!(r#""k{n}":"v""#))
                .collect::<Vec<_>>()
                .join(",")
        };
        for given in [0, METADATA_KEYS, PARTS_PER_MESSAGE, 100_000] {
            let read: BoundedLabels =
                serde_json::from_str(&format!("{{{}}}", labels(given))).expect("is read");
            assert_eq!(read.0.len(), given.min(METADATA_KEYS + 1));
            let list = format!("[{}]", vec![r#""x""#; given].join(","));
            let read: BoundedPictures = serde_json::from_str(&list).expect("is read");
            assert_eq!(read.0.len(), given.min(PARTS_PER_MESSAGE + 1));
            let read: BoundedModels = serde_json::from_str(&list).expect("is read");
            assert_eq!(read.0.len(), given.min(FALLBACK_MODELS + 1));
            let list = format!("[{}]", vec!["1"; given].join(","));
            let read: BoundedIds = serde_json::from_str(&list).expect("is read");
            assert_eq!(read.0.len(), given.min(CHANGE_IDS + 1));
        }
        assert!(
            serde_json::from_str::<Option<BoundedLabels>>("null")
                .expect("is read")
                .is_none()
        );
        assert!(serde_json::from_str::<BoundedLabels>(r#"{"a":1}"#).is_err());
    }
}
