//! The object `anneal` of a message: what the format's own fields cannot express.

use std::collections::BTreeMap;

use anneal_core::message::{Message, Part, Role};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::json::{Fields, Unreadable};

/// The name of the field with this object. The object of a conversation has the same name.
pub(crate) const ANNEAL_KEY: &str = "anneal";
/// The field of a changed part that holds the index of the native part that it changes.
const NATIVE_INDEX: &str = "at";

/// The difference between the native message (what the format's own fields yield) and the stored
/// message. A record with this object has the metadata of the object, not of the native message.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct MessageExtra {
    /// The number of following records that belong to the same message.
    #[serde(skip_serializing_if = "is_zero")]
    pub(crate) more: usize,
    /// The role, if the native role differs.
    #[serde(skip_serializing_if = "Option::is_none")]
    role: Option<Role>,
    /// The parts, if the native parts differ. Each is the index of a native part, an index with
    /// changed fields, or a complete part.
    #[serde(skip_serializing_if = "Option::is_none")]
    parts: Option<Vec<Value>>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    metadata: BTreeMap<String, String>,
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde calls it with a reference"
)]
const fn is_zero(n: &usize) -> bool {
    *n == 0
}

impl MessageExtra {
    /// Parses the object `anneal` of a record; None if the record has none.
    pub(crate) fn of(record: &Fields) -> Result<Option<Self>, Unreadable> {
        let extra = record
            .raw(ANNEAL_KEY)
            .filter(|raw| raw.starts_with('{'))
            .map(serde_json::from_str);
        extra
            .transpose()
            .map_err(|_| Unreadable::new("its `anneal` cannot be read"))
    }

    /// The extra that turns `native` into `message`; None if they are equal and `more` is 0.
    pub(crate) fn difference(native: &Message, message: &Message, more: usize) -> Option<Self> {
        let differs = native != message || more > 0;
        differs.then(|| Self {
            more,
            role: (native.role != message.role).then_some(message.role),
            parts: (native.parts != message.parts)
                .then(|| parts_difference(&native.parts, &message.parts)),
            metadata: message.metadata.clone(),
        })
    }

    /// The stored message, from the native message.
    pub(crate) fn apply(self, native: Message) -> Result<Message, Unreadable> {
        let parts = match self.parts {
            None => native.parts,
            Some(parts) => {
                let mut natives: Vec<Option<Part>> = native.parts.into_iter().map(Some).collect();
                parts
                    .into_iter()
                    .map(|written| restore_part(written, &mut natives))
                    .collect::<Result<_, _>>()?
            }
        };
        Ok(Message {
            role: self.role.unwrap_or(native.role),
            parts,
            metadata: self.metadata,
        })
    }

    /// The native message with the stored metadata. Used if native parts that [`Self::apply`] needs
    /// are missing.
    pub(crate) fn apply_metadata(self, native: Message) -> Message {
        Message {
            metadata: self.metadata,
            ..native
        }
    }
}

/// Merges the native messages of several records into one. If they have no parts, the message is
/// one empty text.
pub(crate) fn merge_messages(natives: Vec<Message>) -> Message {
    let mut natives = natives.into_iter();
    let first = natives.next();
    let mut whole = first.unwrap_or(Message {
        role: Role::User,
        parts: Vec::new(),
        metadata: BTreeMap::new(),
    });
    whole.parts.extend(natives.flat_map(|native| native.parts));
    if whole.parts.is_empty() {
        whole.parts.push(Part::Text {
            text: String::new(),
        });
    }
    whole
}

