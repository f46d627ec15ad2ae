//! Behaviors that anneal takes over from older systems. Each test is named after a row of
//! docs/rows.md that no other file of this folder tests.

#![expect(non_snake_case, reason = "test names begin with a row of docs/rows.md")]

use anneal_core::tokens::Encoding;
use anneal_testkit::{
    AnnealBinary, Folder, Rendered, Say, Script, ScriptedModel, TestApp, TestConversation,
    assistant, call, message, pb, prose, result, sentence, user,
};
use pb::{
    AttemptReason, CheckpointTrigger, Format, Pressure, Reason, Representation, Role, Segment,
    part::Part,
};
use serde_json::{Value, json};

use crate::contexts::conversation_with_profile;

#[tokio::test]
async fn row_Z3_a_turn_is_stored_as_a_pair_in_one_append_and_tools_are_optional() {
    let app = TestApp::start().await;
    let messages = vec![
        user("what is there?"),
        call("a", "{}"),
        result("a", "a boat"),
        assistant("A boat."),
    ];
    let text_alone = conversation_with_profile(&app, "zeroclaw").await;
    let pair = text_alone.append_all(messages.clone()).await;
    assert_eq!(
        pair.messages
            .iter()
            .map(|stored| (stored.message_id, stored.turn))
            .collect::<Vec<_>>(),
        [(1, 1), (2, 1)]
    );
    let expected = [
        (Role::User, "what is there?".to_owned()),
        (Role::Assistant, "A boat.".to_owned()),
    ];
    assert_eq!(text_alone.texts_by_role().await, expected);
    let with_tools = app.conversation().await;
    assert_eq!(with_tools.append_all(messages).await.messages.len(), 4);
}

#[tokio::test]
async fn row_Z4_messages_of_one_role_are_merged_and_each_entry_keeps_its_message_ids() {
    let app = TestApp::start().await;
    let policy = pb::Policy {
        max_message_count: Some(8),
        keep_recent_turns: Some(1),
        ..Default::default()
    };
    let conversation = app.conversation_with_policy(policy).await;
    conversation.turns(2).await;
    conversation
        .append_all(vec![
            user("first"),
            user("second"),
            assistant("one"),
            assistant("two"),
        ])
        .await;
    app.run_jobs_until_idle().await;
    let built = conversation.context().await;
    let tail: Vec<_> = built
        .0
        .messages
        .iter()
        .filter(|sent| sent.segment() == Segment::Tail)
        .collect();
    let ids: Vec<&[i64]> = tail
        .iter()
        .map(|sent| sent.message_ids.as_slice())
        .collect();
    assert_eq!(
        ids,
        [[5, 6], [7, 8]],
        "messages before the boundary are not loaded"
    );
    let messages = built.texts_by_role();
    assert_eq!(
        messages[1..],
        [
            (Role::User, "first\n\nsecond".into()),
            (Role::Assistant, "one\n\ntwo".into())
        ]
    );
}

/// OpenAI's error of a context that is too long.
const OVERFLOW: &str = r#"{"error":{"message":"Your input exceeds the context window of this model.",
    "type":"invalid_request_error","param":"messages","code":"context_length_exceeded"}}"#;

/// Appends six turns of about 260 tokens.
async fn append_six_turns(conversation: &TestConversation<'_>) {
    for n in 0..6 {
        conversation
            .turn(&prose(n * 12, 6), &prose(n * 12 + 6, 6))
            .await;
    }
}

