//! A context fits every budget that is not refused as too small, and its manifest lists what was
//! clipped or dropped.

use anneal_testkit::{
    Built, TestApp, TestConversation, assistant, call, pb, prose, result, sentence, status_details,
    user,
};
use pb::{Representation, Role, Segment, part::Part};
use tonic::Code;

/// The system prompt.
const PROMPT: &str = "Answer in one sentence.";
/// The newest user message.
const NEWEST: &str = "The newest question: which team filed report 48?";

/// A JSON tool result of several thousand bytes.
fn json_result(n: usize) -> String {
    let rows: Vec<String> = (0..40)
        .map(|row| format!("{{\"day\": {row}, \"said\": \"{}\"}}", sentence(n + row)))
        .collect();
    format!("{{\"rows\": [{}]}}", rows.join(", "))
}

/// Creates a conversation with a checkpoint, eight turns with tool results (prose and JSON), and
/// the question [`NEWEST`].
async fn conversation_with_checkpoint_and_tools(app: &TestApp) -> TestConversation<'_> {
    let policy = pb::Policy {
        max_message_count: Some(60),
        keep_recent_turns: Some(1),
        ..Default::default()
    };
    let ask = pb::CreateConversationRequest {
        system_prompt: PROMPT.into(),
        policy: Some(policy),
        ..Default::default()
    };
    let conversation = app.conversation_with(ask).await;
    for n in 0..30 {
        conversation
            .turn(&sentence(2 * n), &sentence(2 * n + 1))
            .await;
    }
    app.run_jobs_until_idle().await;
    for n in 0..8 {
        let (a, b) = (format!("a{n}"), format!("b{n}"));
        let messages = vec![
            user(&sentence(n)),
            call(&a, "{}"),
            result(&a, &json_result(n)),
            call(&b, "{}"),
            result(&b, &prose(n, 60)),
            assistant("Found."),
        ];
        conversation.append_all(messages).await;
    }
    conversation.append(NEWEST).await;
    app.run_jobs_until_idle().await;
    assert_eq!(conversation.checkpoints().await.len(), 1);
    conversation
}

fn tool_results(built: &Built) -> impl Iterator<Item = &str> {
    built
        .0
        .messages
        .iter()
        .flat_map(|sent| &sent.parts)
        .filter_map(|part| match part.part.as_ref()? {
            Part::ToolResult(result) => Some(result.text.as_str()),
            _ => None,
        })
}

#[tokio::test]
async fn every_budget_is_kept_with_the_newest_user_message_and_the_system_prompt() {
    let app = TestApp::start().await;
    let conversation = conversation_with_checkpoint_and_tools(&app).await;
    let last = conversation.conversation().await.message_count;
    let whole = conversation.context().await;
    let mut budget = whole.0.total_tokens + 1;
    let (mut largest_refused, mut representations) = (0, Vec::new());
    while budget > 1 {
        match conversation.context_within(budget).await {
            Ok(built) => {
                assert_eq!(
                    largest_refused, 0,
                    "a budget of {budget} is enough, but {largest_refused} was refused"
                );
                assert_within_budget(&built, budget, last);
                representations.extend(
                    built
                        .0
                        .manifest
                        .iter()
                        .map(pb::ManifestEntry::representation),
                );
                if budget >= whole.0.total_tokens {
                    assert_eq!(built, whole, "a context that fits is not changed");
                }
            }
            Err(status) => {
                assert_eq!(status.code(), Code::ResourceExhausted);
                largest_refused = largest_refused.max(budget);
            }
        }
        // The whole context plus one token, the whole context, then 8 % less each time.
        budget = if budget == whole.0.total_tokens + 1 {
            budget - 1
        } else {
            budget * 92 / 100
        };
    }
    assert!(
        largest_refused < 250,
        "a budget of {largest_refused} is enough for prompt, question and a short summary"
    );
    for representation in [
        Representation::Original,
        Representation::Clipped,
        Representation::Dropped,
    ] {
        assert!(
            representations.contains(&representation),
            "no budget needed {representation:?}"
        );
    }
}