/// Adds the object `anneal` to the first record, if `more` is not 0, the native message differs, or
/// `extra_object` requires it. `more` is [`MessageExtra::more`]: 0 if the reader itself sees which
/// records belong together.
pub(crate) fn with_extra(
    mut records: Vec<String>,
    more: usize,
    native: &Message,
    message: &Message,
    extra_object: ExtraObject,
) -> Vec<String> {
    let required = || {
        let metadata = message.metadata.clone();
        (extra_object == ExtraObject::Required).then(|| MessageExtra {
            metadata,
            ..Default::default()
        })
    };
    if let Some(extra) = MessageExtra::difference(native, message, more).or_else(required) {
        insert(
            &mut records[0],
            &serde_json::to_string(&extra).expect("texts and numbers are always JSON"),
        );
    }
    records
}

/// Whether a record always gets the object `anneal`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ExtraObject {
    /// Yes: without it, the record would be read as something else.
    Required,
    /// Only if the native message differs.
    IfNeeded,
}

/// Inserts `anneal` into a JSON object.
pub(crate) fn insert(object: &mut String, extra: &str) {
    object.pop();
    let comma = if object.ends_with('{') { "" } else { "," };
    object.extend([comma, "\"", ANNEAL_KEY, "\":", extra, "}"]);
}

/// The parts, each as [`MessageExtra::parts`] describes it. A native part is used for at most one
/// part: for an equal one, or else for one of the same kind.
fn parts_difference(natives: &[Part], parts: &[Part]) -> Vec<Value> {
    // Whether each native part is still unused.
    let mut free: Vec<bool> = vec![true; natives.len()];
    let mut take = |fits: &dyn Fn(&Part) -> bool| {
        let index = natives
            .iter()
            .enumerate()
            .position(|(index, native)| free[index] && fits(native))?;
        free[index] = false;
        Some(index)
    };
    let equal: Vec<Option<usize>> = parts
        .iter()
        .map(|part| take(&|native| native == part))
        .collect();
    let mut written = Vec::new();
    for (part, equal) in parts.iter().zip(equal) {
        let kind = std::mem::discriminant(part);
        let mut take_same_kind = || take(&|native| std::mem::discriminant(native) == kind);
        written.push(match equal {
            Some(index) => Value::from(index),
            None => take_same_kind().map_or_else(
                || Value::Object(fields(part)),
                |index| changed(index, &natives[index], part),
            ),
        });
    }
    written
}

fn fields(part: &Part) -> Map<String, Value> {
    match serde_json::to_value(part) {
        Ok(Value::Object(fields)) => fields,
        _ => unreachable!("a part is an object of texts, numbers and lists"),
    }
}

/// The part as a change of the native part at this index.
fn changed(index: usize, native: &Part, part: &Part) -> Value {
    let (native, mut written) = (fields(native), fields(part));
    let removed = native
        .keys()
        .filter(|key| !written.contains_key(*key))
        .map(|key| (key.clone(), Value::Null));
    let removed: Vec<(String, Value)> = removed.collect();
    written.retain(|key, value| native.get(key) != Some(value));
    written.extend(removed);
    written.insert(NATIVE_INDEX.into(), index.into());
    Value::Object(written)
}

/// Restores a part from its written form: an index, an index with changes, or a complete part. Each
/// index may be used once.
fn restore_part(written: Value, natives: &mut [Option<Part>]) -> Result<Part, Unreadable> {
    let bad = || Unreadable::new("a part in its `anneal` cannot be read");
    let mut take_native = |index: &Value| {
        let index = index
            .as_u64()
            .and_then(|index| usize::try_from(index).ok())
            .ok_or_else(bad)?;
        natives
            .get_mut(index)
            .and_then(Option::take)
            .ok_or_else(bad)
    };
    let whole = match written {
        Value::Object(mut written) => match written.remove(NATIVE_INDEX) {
            None => Value::Object(written),
            Some(index) => {
                let mut whole = fields(&take_native(&index)?);
                for (key, value) in written {
                    if value.is_null() {
                        whole.remove(&key);
                    } else {
                        whole.insert(key, value);
                    }
                }
                Value::Object(whole)
            }
        },
        index => return take_native(&index),
    };
    serde_json::from_value(whole).map_err(|_| bad())
}