#[tokio::test]
async fn row_Z7_compaction_follows_a_token_threshold_an_overflow_or_a_request() {
    // The model refuses a context without a summary.
    let model = ScriptedModel::start(|request| {
        let is_compacted = request.texts()[0].starts_with("[Summary of the conversation");
        if is_compacted {
            Script::says(request, [Say::text("Filed.")])
        } else {
            Script::status(400, &[], OVERFLOW)
        }
    })
    .await;
    let app = TestApp::with_scripted_model(&model).await;
    let by_tokens = app
        .conversation_with_policy(pb::Policy {
            token_threshold: Some(1_000),
            keep_recent_turns: Some(1),
            ..Default::default()
        })
        .await;
    append_six_turns(&by_tokens).await;
    app.run_jobs_until_idle().await;
    assert_eq!(
        by_tokens.checkpoints().await[0].trigger(),
        CheckpointTrigger::Tokens
    );

    let by_hand = app.conversation().await;
    by_hand.turns(6).await;
    let compaction = by_hand
        .compact("c1", "")
        .await
        .checkpoint
        .expect("a checkpoint");
    assert_eq!(compaction.trigger(), CheckpointTrigger::Manual);
    assert_eq!(model.requests().len(), 0, "no model was called");

    let by_overflow = app.conversation().await;
    append_six_turns(&by_overflow).await;
    app.run_jobs_until_idle().await;
    assert_eq!(
        by_overflow.checkpoints().await,
        [],
        "no threshold is reached"
    );
    let outcome = by_overflow.chat("Was it filed?").await;
    assert_eq!(outcome.text(), "Filed.");
    let last_attempt = outcome.attempts().pop().expect("the first was refused");
    assert_eq!(
        (last_attempt.1, last_attempt.2),
        (Pressure::Compact, AttemptReason::Overflow)
    );
    app.run_jobs_until_idle().await;
    let [checkpoint] = &by_overflow.checkpoints().await[..] else {
        panic!("the overflow makes one checkpoint")
    };
    assert!(checkpoint.last_message_id < 12, "{checkpoint:?}");
    let next = by_overflow.chat("By whom?").await;
    assert_eq!(
        (next.text().as_str(), next.done().attempts),
        ("Filed.", 1),
        "the next context begins with the checkpoint's summary"
    );
}

#[tokio::test]
async fn row_Z8_forty_one_messages_make_a_checkpoint_and_forty_do_not() {
    let app = TestApp::start().await;
    let conversation = conversation_with_profile(&app, "zeroclaw").await;
    conversation.turns(20).await;
    app.run_jobs_until_idle().await;
    assert!(conversation.checkpoints().await.is_empty(), "40 messages");
    conversation.append("and?").await;
    app.run_jobs_until_idle().await;
    let [checkpoint] = &conversation.checkpoints().await[..] else {
        panic!("one checkpoint")
    };
    assert_eq!(
        (checkpoint.trigger(), checkpoint.last_message_id),
        (CheckpointTrigger::Messages, 40),
        "the question is kept"
    );
}

#[tokio::test]
async fn row_Z10_a_context_holds_only_its_own_conversation_and_no_system_event_is_stored() {
    let model = ScriptedModel::start(|request| {
        if request.nth == 0 {
            Script::status(500, &[], "{}")
        } else {
            Script::hang()
        }
    })
    .await;
    let app = TestApp::with_scripted_model(&model).await;
    let policy = pb::Policy {
        max_message_count: Some(4),
        keep_recent_turns: Some(1),
        ..Default::default()
    };
    let (mine, other) = (
        app.conversation_with_policy(policy.clone()).await,
        app.conversation_with_policy(policy).await,
    );
    for n in 0..4 {
        mine.turn(&sentence(n), "noted").await;
        other
            .turn(&format!("the secret word is plover-{n}"), "noted")
            .await;
    }
    app.run_jobs_until_idle().await;
    mine.chat("and now?")
        .await
        .end
        .expect_err("the model fails");
    mine.insert_separator().await;
    mine.start_compaction("c1").await;
    app.run_jobs_until_idle().await;
    let messages = mine.texts_by_role().await;
    assert_eq!(
        messages.len(),
        9,
        "eight messages and the question; no summary, separator or error is stored as a message"
    );
    assert!(
        messages
            .iter()
            .all(|(role, _)| matches!(role, Role::User | Role::Assistant))
    );
    mine.delete_separator(9).await;
    let built = mine.context().await;
    assert!(
        built
            .0
            .messages
            .iter()
            .any(|sent| sent.segment() == Segment::CheckpointSummary)
    );
    assert!(!built.text().contains("plover"), "{}", built.text());
}