/// Asserts that a context keeps its budget and all rules for clipped and dropped content. `last` is
/// the id of the newest message.
fn assert_within_budget(built: &Built, budget: u64, last: i64) {
    assert!(
        built.0.total_tokens <= budget,
        "{} tokens for a budget of {budget}",
        built.0.total_tokens
    );
    assert_eq!(
        built.0.total_tokens,
        built.0.messages.iter().map(|sent| sent.tokens).sum::<u64>()
    );
    built.assert_covers(last);
    built.assert_tools_paired();
    let texts = built.texts_by_role();
    assert_eq!(texts[0], (Role::System, PROMPT.into()), "at {budget}");
    assert!(
        texts
            .iter()
            .any(|(role, text)| *role == Role::User && text.contains(NEWEST)),
        "at {budget}"
    );
    assert_eq!(
        built.tokens_of(Segment::CheckpointSummary) > 0,
        texts[1].1.starts_with("[Summary of the conversation")
    );
    for text in tool_results(built).filter(|text| text.starts_with('{')) {
        serde_json::from_str::<serde_json::Value>(text).expect("clipped JSON is still JSON");
    }
    for entry in built
        .0
        .manifest
        .iter()
        .filter(|entry| entry.representation() == Representation::Clipped)
    {
        assert!(
            !entry.clipped.is_empty() && entry.tokens < entry.original_tokens,
            "{entry:?}"
        );
    }
}

#[tokio::test]
async fn text_removed_by_a_clip_can_be_fetched() {
    let app = TestApp::start().await;
    let conversation = conversation_with_checkpoint_and_tools(&app).await;
    let whole = conversation.context().await;
    let built = conversation
        .context_within(whole.0.total_tokens - 3_000)
        .await
        .expect("fits");
    let clipped: Vec<_> = built
        .0
        .manifest
        .iter()
        .filter(|entry| entry.representation() == Representation::Clipped)
        .collect();
    assert!(!clipped.is_empty());
    for entry in clipped {
        let id = entry.first_message_id;
        let original = whole.texts_by_role()[position_of(&whole, id)].1.clone();
        let shown = built.texts_by_role()[position_of(&built, id)].1.clone();
        let range = entry.clipped[0];
        let (left_out, fetched_range) = conversation.range(id, range.offset, range.length).await;
        assert_eq!(
            (fetched_range.offset, fetched_range.length),
            (range.offset, range.length),
            "cut at whole characters"
        );
        let mark = format!(
            "[{0} bytes left out: bytes {1} to {2} of message {id}]",
            range.length,
            range.offset,
            range.offset + range.length
        );
        assert!(shown.contains(&mark), "{shown}");
        if shown.starts_with('{') {
            serde_json::from_str::<serde_json::Value>(&shown)
                .expect("the clipped text is JSON with the mark among its values");
        } else {
            let around_mark: Vec<&str> = shown.split(&mark).map(str::trim).collect();
            assert!(original.starts_with(around_mark[0]) && original.ends_with(around_mark[1]));
        }
        let removed = range.offset as usize..(range.offset + range.length) as usize;
        assert_eq!(original.get(removed), Some(left_out.as_str()));
    }
}

/// The index of the context's message that has the content of message `id`.
fn position_of(built: &Built, id: i64) -> usize {
    built
        .0
        .messages
        .iter()
        .position(|sent| sent.message_ids.contains(&id))
        .expect("is sent")
}

#[tokio::test]
async fn a_newest_message_that_exceeds_the_budget_is_clipped_in_the_middle() {
    let app = TestApp::start().await;
    let conversation = app.conversation().await;
    conversation.turn("Hello", "Hello!").await;
    let long = format!("START {} END", prose(0, 400));
    conversation.append(&long).await;
    app.run_jobs_until_idle().await;
    for budget in [120, 500, 2_000] {
        let built = conversation.context_within(budget).await.expect("fits");
        assert!(built.0.total_tokens <= budget);
        assert_eq!(built.representation(3).0, Representation::Clipped);
        let (role, text) = built.texts_by_role().pop().expect("a message");
        assert_eq!(role, Role::User);
        assert!(
            text.starts_with("START ") && text.ends_with(" END"),
            "{text}"
        );
        let with_input = conversation.build(pb::BuildContextRequest {
            current_input: vec![user(&long)],
            budget_tokens: Some(budget),
            ..Default::default()
        });
        let built = with_input.await.expect("fits");
        assert!(built.0.total_tokens <= budget && built.text().ends_with(" END"));
        built.assert_covers(3);
    }
}

