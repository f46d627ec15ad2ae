//! Helpers that change one place of a body, and one that shortens refusals for comparisons.

use anneal_shapes::Refusal;
use serde_json::Value;

/// The rules and places of refusals, without their texts.
pub(crate) fn rules_and_places(refusals: &[Refusal]) -> Vec<(&'static str, &str)> {
    refusals
        .iter()
        .map(|refusal| (refusal.rule, refusal.at.as_str()))
        .collect()
}

/// The body with the value at a JSON pointer replaced; the pointer's last key may be new.
pub(crate) fn set(mut body: Value, at: &str, value: Value) -> Value {
    let (holder, key) = at.rsplit_once('/').expect("a pointer has a slash");
    match body.pointer_mut(holder).expect("the holder is in the body") {
        Value::Array(items) => items[key.parse::<usize>().expect("an index")] = value,
        holder => holder[key] = value,
    }
    body
}

/// The body without the key or item at a JSON pointer.
pub(crate) fn without(mut body: Value, at: &str) -> Value {
    let (holder, key) = at.rsplit_once('/').expect("a pointer has a slash");
    match body.pointer_mut(holder).expect("the holder is in the body") {
        Value::Array(items) => drop(items.remove(key.parse().expect("an index"))),
        holder => drop(
            holder
                .as_object_mut()
                .expect("an object")
                .remove(key)
                .expect("the key is there"),
        ),
    }
    body
}

/// The body with an item inserted before the one at a JSON pointer, or at the list's end.
pub(crate) fn insert(mut body: Value, at: &str, value: Value) -> Value {
    let (holder, key) = at.rsplit_once('/').expect("a pointer has a slash");
    let items = body
        .pointer_mut(holder)
        .and_then(Value::as_array_mut)
        .expect("a list");
    items.insert(key.parse().expect("an index"), value);
    body
}
