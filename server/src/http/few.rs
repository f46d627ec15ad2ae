//! Lists and maps of which a request may hold a few: of more, as many are kept as show that there are too many. Their reader
//! refuses them by their number, and 4 MiB of them must not be built first.

use std::{collections::HashMap, fmt};

use anneal_core::limits::{METADATA_KEYS, PARTS_PER_MESSAGE};
use serde::{
    Deserialize, Deserializer, Serialize,
    de::{IgnoredAny, MapAccess, SeqAccess, Visitor},
};

/// Labels, at most one more than may be given.
#[derive(Debug, Default, Serialize)]
pub(super) struct Labels(pub(super) HashMap<String, String>);

/// Pictures, at most one more than may be given.
#[derive(Debug, Default, Clone, Serialize)]
pub(super) struct Pictures(pub(super) Vec<String>);

impl<'de> Deserialize<'de> for Labels {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Reader;

        impl<'de> Visitor<'de> for Reader {
            type Value = Labels;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a map")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Labels, A::Error> {
                let mut labels = HashMap::new();
                while labels.len() <= METADATA_KEYS {
                    let Some((key, value)) = map.next_entry::<String, String>()? else { return Ok(Labels(labels)) };
                    labels.insert(key, value);
                }
                while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
                Ok(Labels(labels))
            }
        }

        from.deserialize_map(Reader)
    }
}

impl<'de> Deserialize<'de> for Pictures {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Reader;

        impl<'de> Visitor<'de> for Reader {
            type Value = Pictures;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a sequence")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Pictures, A::Error> {
                let mut pictures = Vec::new();
                while pictures.len() <= PARTS_PER_MESSAGE {
                    let Some(picture) = list.next_element()? else { return Ok(Pictures(pictures)) };
                    pictures.push(picture);
                }
                while list.next_element::<IgnoredAny>()?.is_some() {}
                Ok(Pictures(pictures))
            }
        }

        from.deserialize_seq(Reader)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_too_many_one_more_than_may_be_is_kept() {
        let labels = |count: usize| (0..count).map(|n| format!(r#""k{n}":"v""#)).collect::<Vec<_>>().join(",");
        for (given, kept) in [(0, 0), (METADATA_KEYS, METADATA_KEYS), (100_000, METADATA_KEYS + 1)] {
            let read: Labels = serde_json::from_str(&format!("{{{}}}", labels(given))).expect("is read");
            assert_eq!(read.0.len(), kept);
            let list = format!("[{}]", vec![r#""x""#; given].join(","));
            let read: Pictures = serde_json::from_str(&list).expect("is read");
            assert_eq!(read.0.len(), given.min(PARTS_PER_MESSAGE + 1));
        }
        assert!(serde_json::from_str::<Option<Labels>>("null").expect("is read").is_none());
        assert!(serde_json::from_str::<Labels>(r#"{"a":1}"#).is_err());
    }
}
