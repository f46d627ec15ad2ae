//! The values of a JSON body. A body that is parsed to [`Value`]s may take many times its size:
//! `{"":0}` has seven bytes, and takes some 700. So the values are counted before a body is parsed,
//! and their memory is reserved.

use std::borrow::Borrow;

use serde_json::Value;

use super::errors::ApiError;
use crate::{failure::Failure, http::caller::HttpCaller, limits::cpu_pool, traffic::RequestMemory};

/// Most values of a body. Measured as [`count`] counts them, a value takes at most 171 bytes on
/// average (an object with many short keys and texts), 141 in nested lists, and 80 in objects with
/// one entry. So a body takes at most some 45 MB, of which [`reserve`] reserves three quarters.
const VALUES: usize = 256 * 1024;
/// Values that an object counts for by itself: its first entry takes a leaf of some 630 bytes.
const VALUES_PER_OBJECT: usize = 8;

/// Reserves memory for the values of a body that is parsed next. Fails if they are too many.
pub(in crate::http::openai) fn reserve(
    json: &[u8],
    memory: Option<&RequestMemory>,
) -> Result<(), ApiError> {
    let values = count(json);
    if values > VALUES {
        let message = format!(
            "Invalid body: too many values. Expected at most {VALUES} values in objects and \
             arrays, where the first of an object counts {VALUES_PER_OBJECT}, but got {values}."
        );
        return Err(ApiError::invalid("body", Some("invalid_value"), message));
    }
    if let Some(memory) = memory {
        memory.reserve_entries(values)?;
    }
    Ok(())
}

/// Counts the values in objects and arrays. The text need not be JSON: what a parser reads of it
/// before it fails is counted.
fn count(json: &[u8]) -> usize {
    let mut values = 0;
    let mut bytes = json.iter();
    while let Some(byte) = bytes.next() {
        match byte {
            b'"' => skip_string(&mut bytes),
            b'{' => values += VALUES_PER_OBJECT,
            b'[' | b',' => values += 1,
            _ => {}
        }
    }
    values
}

/// Skips the rest of a string and its closing quote.
fn skip_string<'b>(bytes: &mut impl Iterator<Item = &'b u8>) {
    while let Some(byte) = bytes.next() {
        match byte {
            b'\\' => drop(bytes.next()),
            b'"' => return,
            _ => {}
        }
    }
}

/// Runs work on a value: on the CPU pool if it is long, else on this thread.
pub(in crate::http::openai) async fn run_on<V, T>(
    caller: &HttpCaller,
    value: V,
    work: impl FnOnce(V) -> T + Send + 'static,
) -> Result<T, Failure>
where
    V: Borrow<Value> + Send + 'static,
    T: Send + 'static,
{
    let is_long = is_long(value.borrow());
    let cpu = &caller.services.state.cpu;
    cpu.run_if(is_long, caller.caller.tenant(), move || work(value))
        .await
}

/// The parts of a value that the scan has seen.
#[derive(Default)]
struct Seen {
    bytes: usize,
    values: usize,
}

/// Whether work on this value is long. Looks at no more of the value than short work has.
fn is_long(value: &Value) -> bool {
    fn add(value: &Value, seen: &mut Seen) -> bool {
        seen.values += 1;
        if let Value::String(text) = value {
            seen.bytes += text.len();
        }
        if cpu_pool::is_long(seen.bytes, seen.values) {
            return true;
        }
        match value {
            Value::Array(entries) => entries.iter().any(|entry| add(entry, seen)),
            Value::Object(entries) => entries.iter().any(|(key, entry)| {
                seen.bytes += key.len();
                add(entry, seen)
            }),
            _ => false,
        }
    }
    add(value, &mut Seen::default())
}

#[cfg(test)]
mod tests {
    use anneal_core::limits::REQUEST_BYTES;
    use serde_json::json;

    use super::*;