#[tokio::test]
async fn row_C2_a_context_for_anthropic_alternates_roles_and_keeps_tool_blocks_in_place() {
    let app = TestApp::start().await;
    let conversation = app.conversation().await;
    let look = |id: &str, input: &str| {
        Part::ToolUse(pb::ToolUsePart {
            id: id.into(),
            name: "look".into(),
            input: input.into(),
        })
    };
    let words = Part::Text(pb::TextPart {
        text: "Let me look.".into(),
    });
    let text_and_calls = message(
        Role::Assistant,
        vec![words, look("t1", r#"{"at":"sea"}"#), look("t2", "{}")],
    );
    let messages = vec![
        user("what is there?"),
        text_and_calls,
        result("t1", "a sea"),
        result("t2", "a boat"),
    ];
    conversation.append_all(messages).await;
    conversation
        .append_all(vec![assistant("A boat at sea."), user("whose?")])
        .await;
    let ask = pb::BuildContextRequest {
        format: Format::AnthropicMessages.into(),
        ..Default::default()
    };
    let rendered = Rendered::read(
        &conversation.build(ask).await.expect("builds"),
        Format::AnthropicMessages,
    )
    .expect("renders");
    assert_eq!(rendered.refusals(), Vec::<String>::new());
    let shape = |message: &Value| -> (String, Vec<String>) {
        let blocks = message["content"].as_array().expect("blocks").iter();
        let kinds = blocks.map(|block| block["type"].as_str().expect("a type").to_owned());
        (
            message["role"].as_str().expect("a role").to_owned(),
            kinds.collect(),
        )
    };
    let shapes: Vec<_> = rendered.body["messages"]
        .as_array()
        .expect("messages")
        .iter()
        .map(shape)
        .collect();
    let expected = [
        ("user", vec!["text"]),
        ("assistant", vec!["text", "tool_use", "tool_use"]),
        ("user", vec!["tool_result", "tool_result"]),
        ("assistant", vec!["text"]),
        ("user", vec!["text"]),
    ];
    let expected = expected.map(|(role, kinds)| {
        (
            role.to_owned(),
            kinds.into_iter().map(str::to_owned).collect(),
        )
    });
    assert_eq!(shapes, expected);
    assert_eq!(
        rendered.body["messages"][1]["content"][1]["input"],
        json!({"at": "sea"})
    );
}

/// Creates a conversation with the profile `ai-panel` and 46 turns of about 1,800 tokens each.
async fn conversation_with_ai_panel_profile(app: &TestApp) -> TestConversation<'_> {
    let conversation = conversation_with_profile(app, "ai-panel").await;
    for n in 0..46 {
        conversation
            .turn(&prose(n * 82, 41), &prose(n * 82 + 41, 41))
            .await;
    }
    app.run_jobs_until_idle().await;
    conversation
}

#[tokio::test]
async fn row_P5_above_80_000_tokens_a_compaction_keeps_20_turns_and_reports_both_sizes() {
    let app = TestApp::start().await;
    let conversation = conversation_with_ai_panel_profile(&app).await;
    let [compaction] = &conversation.checkpoints().await[..] else {
        panic!("one compaction")
    };
    let first_kept = conversation.message(compaction.last_message_id + 1).await;
    assert_eq!(
        (first_kept.role(), first_kept.turn),
        (Role::User, conversation.conversation().await.turn - 19),
        "20 turns are kept"
    );
    assert!(
        compaction.tokens_before > 80_000,
        "{}",
        compaction.tokens_before
    );
    assert!(
        compaction.tokens_after < compaction.tokens_before / 2,
        "{}",
        compaction.tokens_after
    );
}

/// A text of exactly this many tokens, at least 1,000.
fn text_of(start: usize, tokens: u64) -> String {
    let counter = Encoding::O200kBase.counter();
    let text = prose(start, 35);
    let missing = tokens - counter.count(&text).get();
    let text = text + " word".repeat(missing as usize).as_str();
    assert_eq!(counter.count(&text).get(), tokens);
    text
}

#[tokio::test]
async fn row_P5_exactly_80_000_tokens_make_no_compaction_and_one_more_makes_one() {
    let app = TestApp::start().await;
    for (first, covered) in [(1_000, None), (1_001, Some(40))] {
        let conversation = conversation_with_profile(&app, "ai-panel").await;
        for n in 0..40 {
            let asked = if n == 0 { first } else { 1_000 };
            conversation
                .turn(&text_of(n * 70, asked), &text_of(n * 70 + 35, 1_000))
                .await;
        }
        app.run_jobs_until_idle().await;
        let total = conversation.conversation().await.token_total;
        let total = total.expect("has a total");
        assert_eq!(
            (total.tokens, total.estimated_messages),
            (79_000 + first, 0)
        );
        let last_covered: Vec<i64> = conversation
            .checkpoints()
            .await
            .iter()
            .map(|checkpoint| checkpoint.last_message_id)
            .collect();
        assert_eq!(
            last_covered,
            Vec::from_iter(covered),
            "{} tokens; 20 turns are kept",
            total.tokens
        );
    }
}

#[tokio::test]
async fn row_P6_the_summary_precedes_the_kept_messages_and_only_those_are_loaded() {
    let app = TestApp::start().await;
    let conversation = conversation_with_ai_panel_profile(&app).await;
    let boundary = conversation.checkpoints().await[0].last_message_id;
    let built = conversation.context().await;
    assert_eq!(built.0.messages[0].segment(), Segment::CheckpointSummary);
    let tail_ids: Vec<i64> = built.0.messages[1..]
        .iter()
        .flat_map(|sent| sent.message_ids.clone())
        .collect();
    assert_eq!(tail_ids, (boundary + 1..=92).collect::<Vec<_>>());
    assert_eq!(
        built.representation(boundary),
        (Representation::Checkpoint, Reason::Checkpointed)
    );
    assert_eq!(
        built.entry(boundary).original_tokens,
        0,
        "messages before the boundary were not read"
    );
}

#[tokio::test]
async fn row_D1_checkpoints_have_their_own_indexed_table_and_are_never_messages() {
    let app = TestApp::start().await;
    let policy = pb::Policy {
        max_message_count: Some(4),
        keep_recent_turns: Some(1),
        ..Default::default()
    };
    let conversation = app.conversation_with_policy(policy).await;
    conversation.turns(8).await;
    app.run_jobs_until_idle().await;
    conversation.insert_separator().await;
    let mut db = app.db().await;
    let index = "select indexdef from pg_indexes where indexname = 'idx_ai_conversation_checkpoint_cid_lastmsg'";
    let index: String = sqlx::query_scalar(index)
        .fetch_one(&mut db)
        .await
        .expect("the index is there");
    assert!(
        index.contains("(conversation_id, last_message_id DESC)"),
        "{index}"
    );
    let rows = "select (select count(*) from ai_conversation_checkpoint where summary <> '' and token_usage > 0),
        (select count(*) from ai_message), (select count(*) from ai_separator)";
    let (checkpoints, messages, separators): (i64, i64, i64) = sqlx::query_as(rows)
        .fetch_one(&mut db)
        .await
        .expect("counts");
    assert!(checkpoints > 0, "the eight turns caused checkpoints");
    assert_eq!(
        (messages, separators),
        (16, 1),
        "no checkpoint is stored as a message or a separator"
    );
}

#[tokio::test]
async fn row_D3_a_large_message_is_summarized_asynchronously_without_a_checkpoint() {
    let app = TestApp::start().await;
    let policy = pb::Policy {
        large_message_threshold: Some(200),
        max_message_count: Some(0),
        ..Default::default()
    };
    let conversation = app.conversation_with_policy(policy).await;
    conversation.turn(&prose(0, 60), "I have read it.").await;
    assert!(
        conversation.message(1).await.summary.is_none(),
        "an append does not wait for a summary"
    );
    app.run_jobs_until_idle().await;
    let large = conversation.message(1).await;
    let summary = large.summary.expect("the worker has written the summary");
    assert!(summary.tokens < large.tokens.expect("counted").tokens);
    assert!(conversation.message(2).await.summary.is_none());
    assert!(conversation.checkpoints().await.is_empty());
}

#[tokio::test]
async fn row_D7_three_settings_have_their_defaults() {
    let folder = Folder::new();
    let anneal = AnnealBinary::new(
        env!("CARGO_BIN_EXE_anneal-under-test"),
        &folder,
        "postgres://anneal@db/anneal",
    );
    let shown = anneal.run(&["config"]).await.out;
    for setting in [
        "token_threshold = 2000000",
        "large_message_threshold = 1000000",
        "max_message_count = 50",
    ] {
        assert!(
            shown.lines().any(|line| line == setting),
            "{setting} is not in\n{shown}"
        );
    }
}
