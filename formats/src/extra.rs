//! The object `anneal` beside a format's own fields: what they cannot say of a message.

use std::collections::BTreeMap;

use anneal_core::message::{Message, Part, Role};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::json::{Bad, Fields};

/// The name of the object.
pub(crate) const KEY: &str = "anneal";
/// In a part that is another one with changes: where that one stands.
const AT: &str = "at";

/// What the format's own fields do not say of a message. Where it stands, the message's metadata are these alone.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Extra {
    /// How many of the records that follow belong to the same message.
    #[serde(skip_serializing_if = "is_zero")]
    pub(crate) more: usize,
    /// Who speaks, where the format would say another.
    #[serde(skip_serializing_if = "Option::is_none")]
    role: Option<Role>,
    /// The parts, where they are not those of the format: each the place of one of them, from 0 on; such a place with
    /// what differs; or a part in full.
    #[serde(skip_serializing_if = "Option::is_none")]
    parts: Option<Vec<Value>>,
    /// The message's metadata.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    metadata: BTreeMap<String, String>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it with a reference")]
const fn is_zero(n: &usize) -> bool {
    *n == 0
}

impl Extra {
    /// The one of a record; None when it has none.
    pub(crate) fn of(record: &Fields) -> Result<Option<Self>, Bad> {
        let extra = record.raw(KEY).filter(|raw| raw.starts_with('{')).map(serde_json::from_str);
        extra.transpose().map_err(|_| Bad::new("its `anneal` cannot be read"))
    }

    /// What must stand beside `native`, which is what the format says, so that `message` comes back; None when nothing.
    pub(crate) fn between(native: &Message, message: &Message, more: usize) -> Option<Self> {
        let differs = native != message || more > 0;
        differs.then(|| Self {
            more,
            role: (native.role != message.role).then_some(message.role),
            parts: (native.parts != message.parts).then(|| parts_between(&native.parts, &message.parts)),
            metadata: message.metadata.clone(),
        })
    }

    /// The message, from what the format says.
    pub(crate) fn apply(self, native: Message) -> Result<Message, Bad> {
        let parts = match self.parts {
            None => native.parts,
            Some(parts) => {
                let mut natives: Vec<Option<Part>> = native.parts.into_iter().map(Some).collect();
                parts.into_iter().map(|said| part(said, &mut natives)).collect::<Result<_, _>>()?
            }
        };
        Ok(Message { role: self.role.unwrap_or(native.role), parts, metadata: self.metadata })
    }

    /// What the format says, with the message's own labels: where parts are missing that `apply` counts on.
    pub(crate) fn label(self, native: Message) -> Message {
        Message { metadata: self.metadata, ..native }
    }
}

/// What several records of one message say together; one empty text when they say nothing.
pub(crate) fn joined(natives: Vec<Message>) -> Message {
    let mut natives = natives.into_iter();
    let first = natives.next();
    let mut whole = first.unwrap_or(Message { role: Role::User, parts: Vec::new(), metadata: BTreeMap::new() });
    whole.parts.extend(natives.flat_map(|native| native.parts));
    if whole.parts.is_empty() {
        whole.parts.push(Part::Text { text: String::new() });
    }
    whole
}

/// The records with the object `anneal` in the first, when one is needed or `forced`; it says that `more` of them follow.
pub(crate) fn with_extra(
    mut records: Vec<String>,
    more: usize,
    native: &Message,
    message: &Message,
    forced: Forced,
) -> Vec<String> {
    let forced = || {
        let metadata = message.metadata.clone();
        (forced == Forced::Yes).then(|| Extra { metadata, ..Default::default() })
    };
    if let Some(extra) = Extra::between(native, message, more).or_else(forced) {
        insert(&mut records[0], &serde_json::to_string(&extra).expect("texts and numbers are always JSON"));
    }
    records
}

/// Whether a record needs its `anneal` although the format says everything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Forced {
    /// The format would read it as something else.
    Yes,
    /// It does not.
    No,
}

/// Puts `anneal` into an object.
pub(crate) fn insert(object: &mut String, extra: &str) {
    object.pop();
    let comma = if object.ends_with('{') { "" } else { "," };
    object.extend([comma, "\"", KEY, "\":", extra, "}"]);
}

fn parts_between(natives: &[Part], parts: &[Part]) -> Vec<Value> {
    let mut free: Vec<bool> = vec![true; natives.len()];
    let mut take = |fits: &dyn Fn(&Part) -> bool| {
        let at = natives.iter().enumerate().position(|(at, native)| free[at] && fits(native))?;
        free[at] = false;
        Some(at)
    };
    let same: Vec<Option<usize>> = parts.iter().map(|part| take(&|native| native == part)).collect();
    let mut said = Vec::new();
    for (part, same) in parts.iter().zip(same) {
        let kind = std::mem::discriminant(part);
        let mut alike = || take(&|native| std::mem::discriminant(native) == kind);
        said.push(match same {
            Some(at) => Value::from(at),
            None => alike().map_or_else(|| Value::Object(fields(part)), |at| changed(at, &natives[at], part)),
        });
    }
    said
}

/// A part as an object of its fields.
fn fields(part: &Part) -> Map<String, Value> {
    match serde_json::to_value(part) {
        Ok(Value::Object(fields)) => fields,
        _ => unreachable!("a part is an object of texts, numbers and lists"),
    }
}

/// The part as the one at this place, with what differs.
fn changed(at: usize, native: &Part, part: &Part) -> Value {
    let (native, mut said) = (fields(native), fields(part));
    let gone = native.keys().filter(|key| !said.contains_key(*key)).map(|key| (key.clone(), Value::Null));
    let gone: Vec<(String, Value)> = gone.collect();
    said.retain(|key, value| native.get(key) != Some(value));
    said.extend(gone);
    said.insert(AT.into(), at.into());
    Value::Object(said)
}

/// A part as it is said: a place, a place with changes, or in full. No place is used twice.
fn part(said: Value, natives: &mut [Option<Part>]) -> Result<Part, Bad> {
    let bad = || Bad::new("a part in its `anneal` cannot be read");
    let mut at = |at: &Value| {
        let at = at.as_u64().and_then(|at| usize::try_from(at).ok()).ok_or_else(bad)?;
        natives.get_mut(at).and_then(Option::take).ok_or_else(bad)
    };
    let whole = match said {
        Value::Object(mut said) => match said.remove(AT) {
            None => Value::Object(said),
            Some(place) => {
                let mut whole = fields(&at(&place)?);
                for (key, value) in said {
                    if value.is_null() {
                        whole.remove(&key);
                    } else {
                        whole.insert(key, value);
                    }
                }
                Value::Object(whole)
            }
        },
        place => return at(&place),
    };
    serde_json::from_value(whole).map_err(|_| bad())
}
