//! What comes back from outside to say where somebody stood: page tokens, positions of watches, ids of events. What is read
//! is what was given for the same list, conversation and tenant, whoever has written it; everything else is refused.

use anneal_server::fuzzing::{PageTokens, Positions, Refusal, event_id};
use arbitrary::{Arbitrary as _, Unstructured};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;
use uuid::Uuid;

const TENANT: Uuid = Uuid::from_u128(1);
const CONVERSATION: Uuid = Uuid::from_u128(0x0193_f9c0_0000_7000_8000_0000_0000_0001);

fn list(name: &str) -> PageTokens {
    PageTokens::of(TENANT, &[name, "0193f9c0-0000-7000-8000-000000000001"])
}

/// A token is read as the place that it is given for, and by no other list.
fn page<T: Serialize + DeserializeOwned + PartialEq + std::fmt::Debug>(token: &str) {
    let here = list("messages");
    match here.place::<T>(token) {
        Ok(None) => assert!(token.is_empty(), "{token} is read as the first page"),
        Ok(Some(place)) => {
            let again = here.place::<T>(&here.token(&place)).expect("what was given is read");
            assert_eq!(again.as_ref(), Some(&place), "{token}");
            let of = |tenant, fields: &[&str]| PageTokens::of(tenant, fields);
            let foreign = of(Uuid::from_u128(2), &["messages", "0193f9c0-0000-7000-8000-000000000001"]);
            for other in [list("jobs"), of(TENANT, &["messages"]), of(TENANT, &["messages", "", ""]), foreign] {
                assert!(other.place::<T>(token).is_err(), "{token} is taken by another list");
            }
        }
        Err(refusal) => is_the_refusal(&refusal, "page_token"),
    }
}

fn is_the_refusal(refusal: &Refusal, field: &str) {
    assert_eq!((refusal.reason.as_str(), refusal.fields.as_slice()), ("INVALID_FIELD", &[field.to_owned()][..]));
}

/// The token of any JSON, sealed for this list, is read as that JSON or not at all.
fn forged_page(json: &[u8]) {
    let Ok(place) = serde_json::from_slice::<Value>(json) else { return };
    let here = list("messages");
    let token = here.token(&place);
    if let Ok(Some((last, first))) = here.place::<(i64, i64)>(&token) {
        assert_eq!(place, serde_json::json!([last, first]));
    }
    if let Ok(Some(last)) = here.place::<i64>(&token) {
        assert_eq!(place, Value::from(last));
    }
    page::<(i16, i16, Uuid)>(&token);
    page::<(i64, Uuid)>(&token);
}

/// A position is told again as it was read, and is good for that conversation of that tenant alone.
fn position(text: &str, stands: [i64; 3]) {
    let at = |tenant, conversation, created| Positions::of(tenant, conversation, created, stands);
    let here = at(TENANT, CONVERSATION, 7);
    match here.read(text) {
        Ok(told) => {
            assert_eq!(here.read(&told), Ok(told.clone()), "{text}");
            assert!(text.len() <= 128 && told.len() <= text.len(), "{text} is told as {told}");
            let other = Uuid::from_u128(2);
            for elsewhere in [at(other, CONVERSATION, 7), at(TENANT, other, 7), at(TENANT, CONVERSATION, 8)] {
                assert!(elsewhere.read(text).is_err(), "{text} is taken elsewhere");
            }
        }
        Err(refusal) => is_the_refusal(&refusal, "position"),
    }
}

fn checked(from: &mut Unstructured<'_>) -> arbitrary::Result<()> {
    let kind = from.int_in_range(0..=4)?;
    match kind {
        0 => {
            let token = <&str>::arbitrary_take_rest(std::mem::replace(from, Unstructured::new(&[])))?;
            page::<i64>(token);
            page::<(i64, i64)>(token);
            page::<(i64, Uuid)>(token);
            page::<(i16, i16, Uuid)>(token);
        }
        1 => forged_page(from.bytes(from.len())?),
        2 | 3 => {
            let mut stands = <[i64; 3]>::arbitrary(from)?.map(|number| number & i64::MAX);
            stands[1] = stands[1].min(stands[0]);
            let here = Positions::of(TENANT, CONVERSATION, 7, stands);
            assert!(here.read(&here.now()).is_ok(), "what was given is not read");
            let rest = from.bytes(from.len())?;
            if kind == 2 {
                position(&here.sealed(rest), stands);
            } else {
                position(&String::from_utf8_lossy(rest), stands);
            }
        }
        _ => {
            if let Some(told) = event_id(from.bytes(from.len())?) {
                assert_eq!(event_id(told.as_bytes()).as_deref(), Some(told.as_str()));
            }
        }
    }
    Ok(())
}

/// The first byte says what kind it is; the rest is its text, or what is written into one that is sealed.
pub fn check(data: &[u8]) {
    // Too few bytes for a case are no case.
    let _ = checked(&mut Unstructured::new(data));
}
