//! Properties of the classification of any answer: it never panics, and only a verdict about the
//! window names numbers of tokens.

use crate::provider_messages::OVERFLOWS;
use anneal_llm::provider_error::{
    Delivery,
    OverflowKind::{Input, InputPlusOutput, OutputTruncated},
    ProviderAnswer, classify,
};
use proptest::prelude::*;
use serde_json::Value;

fn fragment() -> impl Strategy<Value = String> {
    let known = OVERFLOWS
        .iter()
        .map(|(message, ..)| (*message).to_owned())
        .collect::<Vec<_>>();
    prop_oneof![
        any::<String>(),
        "[\\[\\]{}\":,'`()0-9a-z\\\\\n ]{0,40}",
        prop::sample::select(known),
        "\\PC{0,20}"
    ]
}

fn document() -> impl Strategy<Value = Value> {
    let keys = prop::sample::select(vec![
        "error",
        "errors",
        "message",
        "code",
        "type",
        "detail",
        "metadata",
        "raw",
        "choices",
        "delta",
        "content",
        "usage",
        "response",
        "base_resp",
        "status_code",
        "finish_reason",
        "done",
        "prompt_eval_count",
        "n_ctx",
        "xException",
    ]);
    let leaf = prop_oneof![
        fragment().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        Just(Value::Null),
        Just(true.into())
    ];
    leaf.prop_recursive(6, 60, 6, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(keys.clone(), inner.clone(), 0..5).prop_map(|map| map
                .into_iter()
                .map(|(key, value)| (key.to_owned(), value))
                .collect()),
            inner.prop_map(|value| Value::from(value.to_string())),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_bytes_get_a_verdict(status in any::<u16>(), body in prop::collection::vec(any::<u8>(), 0..200), sent_tokens in any::<Option<u64>>(), window_tokens in any::<Option<u64>>()) {
        classify(&ProviderAnswer { status, headers: &[], body: &body, delivery: Delivery::Streamed, sent_tokens, window_tokens });
    }

    #[test]
    fn any_document_or_stream_gets_a_consistent_verdict(
        status in prop::sample::select(vec![0_u16, 200, 204, 302, 400, 413, 429, 500]),
        documents in prop::collection::vec((fragment(), document()), 1..4),
        sent_tokens in any::<Option<u64>>(),
        window_tokens in any::<Option<u64>>(),
    ) {
        let whole = documents[0].1.to_string();
        let events = documents.iter().map(|(name, value)| format!("event: {name}\ndata: {value}\n\n"));
        let stream = events.collect::<Vec<_>>().concat();
        let lines = documents.iter().map(|(_, value)| value.to_string()).collect::<Vec<_>>().join("\n");
        for body in [whole, stream, lines, documents[0].0.clone()] {
            let body = body.as_bytes();
            let found = classify(&ProviderAnswer { status, headers: &[], body, delivery: Delivery::Whole, sent_tokens, window_tokens });
            prop_assert_eq!(found.is_overflow(), matches!(found.kind, Input | InputPlusOutput));
            let about_window = found.is_overflow() || found.kind == OutputTruncated;
            prop_assert!(about_window || (found.limit_tokens, found.prompt_tokens) == (None, None), "{:?}", found);
            prop_assert!(found.limit_tokens != Some(0));
        }
    }
}
