//! Texts that are the worst cases of the tokenizer are counted exactly, within a time that a
//! quadratic count would exceed by far.

use std::time::{Duration, Instant};

use anneal_testkit::{Rendered, TestApp, gate_or_nightly, pb, with_longest_deadline};

use crate::hostile::{case, catalogue::assert_no_harm};

/// Bytes of a text that repeats one of [`RUNS`], at night: nearly the limit of a request.
const RUN_BYTES: usize = 4 * 1024 * 1024 - 1024;
/// [`RUN_BYTES`] in the gate (`cargo xtask ci`).
const RUN_BYTES_IN_GATE: usize = 1024 * 1024;
/// Bytes of the streamed text: the limit of a message.
const STREAMED_BYTES: usize = 64 * 1024 * 1024;
/// Time limit to count a text of [`RUN_BYTES`] bytes. A quadratic count takes hours. The slowest
/// of these texts takes seconds in a debug build on a loaded machine.
const COUNTED_WITHIN: Duration = Duration::from_mins(1);

/// Units whose repetitions are slow to tokenize, by name.
const RUNS: [(&str, &str); 14] = [
    ("hyphens, the slowest of these", "-"),
    ("equals signs", "="),
    ("one letter", "a"),
    ("blanks", " "),
    ("line feeds", "\n"),
    ("carriage returns with line feeds", "\r\n"),
    ("tabs", "\t"),
    ("combining marks", "\u{35f}"),
    ("zero-width joiners", "\u{200d}"),
    ("syllables without a blank", "한"),
    ("digits", "7"),
    ("NUL", "\0"),
    ("a blank and 16 equals signs", " ================"),
    ("characters of four bytes", "🧊"),
];

#[tokio::test]
async fn the_tokenizers_worst_cases_are_counted_within_a_minute_and_fit_contexts() {
    let panics = case::record_panics();
    let app = TestApp::start().await;
    for (name, unit) in RUNS {
        let text = unit.repeat(gate_or_nightly(RUN_BYTES_IN_GATE, RUN_BYTES) / unit.len());
        let conversation = app.conversation().await;
        conversation.append(&text).await;
        let began = Instant::now();
        app.run_jobs_until_idle().await;
        let took = began.elapsed();
        let stored = conversation.messages().await.pop().expect("is there");
        let tokens = stored.tokens.expect("has one");
        println!("{name}: {} tokens, counted in {took:?}", tokens.tokens);
        assert!(!tokens.estimated && tokens.tokens > 0, "{name}: {tokens:?}");
        assert!(took < COUNTED_WITHIN, "{name}: {took:?}");
        assert!(
            stored.parts == anneal_testkit::user(&text).parts,
            "{name} is stored unchanged"
        );
        let ask = pb::BuildContextRequest {
            format: pb::Format::OpenaiChat.into(),
            ..Default::default()
        };
        let built = conversation
            .build(pb::BuildContextRequest {
                budget_tokens: Some(1_000),
                ..ask
            })
            .await
            .expect("builds");
        assert!(built.0.total_tokens <= 1_000, "{name}");
        assert!(
            Rendered::read(&built, pb::Format::OpenaiChat)
                .expect("is JSON")
                .refusals()
                .is_empty(),
            "{name}"
        );
        let ask = pb::DeleteConversationRequest {
            conversation_id: conversation.id.clone(),
            ..Default::default()
        };
        app.conversations()
            .delete_conversation(ask)
            .await
            .expect("deletes");
    }
    app.conversation().await.turns(1).await;
    assert_no_harm(&app, &panics).await;
}

#[tokio::test]
async fn a_streamed_message_of_64_mib_without_a_blank_is_counted_and_read_back() {
    let panics = case::record_panics();
    let app = TestApp::start().await;
    let conversation = app.conversation().await;
    let text = "x-".repeat(STREAMED_BYTES / 2);
    let began = Instant::now();
    conversation.stream(pb::Role::User, &text).await;
    let stored_in = began.elapsed();
    app.run_jobs_until_idle().await;
    println!(
        "stored in {stored_in:?}, counted in {:?}",
        began.elapsed().saturating_sub(stored_in)
    );
    for offset in [0, STREAMED_BYTES as i64 / 2, STREAMED_BYTES as i64 - 4] {
        let range = Some(pb::ByteRange { offset, length: 4 });
        let ask = pb::GetMessageRequest {
            conversation_id: conversation.id.clone(),
            message_id: 1,
            range,
            ..Default::default()
        };
        let read = app
            .messages()
            .get_message(with_longest_deadline(ask))
            .await
            .expect("reads")
            .into_inner();
        assert_eq!(read.text, "x-x-", "at {offset}");
    }
    let tokens = conversation
        .conversation()
        .await
        .token_total
        .expect("has one");
    assert!(
        tokens.estimated_messages == 0 && tokens.tokens > 0,
        "{tokens:?}"
    );
    let ask = pb::DeleteConversationRequest {
        conversation_id: conversation.id,
        ..Default::default()
    };
    app.conversations()
        .delete_conversation(ask)
        .await
        .expect("deletes");
    app.conversation().await.turns(1).await;
    assert_no_harm(&app, &panics).await;
}