#[tokio::test]
async fn a_budget_below_the_system_prompt_is_refused_with_the_sizes() {
    let app = TestApp::start().await;
    let prompt = prose(0, 40);
    let ask = pb::CreateConversationRequest {
        system_prompt: prompt,
        ..Default::default()
    };
    let conversation = app.conversation_with(ask).await;
    conversation.append("Hello").await;
    app.run_jobs_until_idle().await;
    let system_tokens = conversation
        .context()
        .await
        .tokens_of(Segment::SystemPrompt);
    let status = conversation
        .context_within(system_tokens - 1)
        .await
        .expect_err("too small");
    let refused = status_details(&status);
    assert_eq!(
        (refused.code, refused.reason.as_str()),
        (Code::ResourceExhausted, "BUDGET_TOO_SMALL")
    );
    assert!(
        status.message().contains(&system_tokens.to_string()),
        "{}",
        status.message()
    );
    assert!(
        status.message().contains(&(system_tokens - 1).to_string()),
        "{}",
        status.message()
    );
    let zero = status_details(&conversation.context_within(0).await.expect_err("no budget"));
    assert_eq!(
        (zero.code, zero.field.as_str()),
        (Code::InvalidArgument, "budget_tokens")
    );
}

/// Creates a conversation of one turn with 62 messages. Its last tool call has no result yet.
async fn conversation_with_long_turn(
    app: &TestApp,
    max_message_count: u32,
) -> TestConversation<'_> {
    let policy = pb::Policy {
        max_message_count: Some(max_message_count),
        ..Default::default()
    };
    let conversation = app.conversation_with_policy(policy).await;
    let exchanges = (0..30).flat_map(|n| {
        let id = format!("c{n}");
        [
            call(&id, "{\"page\": 1}"),
            result(
                &id,
                &if n % 2 == 0 {
                    json_result(n)
                } else {
                    prose(n, 30)
                },
            ),
        ]
    });
    conversation
        .append_all(std::iter::once(user(NEWEST)).chain(exchanges).collect())
        .await;
    conversation.append_all(vec![call("open-1", "{}")]).await;
    app.run_jobs_until_idle().await;
    conversation
}

#[tokio::test]
async fn a_turn_longer_than_the_budget_keeps_its_question_and_no_call_without_its_result() {
    let app = TestApp::start().await;
    let conversation = conversation_with_long_turn(&app, 0).await;
    let whole = conversation.context().await.0.total_tokens;
    for divisor in 1..=40 {
        // 100 tokens are enough for the question.
        let budget = (whole / divisor).max(100);
        let built = conversation.context_within(budget).await.expect("fits");
        assert!(
            built.0.total_tokens <= budget,
            "{} tokens for {budget}",
            built.0.total_tokens
        );
        assert!(
            built
                .texts_by_role()
                .iter()
                .any(|(role, text)| *role == Role::User && text == NEWEST),
            "at {budget}"
        );
        built.assert_tools_paired();
        built.assert_covers(62);
    }
}

#[tokio::test]
async fn a_question_that_only_the_checkpoint_quotes_is_kept_at_every_budget() {
    let app = TestApp::start().await;
    let conversation = conversation_with_long_turn(&app, 50).await;
    assert!(
        conversation.checkpoints().await[0].summary.contains(NEWEST),
        "the checkpoint ends within the turn and quotes its question"
    );
    let whole = conversation.context().await.0.total_tokens;
    for divisor in 1..=60 {
        // 200 tokens are enough for a summary that quotes the question.
        let budget = (whole / divisor).max(200);
        let built = conversation.context_within(budget).await.expect("fits");
        assert!(
            built.0.total_tokens <= budget,
            "{} tokens for {budget}",
            built.0.total_tokens
        );
        assert!(
            built.text().contains(NEWEST),
            "at {budget} of {whole}: {:#?}",
            built.texts_by_role()
        );
        built.assert_tools_paired();
        built.assert_covers(62);
    }
}
