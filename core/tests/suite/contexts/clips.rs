//! Clipped JSON is valid JSON, fits its limit, and says which bytes were left out.

use anneal_core::tokens::{Tokens, clip_json};
use proptest::{collection::vec, prelude::*, sample::select};
use serde_json::{Map, Value};

use super::checks::ENCODING;

fn value() -> impl Strategy<Value = Value> {
    let text = (
        select(vec!["a", "海", "\u{1f600}", "\"\\", "\n\u{1}", "[{,"]),
        0..400_usize,
    )
        .prop_map(|(text, n)| text.repeat(n));
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<i64>().prop_map(Value::from),
        text.clone().prop_map(Value::from),
    ];
    leaf.prop_recursive(16, 200, 40, move |inner| {
        prop_oneof![
            vec(inner.clone(), 0..40).prop_map(Value::Array),
            vec((text.clone(), inner), 0..20)
                .prop_map(|entries| Value::Object(entries.into_iter().collect::<Map<_, _>>())),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn clipped_json_is_json_within_its_limit(value in value(), pretty in any::<bool>(), limit in 8..600_u64) {
        let text = if pretty { format!("{value:#}") } else { value.to_string() };
        let Some(clip) = clip_json(ENCODING, &text, Tokens::new(limit), |range| format!("[{range:?} left out]")) else { return Ok(()) };
        prop_assert!(clip.tokens <= Tokens::new(limit));
        prop_assert_eq!(clip.tokens, ENCODING.counter().count(&clip.text));
        let read: Value = serde_json::from_str(&clip.text).map_err(|e| TestCaseError::fail(format!("{e}: {}", clip.text)))?;
        prop_assert_eq!(read.is_object(), value.is_object());
        prop_assert!(clip.omitted.windows(2).all(|pair| pair[0].end <= pair[1].start), "{:?}", clip.omitted);
        for range in &clip.omitted {
            prop_assert!(!range.is_empty() && text.get(range.clone()).is_some(), "{range:?}");
            let mark = format!("[{range:?} left out]");
            prop_assert_eq!(clip.text.matches(&mark).count(), 1);
        }
        if clip.omitted.is_empty() {
            prop_assert_eq!(read, value);
        }
    }
}

#[test]
fn escapes_of_a_long_string_are_never_cut() {
    let text = format!("\"{}\"", "\\ud83d\\ude00\\n\\\\".repeat(500));
    for limit in 30..120 {
        let clip = clip_json(ENCODING, &text, Tokens::new(limit), |range| {
            format!("[{} bytes left out]", range.len())
        });
        let clip = clip.expect("the least detailed form fits");
        let read: String =
            serde_json::from_str(&clip.text).expect("no lone surrogate, no broken escape");
        assert!(
            read.starts_with('\u{1f600}') && read.ends_with('\\'),
            "{read}"
        );
    }
}

#[test]
fn a_limit_below_the_least_detailed_form_gives_nothing() {
    let text = format!("[{}]", vec!["[1,2,3]"; 1_000].join(","));
    assert_eq!(
        clip_json(ENCODING, &text, Tokens::new(3), |_| "left out".into()),
        None
    );
}
