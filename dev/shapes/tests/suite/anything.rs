//! Properties of the checkers: no JSON makes them panic, and each refusal points to an existing
//! place in the body.

use anneal_shapes::{Refusal, anthropic_messages, gemini_contents, openai_chat};
use proptest::{prelude::*, sample::Index};
use serde_json::{Map, Value};

type Checker = fn(&Value) -> Vec<Refusal>;

/// Words that the checkers look for, so that random bodies get past the first rules.
const WORDS: &str = "messages contents system systemInstruction role content parts type text user assistant model tool tool_calls \
    tool_call_id id function name arguments image_url url file source data tool_use tool_result tool_use_id \
    is_error thinking signature cache_control ephemeral inlineData functionCall functionResponse response \
    thoughtSignature base64 {}";

fn word() -> impl Strategy<Value = String> {
    let words: Vec<_> = WORDS.split(' ').collect();
    prop_oneof![4 => prop::sample::select(words).prop_map(str::to_owned), 1 => ".{0,6}"]
}

fn anything() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i32>().prop_map(Value::from),
        word().prop_map(Value::from),
    ];
    leaf.prop_recursive(6, 60, 5, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            prop::collection::vec((word(), inner), 0..5)
                .prop_map(|fields| Value::from(fields.into_iter().collect::<Map<_, _>>())),
        ]
    })
}

/// Valid bodies, each with its checker.
fn good() -> [(Value, Checker); 3] {
    let read = |text| serde_json::from_str(text).expect("the file is JSON");
    [
        (read(include_str!("good/openai.json")), openai_chat),
        (
            read(include_str!("good/anthropic.json")),
            anthropic_messages,
        ),
        (read(include_str!("good/gemini.json")), gemini_contents),
    ]
}

/// Collects pointers to all values inside a value, including the value itself.
fn collect_places(value: &Value, at: &str, found: &mut Vec<String>) {
    found.push(at.to_owned());
    match value {
        Value::Array(items) => {
            items
                .iter()
                .enumerate()
                .for_each(|(index, item)| collect_places(item, &format!("{at}/{index}"), found));
        }
        Value::Object(fields) => fields.iter().for_each(|(key, field)| {
            let key = key.replace('~', "~0").replace('/', "~1");
            collect_places(field, &format!("{at}/{key}"), found);
        }),
        _ => {}
    }
}

/// Adds a value to the object at one place of a body, under `key`, or to the list there, as its
/// last item. Replaces the value there if it is neither, or if `key` is `None`.
fn put(body: &mut Value, place: Index, key: Option<String>, new: Value) {
    let mut found = Vec::new();
    collect_places(body, "", &mut found);
    let target = body
        .pointer_mut(place.get::<String>(&found))
        .expect("the place was found in the body");
    match (target, key) {
        (Value::Object(fields), Some(key)) => drop(fields.insert(key, new)),
        (Value::Array(items), Some(_)) => items.push(new),
        (target, _) => *target = new,
    }
}

/// Checks that each refusal points to an existing place in the body.
fn check_places(checker: Checker, body: &Value) -> Result<(), TestCaseError> {
    for refusal in checker(body) {
        prop_assert!(
            body.pointer(&refusal.at).is_some(),
            "{refusal} points to a place that does not exist in {body}"
        );
    }
    Ok(())
}

proptest! {
    #[test]
    fn any_json_is_checked_without_panic(body in anything()) {
        for (_, checker) in good() {
            check_places(checker, &body)?;
        }
    }

    #[test]
    fn modified_valid_bodies_are_checked_without_panic(
        changes in prop::collection::vec((any::<Index>(), prop::option::of(word()), anything()), 1..4),
    ) {
        for (mut body, checker) in good() {
            for (place, key, new) in changes.clone() {
                put(&mut body, place, key, new);
            }
            check_places(checker, &body)?;
        }
    }
}
