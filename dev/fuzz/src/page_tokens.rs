//! Fuzzes the position values that clients send back: page tokens, positions of watches, ids of
//! events. A value is accepted only if it is equivalent to one that was issued for the same list,
//! conversation and tenant; everything else is refused.

use anneal_server::fuzzing::{PageTokens, Positions, Refusal, event_id};
use arbitrary::{Arbitrary as _, Unstructured};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;
use uuid::Uuid;

/// The time at which the conversation was created, in microseconds.
const CREATED_US: i64 = 7;
const TENANT: Uuid = Uuid::from_u128(1);
const CONVERSATION: Uuid = Uuid::from_u128(0x0193_f9c0_0000_7000_8000_0000_0000_0001);

fn list(name: &str) -> PageTokens {
    PageTokens::of(TENANT, &[name, "0193f9c0-0000-7000-8000-000000000001"])
}

/// Checks that an accepted token is equivalent to the one that is issued for its position, and that
/// no other list accepts it. A refusal must name the field.
fn check_page_token<T: Serialize + DeserializeOwned + PartialEq + std::fmt::Debug>(token: &str) {
    let here = list("messages");
    match here.position::<T>(token) {
        Ok(None) => assert!(token.is_empty(), "{token} is read as the first page"),
        Ok(Some(position)) => {
            let reread = here
                .position::<T>(&here.token(&position))
                .expect("an issued value is accepted");
            assert_eq!(reread.as_ref(), Some(&position), "{token}");
            let of = |tenant, fields: &[&str]| PageTokens::of(tenant, fields);
            let of_other_tenant = of(
                Uuid::from_u128(2),
                &["messages", "0193f9c0-0000-7000-8000-000000000001"],
            );
            for other in [
                list("jobs"),
                of(TENANT, &["messages"]),
                of(TENANT, &["messages", "", ""]),
                of_other_tenant,
            ] {
                assert!(
                    other.position::<T>(token).is_err(),
                    "another list accepts {token}"
                );
            }
        }
        Err(refusal) => assert_refusal(&refusal, "page_token"),
    }
}

fn assert_refusal(refusal: &Refusal, field: &str) {
    assert_eq!(
        (refusal.reason.as_str(), refusal.fields.as_slice()),
        ("INVALID_FIELD", &[field.to_owned()][..])
    );
}

/// Checks that a token of this list with any JSON as its position is decoded to the same JSON or
/// refused.
fn check_forged_page_token(json: &[u8]) {
    let Ok(position) = serde_json::from_slice::<Value>(json) else {
        return;
    };
    let here = list("messages");
    let token = here.token(&position);
    if let Ok(Some((first, second))) = here.position::<(i64, i64)>(&token) {
        assert_eq!(position, serde_json::json!([first, second]));
    }
    if let Ok(Some(number)) = here.position::<i64>(&token) {
        assert_eq!(position, Value::from(number));
    }
    check_page_token::<(i16, i16, Uuid)>(&token);
    check_page_token::<(i64, Uuid)>(&token);
}

/// Checks that the encoding of an accepted position is stable and not longer than the text it was
/// read from, and that the text is accepted only for its own conversation and tenant. `position`
/// has the ids of the conversation's last message, last counted message and last change.
fn check_position(text: &str, position: [i64; 3]) {
    let positions_of = |tenant, conversation, created_us| {
        Positions::of(tenant, conversation, created_us, position)
    };
    let here = positions_of(TENANT, CONVERSATION, CREATED_US);
    match here.read(text) {
        Ok(encoded) => {
            assert_eq!(here.read(&encoded), Ok(encoded.clone()), "{text}");
            // A position names at most five kinds of jobs, so its text has at most 128 characters.
            assert!(
                text.len() <= 128 && encoded.len() <= text.len(),
                "{text} is encoded as {encoded}"
            );
            let other = Uuid::from_u128(2);
            for elsewhere in [
                positions_of(other, CONVERSATION, CREATED_US),
                positions_of(TENANT, other, CREATED_US),
                positions_of(TENANT, CONVERSATION, CREATED_US + 1),
            ] {
                assert!(
                    elsewhere.read(text).is_err(),
                    "{text} is accepted for another tenant or conversation"
                );
            }
        }
        Err(refusal) => assert_refusal(&refusal, "position"),
    }
}

fn check_case(from: &mut Unstructured<'_>) -> arbitrary::Result<()> {
    // 0: the text of a page token, 1: the JSON in one, 2: the payload of a position, 3: the text of
    // a position, 4: an event id.
    let kind = from.int_in_range(0..=4)?;
    match kind {
        0 => {
            let token =
                <&str>::arbitrary_take_rest(std::mem::replace(from, Unstructured::new(&[])))?;
            check_page_token::<i64>(token);
            check_page_token::<(i64, i64)>(token);
            check_page_token::<(i64, Uuid)>(token);
            check_page_token::<(i16, i16, Uuid)>(token);
        }
        1 => check_forged_page_token(from.bytes(from.len())?),
        2 | 3 => {
            // Clears the sign bits, because no id is negative. The last counted message is the last
            // message or one before it.
            let mut position = <[i64; 3]>::arbitrary(from)?.map(|number| number & i64::MAX);
            position[1] = position[1].min(position[0]);
            let here = Positions::of(TENANT, CONVERSATION, CREATED_US, position);
            assert!(
                here.read(&here.now()).is_ok(),
                "an issued position is refused"
            );
            let rest = from.bytes(from.len())?;
            if kind == 2 {
                check_position(&here.sealed(rest), position);
            } else {
                check_position(&String::from_utf8_lossy(rest), position);
            }
        }
        _ => {
            if let Some(encoded) = event_id(from.bytes(from.len())?) {
                assert_eq!(
                    event_id(encoded.as_bytes()).as_deref(),
                    Some(encoded.as_str())
                );
            }
        }
    }
    Ok(())
}

/// The first byte selects the kind of value. The rest is the text of the value, or the bytes that
/// are encoded and sealed as one. Before the rest of a position, 24 bytes give the ids of its
/// conversation.
pub fn check(data: &[u8]) {
    // If there are too few bytes, there is nothing to check.
    let _ = check_case(&mut Unstructured::new(data));
}
