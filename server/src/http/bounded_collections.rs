//! Lists and maps with a maximum size. One entry more than the maximum is kept, so that the check
//! of the size can refuse the request. Further entries are skipped: a body may hold 4 MiB of them,
//! which take much more memory once they are parsed.

use std::{collections::HashMap, fmt};

use anneal_core::limits::{METADATA_KEYS, PARTS_PER_MESSAGE};
use serde::{
    Deserialize, Deserializer, Serialize,
    de::{IgnoredAny, MapAccess, SeqAccess, Visitor},
};

/// Labels of a session, at most one more than [`METADATA_KEYS`].
#[derive(Debug, Default, Serialize)]
pub(super) struct BoundedLabels(pub(super) HashMap<String, String>);

/// Pictures of a message, at most one more than [`PARTS_PER_MESSAGE`].
#[derive(Debug, Default, Clone, Serialize)]
pub(super) struct BoundedPictures(pub(super) Vec<String>);

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

impl<'de> Deserialize<'de> for BoundedPictures {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Reader;

        impl<'de> Visitor<'de> for Reader {
            type Value = BoundedPictures;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a sequence")
            }

            fn visit_seq<A: SeqAccess<'de>>(
                self,
                mut list: A,
            ) -> Result<BoundedPictures, A::Error> {
                let mut pictures = Vec::new();
                while pictures.len() <= PARTS_PER_MESSAGE {
                    let Some(picture) = list.next_element()? else {
                        return Ok(BoundedPictures(pictures));
                    };
                    pictures.push(picture);
                }
                while list.next_element::<IgnoredAny>()?.is_some() {}
                Ok(BoundedPictures(pictures))
            }
        }

        from.deserialize_seq(Reader)
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
        }
        assert!(
            serde_json::from_str::<Option<BoundedLabels>>("null")
                .expect("is read")
                .is_none()
        );
        assert!(serde_json::from_str::<BoundedLabels>(r#"{"a":1}"#).is_err());
    }
}