    /// As many of these entries as the largest body holds, between these brackets.
    fn largest((open, close): (&str, &str), entry: impl Fn(usize) -> String) -> String {
        let mut body = open.to_owned();
        for n in 0.. {
            let entry = entry(n);
            if body.len() + entry.len() + close.len() + 1 > REQUEST_BYTES {
                break;
            }
            if n > 0 {
                body.push(',');
            }
            body.push_str(&entry);
        }
        body + close
    }

    fn refusal(body: &str) -> Option<(u16, Value, Value)> {
        let error = reserve(body.as_bytes(), None).err()?;
        let object = error.object();
        let (param, code) = (object["param"].clone(), object["code"].clone());
        Some((error.status(), param, code))
    }

    #[test]
    fn values_are_counted_outside_of_strings() {
        for (body, values) in [
            ("{}", 8),
            (r#"{"a":1}"#, 8),
            (r#"{"a":1,"b":[2,3]}"#, 11),
            (r#"{"a":"{[,"}"#, 8),
            (r#"{"a":"\"{[,","b":"\\"}"#, 9),
            (r#"{"a\\":[[],[]]}"#, 12),
            (r#"{"a":"\"#, 8),
            (r#"{"a":"{"#, 8),
            ("", 0),
        ] {
            assert_eq!(count(body.as_bytes()), values, "{body}");
        }
    }

    #[test]
    fn the_bodies_that_take_most_memory_are_refused() {
        let list = (r#"{"input":["#, "]}");
        let nested = format!("{}{}", "[".repeat(100), "]".repeat(100));
        let shapes: [(&str, String); 7] = [
            ("objects", largest(list, |_| r#"{"":0}"#.to_owned())),
            ("empty objects", largest(list, |_| "{}".to_owned())),
            ("lists", largest(list, |_| "[0]".to_owned())),
            ("numbers", largest(list, |_| "0".to_owned())),
            ("nested lists", largest(list, |_| nested.clone())),
            ("keys", largest(("{", "}"), |n| format!(r#""{n:x}":0"#))),
            (
                "objects of twelve keys",
                largest(list, |_| {
                    let pairs: Vec<String> = (0..12).map(|n| format!(r#""{n:x}":0"#)).collect();
                    format!("{{{}}}", pairs.join(","))
                }),
            ),
        ];
        for (shape, body) in shapes {
            assert_eq!(
                refusal(&body),
                Some((400, json!("body"), json!("invalid_value"))),
                "{shape}"
            );
        }
    }

    #[test]
    fn the_limit_itself_is_accepted() {
        let body = |values: usize| format!(r#"{{"input":[{}0]}}"#, "0,".repeat(values - 9));
        assert_eq!(count(body(VALUES).as_bytes()), VALUES);
        assert_eq!(refusal(&body(VALUES)), None);
        assert!(refusal(&body(VALUES + 1)).is_some());
    }

    #[test]
    fn thousands_of_messages_are_accepted() {
        let item = json!({"type": "message", "role": "user", "content": [
            {"type": "input_text", "text": "Look at [this], {that}, and \"those\"."},
        ]});
        let body = json!({"model": "m", "input": vec![item; 10_000]});
        assert_eq!(refusal(&body.to_string()), None);
        let text = json!({"model": "m", "input": "{[,\"\\".repeat(REQUEST_BYTES / 8)});
        assert_eq!(refusal(&text.to_string()), None);
    }

    #[test]
    fn work_is_long_on_large_texts_and_on_many_values() {
        assert!(!is_long(&json!({"input": "a", "tools": [{}, {}]})));
        assert!(is_long(&json!({"input": ["a".repeat(64 * 1024)]})));
        assert!(is_long(&json!({"input": vec!["a".repeat(1024); 64]})));
        assert!(is_long(&json!({"input": [{"content": vec![0; 1_000]}]})));
        let (long, short) = ("k".repeat(64 * 1024), "k");
        assert!(is_long(&json!({long: 0})) && !is_long(&json!({short: 0})));
    }
}
