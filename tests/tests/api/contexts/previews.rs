//! Dry runs show contexts and compactions under other settings and change nothing. GetContextUsage
//! shows what a conversation costs.

use anneal_testkit::{TestApp, TestConversation, assert_refused, call, pb, prose, result, user};
use pb::{CompactOutcome, Reason, Representation};
use sqlx::AssertSqlSafe;
use tonic::Code;
use uuid::Uuid;

/// Creates a conversation of 12 turns. Its first message is long, and no checkpoint is due.
async fn create_long_conversation(app: &TestApp) -> TestConversation<'_> {
    let conversation = app
        .conversation_with_policy(pb::Policy {
            max_message_count: Some(0),
            ..Default::default()
        })
        .await;
    conversation.turn(&prose(0, 60), "I have read it.").await;
    for n in 1..12 {
        conversation
            .turn(&prose(n * 60, 3), &prose(n * 60 + 3, 3))
            .await;
    }
    app.run_jobs_until_idle().await;
    conversation
}

#[tokio::test]
async fn a_preview_shows_the_effect_of_other_settings_and_changes_nothing() {
    let app = TestApp::start().await;
    let conversation = create_long_conversation(&app).await;
    let plain = conversation.context().await;
    assert_eq!(
        plain.representation(1),
        (Representation::Original, Reason::Small)
    );
    let policy = pb::Policy {
        large_message_threshold: Some(200),
        max_message_count: Some(20),
        ..Default::default()
    };
    let ask = pb::BuildContextRequest {
        dry_run: true,
        policy: Some(policy),
        ..Default::default()
    };
    let previewed = conversation.build(ask.clone()).await.expect("builds");
    assert_eq!(
        previewed.representation(1),
        (Representation::Original, Reason::SummaryPending),
        "the message would be summarized"
    );
    let due = previewed
        .0
        .due
        .as_ref()
        .expect("a checkpoint is due: 24 messages, at a threshold of 20");
    assert_eq!(due.trigger(), pb::CheckpointTrigger::Messages);
    assert_eq!(
        (
            due.last_message_id,
            due.kept_messages,
            due.summarized_messages
        ),
        (14, 10, 14),
        "by default the newest five turns are kept"
    );
    assert!(due.tokens_before > due.kept_tokens);
    app.run_jobs_until_idle().await;
    assert_eq!(conversation.context().await, plain);
    assert!(conversation.checkpoints().await.is_empty() && conversation.jobs().await.is_empty());
    let not_dry = conversation
        .build(pb::BuildContextRequest {
            dry_run: false,
            ..ask
        })
        .await;
    assert_refused(not_dry, Code::InvalidArgument, "INVALID_FIELD", "policy");
}

#[tokio::test]
async fn a_compaction_preview_equals_the_compaction_that_follows() {
    let app = TestApp::start().await;
    let conversation = create_long_conversation(&app).await;
    let preview_compaction = async |policy| {
        let ask = pb::CompactRequest {
            conversation_id: conversation.id.clone(),
            dry_run: true,
            policy,
            ..Default::default()
        };
        app.contexts()
            .compact(ask)
            .await
            .expect("previews")
            .into_inner()
    };
    let with_other_policy = preview_compaction(Some(pb::Policy {
        keep_recent_turns: Some(2),
        ..Default::default()
    }))
    .await;
    assert_eq!(
        (
            with_other_policy.outcome(),
            with_other_policy.preview.expect("a cut").last_message_id
        ),
        (CompactOutcome::WouldCreate, 20)
    );
    let preview = preview_compaction(None).await.preview.expect("a cut");
    assert!(conversation.jobs().await.is_empty());
    let done = conversation.compact("k1", "").await;
    assert_eq!(done.outcome(), CompactOutcome::Created);
    let checkpoint = done.checkpoint.expect("a checkpoint");
    assert_eq!(checkpoint.last_message_id, preview.last_message_id);
    assert_eq!(checkpoint.tokens_before, preview.tokens_before);
    let empty = app.conversation().await;
    let ask = pb::CompactRequest {
        conversation_id: empty.id.clone(),
        dry_run: true,
        ..Default::default()
    };
    let nothing = app
        .contexts()
        .compact(ask)
        .await
        .expect("previews")
        .into_inner();
    assert_eq!(nothing.outcome(), CompactOutcome::NoProgress);
}

