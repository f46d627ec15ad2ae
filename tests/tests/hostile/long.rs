//! The tokenizer's worst cases: counted exactly, in time that grows with the text and no faster.

use std::time::{Duration, Instant};

use anneal_tests::{House, Rendered, patient, pb};

use crate::{case, catalogue::is_unharmed};

/// Bytes of each text that one call takes: nearly all that it can.
const UNARY: usize = 4 * 1024 * 1024 - 1024;
/// Bytes of the text that is streamed: as many as one message may have.
const STREAMED: usize = 64 * 1024 * 1024;
/// Longest that a text of [`UNARY`] bytes may take to be counted. A count that grows with the square of such a text takes
/// hours; the slowest of these takes seconds in a build for tests, on a machine that does other things too.
const COUNTED_WITHIN: Duration = Duration::from_mins(1);

/// Runs that vocabularies split badly, by name.
const RUNS: [(&str, &str); 14] = [
    ("hyphens, the slowest there is", "-"),
    ("equals signs", "="),
    ("one letter", "a"),
    ("blanks", " "),
    ("ends of lines", "\n"),
    ("both ends of lines", "\r\n"),
    ("tabs", "\t"),
    ("combining marks", "\u{35f}"),
    ("zero-width joiners", "\u{200d}"),
    ("syllables without a blank", "한"),
    ("digits", "7"),
    ("NUL", "\0"),
    ("a token cut short", " ================"),
    ("four bytes each", "🧊"),
];

#[tokio::test]
async fn the_tokenizers_worst_cases_are_counted_in_bounded_time_and_in_contexts() {
    let panics = case::panics();
    let house = House::start().await;
    for (name, unit) in RUNS {
        let said = unit.repeat(UNARY / unit.len());
        let talk = house.conversation().await;
        talk.append(&said).await;
        let began = Instant::now();
        house.run_jobs_until_idle().await;
        let took = began.elapsed();
        let stored = talk.messages().await.pop().expect("is there");
        let tokens = stored.tokens.expect("has one");
        println!("{name}: {} tokens, counted in {took:?}", tokens.tokens);
        assert!(!tokens.estimated && tokens.tokens > 0, "{name}: {tokens:?}");
        assert!(took < COUNTED_WITHIN, "{name}: {took:?}");
        assert!(stored.parts == anneal_tests::user(&said).parts, "{name} comes back");
        let ask = pb::BuildContextRequest { format: pb::Format::OpenaiChat.into(), ..Default::default() };
        let built = talk.build(pb::BuildContextRequest { budget_tokens: Some(1_000), ..ask }).await.expect("builds");
        assert!(built.0.total_tokens <= 1_000, "{name}");
        assert!(Rendered::read(&built, pb::Format::OpenaiChat).expect("is JSON").refusals().is_empty(), "{name}");
        let ask = pb::DeleteConversationRequest { conversation_id: talk.id.clone(), ..Default::default() };
        house.conversations().delete_conversation(ask).await.expect("deletes");
    }
    house.conversation().await.turns(1).await;
    is_unharmed(&house, &panics).await;
}

#[tokio::test]
async fn a_streamed_message_of_64_mib_without_a_blank_is_counted_and_read_back() {
    let panics = case::panics();
    let house = House::start().await;
    let talk = house.conversation().await;
    let said = "x-".repeat(STREAMED / 2);
    let began = Instant::now();
    talk.stream(pb::Role::User, &said).await;
    let stored_in = began.elapsed();
    house.run_jobs_until_idle().await;
    println!("stored in {stored_in:?}, counted in {:?}", began.elapsed().saturating_sub(stored_in));
    for offset in [0, STREAMED as i64 / 2, STREAMED as i64 - 4] {
        let range = Some(pb::ByteRange { offset, length: 4 });
        let ask = pb::GetMessageRequest { conversation_id: talk.id.clone(), message_id: 1, range };
        let read = house.messages().get_message(patient(ask)).await.expect("reads").into_inner();
        assert_eq!(read.text, "x-x-", "at {offset}");
    }
    let tokens = talk.conversation().await.token_total.expect("has one");
    assert!(tokens.estimated_messages == 0 && tokens.tokens > 0, "{tokens:?}");
    let ask = pb::DeleteConversationRequest { conversation_id: talk.id, ..Default::default() };
    house.conversations().delete_conversation(ask).await.expect("deletes");
    house.conversation().await.turns(1).await;
    is_unharmed(&house, &panics).await;
}