/// [`TestApp`] asserts that no call keeps an async thread busy for more than 100 ms.
#[tokio::test]
async fn previews_of_a_long_tail_do_not_block_the_async_threads() {
    const MESSAGES: u32 = 100_000;
    let app = TestApp::start().await;
    let conversation = app.conversation().await;
    conversation.append("hello").await;
    let id = conversation.id.parse::<Uuid>().expect("an id");
    // Message n has role 1 (user) if n is odd, and role 2 (assistant) if n is even. Messages 2k - 1
    // and 2k are turn k.
    let copies = format!(
        "insert into ai_message (tenant_id, conversation_id, message_id, role, turn, token_estimate, text_bytes, content,
            content_digest, content_bytes)
         select tenant_id, conversation_id, n, 2 - n % 2, (n + 1) / 2, token_estimate, text_bytes, content, content_digest,
            content_bytes
         from ai_message cross join generate_series(2, {MESSAGES}) as n where conversation_id = '{id}';
         update ai_conversation set last_message_id = {MESSAGES}, turn = {MESSAGES} / 2 where conversation_id = '{id}'"
    );
    sqlx::raw_sql(AssertSqlSafe(copies))
        .execute(&mut app.db().await)
        .await
        .expect("fills in");
    let ask = pb::CompactRequest {
        conversation_id: conversation.id.clone(),
        dry_run: true,
        ..Default::default()
    };
    let answer = app
        .contexts()
        .compact(ask)
        .await
        .expect("previews")
        .into_inner();
    let preview = answer.preview.expect("a cut");
    assert_eq!(
        preview.summarized_messages + preview.kept_messages,
        i64::from(MESSAGES)
    );
    let ask = pb::BuildContextRequest {
        dry_run: true,
        ..Default::default()
    };
    let built = conversation.build(ask).await.expect("builds");
    let due = pb::CompactPreview {
        trigger: pb::CheckpointTrigger::Messages.into(),
        ..preview
    };
    assert_eq!(built.0.due, Some(due));
}

#[tokio::test]
async fn context_usage_reports_the_tokens_that_a_cooling_step_would_save() {
    let app = TestApp::start().await;
    let policy = pb::Policy {
        profile: "agents".into(),
        large_message_threshold: Some(200),
        token_threshold: Some(10_000_000),
        ..Default::default()
    };
    let conversation = app.conversation_with_policy(policy).await;
    conversation.append("What was inspected?").await;
    for n in 0..13 {
        let id = format!("c{n}");
        conversation
            .append_all(vec![call(&id, "{}"), result(&id, &prose(n * 50, 50))])
            .await;
        app.run_jobs_until_idle().await;
        // This context records a prefix before any result is cool. Without it, a swap would break
        // no cache, so no step would be pending.
        if n == 1 {
            conversation.context().await;
        }
    }
    let usage = conversation.usage().await;
    let built = conversation.context().await;
    assert_eq!(
        usage.total_tokens, built.0.total_tokens,
        "the usage is that of the context as it is sent"
    );
    let pending: u64 = built
        .0
        .manifest
        .iter()
        .filter(|entry| entry.reason() == Reason::StepPending)
        .map(|entry| entry.original_tokens)
        .sum();
    assert!(
        usage.pending_saved_tokens > pending * 8 / 10 && usage.pending_saved_tokens < pending,
        "{usage:?}"
    );
}

#[tokio::test]
async fn the_economics_compare_three_cooling_variants() {
    let app = TestApp::start().await;
    let policy = pb::Policy {
        profile: "agents".into(),
        token_threshold: Some(10_000_000),
        ..Default::default()
    };
    let conversation = app.conversation_with_policy(policy).await;
    conversation.append("What was inspected?").await;
    for n in 0..100 {
        let id = format!("c{n}");
        conversation
            .append_all(vec![call(&id, "{}"), result(&id, &prose(n * 60, 60))])
            .await;
    }
    app.run_jobs_until_idle().await;
    let ask = pb::GetContextUsageRequest {
        conversation_id: conversation.id.clone(),
        economics: true,
        ..Default::default()
    };
    let economics = app
        .contexts()
        .get_context_usage(ask)
        .await
        .expect("answers")
        .into_inner()
        .economics;
    let economics = economics.expect("asked for");
    let (none, strict, stepped) = (
        economics.none.expect("a variant"),
        economics.strict.expect("a variant"),
        economics.stepped.expect("a variant"),
    );
    assert_eq!(economics.calls, 100);
    assert_eq!(none.cache_breaks, 0);
    assert_eq!(
        strict.sent_tokens, none.sent_tokens,
        "strict cooling goes by turns, and the tool calls are all in one turn"
    );
    assert!(
        stepped.billed_units < none.billed_units * 0.9,
        "{stepped:?} {none:?}"
    );
    assert!((1..12).contains(&stepped.cache_breaks));
    let spend = economics.summarizer.expect("its cost");
    assert!(
        spend.summaries > 0 && spend.model_read_tokens == 0,
        "the built-in summarizer uses no model: {spend:?}"
    );
    assert!(
        conversation.usage().await.economics.is_none(),
        "economics are computed only if they are requested"
    );
}

#[tokio::test]
async fn a_preview_with_current_input_changes_nothing() {
    let app = TestApp::start().await;
    let conversation = create_long_conversation(&app).await;
    let ask = pb::BuildContextRequest {
        dry_run: true,
        current_input: vec![user("and now?")],
        ..Default::default()
    };
    assert_eq!(
        conversation.build(ask.clone()).await.expect("builds"),
        conversation.build(ask).await.expect("builds")
    );
    assert_eq!(conversation.conversation().await.message_count, 24);
}
