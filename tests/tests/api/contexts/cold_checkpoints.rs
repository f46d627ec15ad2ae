//! Checkpoints that contexts make because the provider's cache is cold, and summaries that are
//! prepared for them.

use anneal_core::caller::Verb;
use anneal_server::{AuthSettings, ServerSettings};
use anneal_testkit::{
    AuthorizedChannel, Built, LOCK_CONVERSATION, ModelWorkerSettings, Say, Script, ScriptedModel,
    TestApp, TestConversation, assistant, pb, prose, user,
};
use anneal_worker::Fallback;
use pb::{
    BoundaryKind, BreakReason, CheckpointTrigger, IdleCheckpoints,
    context_service_client::ContextServiceClient,
    conversation_service_client::ConversationServiceClient,
    message_service_client::MessageServiceClient,
};

/// The profile `agents`, with a tail of 2,000 tokens after a checkpoint.
fn agents_policy() -> pb::Policy {
    pb::Policy {
        profile: "agents".into(),
        token_threshold: Some(1_000_000),
        keep_recent_tokens: Some(2_000),
        ..Default::default()
    }
}

/// Appends `count` turns of about 450 tokens.
async fn append_long_turns(conversation: &TestConversation<'_>, count: usize) {
    for n in 0..count {
        let answer = prose(n * 20, 20);
        conversation.turn("What was inspected?", &answer).await;
    }
}

/// Creates a conversation of `turns` turns of about 450 tokens. All messages are counted.
async fn create_conversation(
    app: &TestApp,
    policy: pb::Policy,
    turns: usize,
) -> TestConversation<'_> {
    let conversation = app.conversation_with_policy(policy).await;
    append_long_turns(&conversation, turns).await;
    app.run_jobs_until_idle().await;
    conversation
}

/// Lets the last model calls be older than a provider keeps its cache, which is 300 seconds.
async fn let_caches_grow_cold(app: &TestApp) {
    let age = "update ai_message set created_ts = created_ts - interval '301 seconds'";
    sqlx::query(age)
        .execute(&mut app.db().await)
        .await
        .expect("the messages grow older");
}

/// The last message of the prepared checkpoint. None: none is prepared.
async fn find_prepared_boundary(app: &TestApp) -> Option<i64> {
    let query = "select last_message_id from ai_prepared_checkpoint where summary <> ''";
    sqlx::query_scalar(query)
        .fetch_optional(&mut app.db().await)
        .await
        .expect("the query succeeds")
}

fn preparing(policy: pb::Policy) -> pb::Policy {
    pb::Policy {
        idle_checkpoints: IdleCheckpoints::Prepared.into(),
        ..policy
    }
}

#[tokio::test]
async fn a_cold_context_makes_a_checkpoint_that_later_contexts_keep() {
    let app = TestApp::start().await;
    let conversation = create_conversation(&app, agents_policy(), 20).await;
    let warm = conversation.context().await;
    assert_eq!(warm.0.boundary_kind(), BoundaryKind::Unspecified);
    let_caches_grow_cold(&app).await;
    let cold = conversation.context().await;
    assert_eq!(cold.0.boundary_kind(), BoundaryKind::Checkpoint);
    assert!(cold.0.total_tokens * 4 <= warm.0.total_tokens * 3);
    assert_eq!(
        cold.0.cache_break.as_ref().map(pb::CacheBreak::reason),
        Some(BreakReason::Checkpoint)
    );
    cold.assert_covers(40);
    let checkpoints = conversation.checkpoints().await;
    assert_eq!(
        (checkpoints.len(), checkpoints[0].trigger()),
        (1, CheckpointTrigger::Idle)
    );
    assert_eq!(
        checkpoints[0].last_message_id, cold.0.boundary_message_id,
        "the context already has the checkpoint"
    );
    assert!(
        conversation.jobs().await.is_empty(),
        "no worker takes part in it"
    );
    let next = conversation.context().await;
    assert_eq!(next.0.messages, cold.0.messages);
    assert_eq!(next.0.prefix_hash, cold.0.prefix_hash);
    assert_eq!(conversation.checkpoints().await.len(), 1);
    conversation.verify().await;
}

#[tokio::test]
async fn a_second_cold_context_builds_on_the_first_ones_checkpoint() {
    let app = TestApp::start().await;
    let conversation = create_conversation(&app, agents_policy(), 20).await;
    for _ in 0..2 {
        let_caches_grow_cold(&app).await;
        conversation.context().await;
        append_long_turns(&conversation, 20).await;
    }
    let generations: Vec<i32> = conversation
        .checkpoints()
        .await
        .iter()
        .map(|checkpoint| checkpoint.generation)
        .collect();
    assert_eq!(generations, [2, 1], "newest first");
    conversation.verify().await;
}

#[tokio::test]
async fn a_checkpoint_that_saves_less_than_a_quarter_is_not_made() {
    let app = TestApp::start().await;
    // Of about 2,300 tokens, 1,800 are kept.
    let conversation = create_conversation(&app, agents_policy(), 5).await;
    let_caches_grow_cold(&app).await;
    let cold = conversation.context().await;
    assert_eq!(cold.0.boundary_kind(), BoundaryKind::Unspecified);
    assert!(conversation.checkpoints().await.is_empty());
}

#[tokio::test]
async fn warm_contexts_previews_and_other_profiles_make_none() {
    let app = TestApp::start().await;
    let build = async |conversation: &TestConversation<'_>, dry_run| -> Built {
        let ask = pb::BuildContextRequest {
            dry_run,
            ..Default::default()
        };
        conversation.build(ask).await.expect("builds")
    };
    let agents = create_conversation(&app, agents_policy(), 20).await;
    build(&agents, false).await;
    let off = pb::Policy {
        idle_checkpoints: IdleCheckpoints::Off.into(),
        ..agents_policy()
    };
    let mut others = vec![create_conversation(&app, off, 20).await];
    for profile in ["default", "zeroclaw", "claw0", "ai-panel"] {
        let policy = pb::Policy {
            profile: profile.into(),
            token_threshold: Some(1_000_000),
            max_message_count: Some(0),
            ..Default::default()
        };
        others.push(create_conversation(&app, policy, 20).await);
    }
    assert!(agents.checkpoints().await.is_empty(), "its cache is warm");
    let_caches_grow_cold(&app).await;
    build(&agents, true).await;
    assert!(agents.checkpoints().await.is_empty(), "a preview");
    for other in &others {
        build(other, false).await;
        assert!(other.checkpoints().await.is_empty());
    }
}

#[tokio::test]
async fn a_caller_that_may_only_read_makes_no_checkpoint() {
    let auth = AuthSettings {
        api_keys: true,
        ..Default::default()
    };
    let app = TestApp::with_auth(ServerSettings::default(), auth).await;
    let bearer = async |verbs: &[Verb]| {
        let key = app.key("anna", verbs).await;
        app.authorized_channel(&format!("Bearer {}", key.text))
    };
    let (reader, writer) = (
        bearer(&[Verb::Read]).await,
        bearer(&[Verb::Read, Verb::Append]).await,
    );
    let create = pb::CreateConversationRequest {
        policy: Some(agents_policy()),
        ..Default::default()
    };
    let conversation_id = ConversationServiceClient::new(writer.clone())
        .create_conversation(create)
        .await
        .expect("creates")
        .into_inner()
        .conversation_id;
    for n in 0..20 {
        let append = pb::AppendMessagesRequest {
            conversation_id: conversation_id.clone(),
            messages: vec![user("What was inspected?"), assistant(&prose(n * 20, 20))],
            ..Default::default()
        };
        MessageServiceClient::new(writer.clone())
            .append_messages(append)
            .await
            .expect("appends");
    }
    app.run_jobs_until_idle().await;
    let_caches_grow_cold(&app).await;
    let kinds = async |channel: AuthorizedChannel| {
        let ask = pb::BuildContextRequest {
            conversation_id: conversation_id.clone(),
            ..Default::default()
        };
        let built = ContextServiceClient::new(channel).build_context(ask).await;
        built.expect("builds").into_inner().boundary_kind()
    };
    assert_eq!(kinds(reader).await, BoundaryKind::Unspecified);
    assert_eq!(kinds(writer).await, BoundaryKind::Checkpoint);
}

#[tokio::test]
async fn concurrent_cold_contexts_agree_on_one_checkpoint() {
    let app = TestApp::start().await;
    let conversation = create_conversation(&app, agents_policy(), 20).await;
    conversation.context().await;
    let_caches_grow_cold(&app).await;
    let all = futures::future::join_all((0..8).map(|_| conversation.context())).await;
    assert!(all.iter().all(|built| built.0.messages == all[0].0.messages
        && built.0.boundary_kind() == BoundaryKind::Checkpoint));
    assert_eq!(conversation.checkpoints().await.len(), 1);
    conversation.verify().await;
}

#[tokio::test]
async fn a_change_while_the_extract_is_written_prevents_the_checkpoint() {
    let app = TestApp::start().await;
    let conversation = create_conversation(&app, agents_policy(), 20).await;
    let_caches_grow_cold(&app).await;
    let mut held = app.hold_lock(LOCK_CONVERSATION, conversation.uuid()).await;
    let (built, ()) = tokio::join!(conversation.context(), async {
        // The context has read its rows; its checkpoint waits for the lock.
        app.wait_for_lock_waiters(1).await;
        let change =
            "update ai_conversation set change_id = change_id + 1 where conversation_id = $1";
        held.run(change, conversation.uuid()).await;
        held.commit().await;
    });
    assert_eq!(built.0.boundary_kind(), BoundaryKind::Unspecified);
    built.assert_covers(40);
    assert!(conversation.checkpoints().await.is_empty());
}

#[tokio::test]
async fn nothing_is_extracted_where_a_model_writes_summaries() {
    let app = TestApp::with_summaries_by_a_model().await;
    let conversation = create_conversation(&app, agents_policy(), 20).await;
    let_caches_grow_cold(&app).await;
    let cold = conversation.context().await;
    assert_eq!(cold.0.boundary_kind(), BoundaryKind::Unspecified);
    assert!(conversation.checkpoints().await.is_empty());
    assert!(conversation.jobs().await.is_empty(), "no model is asked");
}

#[tokio::test]
async fn a_prepared_summary_becomes_the_checkpoint_of_a_cold_context() {
    let app = TestApp::with_summaries_by_a_model().await;
    let policy = pb::Policy {
        token_threshold: Some(8_000),
        keep_recent_tokens: Some(1_000),
        ..preparing(agents_policy())
    };
    let conversation = create_conversation(&app, policy, 7).await;
    assert_eq!(
        find_prepared_boundary(&app).await,
        None,
        "3,200 of 8,000 tokens"
    );
    append_long_turns(&conversation, 4).await;
    app.run_jobs_until_idle().await;
    let prepared = find_prepared_boundary(&app).await.expect("one is prepared");
    assert!(conversation.checkpoints().await.is_empty());
    append_long_turns(&conversation, 1).await;
    app.run_jobs_until_idle().await;
    assert_eq!(
        find_prepared_boundary(&app).await,
        Some(prepared),
        "one is prepared once"
    );
    let_caches_grow_cold(&app).await;
    let cold = conversation.context().await;
    assert_eq!(
        (cold.0.boundary_kind(), cold.0.boundary_message_id),
        (BoundaryKind::Checkpoint, prepared)
    );
    let checkpoints = conversation.checkpoints().await;
    assert_eq!(
        (checkpoints.len(), checkpoints[0].trigger()),
        (1, CheckpointTrigger::Idle)
    );
    assert_eq!(find_prepared_boundary(&app).await, None);
    conversation.verify().await;
}

#[tokio::test]
async fn a_trigger_commits_the_prepared_summary_if_what_it_keeps_fits() {
    let app = TestApp::start().await;
    let policy = pb::Policy {
        token_threshold: Some(8_000),
        max_message_count: Some(30),
        keep_recent_tokens: Some(600),
        ..preparing(agents_policy())
    };
    let conversation = create_conversation(&app, policy, 10).await;
    let prepared = find_prepared_boundary(&app).await.expect("one is prepared");
    assert!(prepared >= 15, "at most half of 30 messages are kept");
    conversation.turns(5).await;
    app.run_jobs_until_idle().await;
    let checkpoints = conversation.checkpoints().await;
    assert_eq!(
        (checkpoints.len(), checkpoints[0].trigger()),
        (1, CheckpointTrigger::Messages)
    );
    assert_eq!(
        checkpoints[0].last_message_id, prepared,
        "a new summary would have covered the short turns, too"
    );
    conversation.verify().await;
}

#[tokio::test]
async fn a_failed_preparation_is_not_repeated_and_delays_no_checkpoint() {
    let babbling = ScriptedModel::start(|request| {
        Script::says(request, [Say::text(&"again and again and ".repeat(40))])
    })
    .await;
    let app = TestApp::start().await;
    let policy = pb::Policy {
        token_threshold: Some(8_000),
        max_message_count: Some(30),
        keep_recent_tokens: Some(600),
        ..preparing(agents_policy())
    };
    let conversation = app.conversation_with_policy(policy).await;
    append_long_turns(&conversation, 10).await;
    let mut settings = ModelWorkerSettings::for_model(&babbling);
    settings.summarizer.fallback = Fallback::None;
    settings.access.breaker.failures = 1_000;
    let worker = app.worker_with_model(&settings);
    worker.run_until_idle().await;
    let calls = babbling.requests().len();
    assert!(calls > 0, "the tail has half of the threshold");
    for _ in 0..4 {
        assert!(
            conversation.jobs().await.is_empty(),
            "none waits, and none is dead"
        );
        conversation.turns(1).await;
        worker.run_until_idle().await;
    }
    assert_eq!(babbling.requests().len(), calls, "nothing is tried again");
    assert_eq!(find_prepared_boundary(&app).await, None);
    conversation.turns(1).await;
    let model = ScriptedModel::start(Script::summarizes).await;
    app.worker_with_model(&ModelWorkerSettings::for_model(&model))
        .run_until_idle()
        .await;
    let checkpoints = conversation.checkpoints().await;
    assert_eq!(
        (checkpoints.len(), checkpoints[0].trigger()),
        (1, CheckpointTrigger::Messages),
        "30 messages are the threshold"
    );
    conversation.verify().await;
}

#[tokio::test]
async fn what_cannot_be_prepared_is_tried_again_after_a_quarter_of_growth() {
    let app = TestApp::start().await;
    let policy = pb::Policy {
        token_threshold: Some(8_000),
        max_message_count: Some(38),
        keep_recent_tokens: None,
        keep_recent_turns: Some(100),
        ..preparing(agents_policy())
    };
    let conversation = create_conversation(&app, policy, 10).await;
    assert_eq!(find_prepared_boundary(&app).await, None, "100 turns stay");
    let health = conversation.usage().await.summaries.expect("is reported");
    assert_eq!(
        (health.state(), health.until_message_id),
        (pb::SummaryState::Ok, 0),
        "checkpoints wait for nothing"
    );
    // The first messages after a checkpoint job let a counting job read the tail, which finds that
    // nothing is due before message 37: a quarter of the 20 messages are 5, and the least growth is
    // 16.
    conversation.turns(1).await;
    assert_eq!(app.run_jobs_until_idle().await, 1, "only a counting job");
    for _ in 1..8 {
        conversation.turns(1).await;
        assert_eq!(app.run_jobs_until_idle().await, 0, "36 messages at most");
    }
    conversation.append("And now?").await;
    assert_eq!(
        app.run_jobs_until_idle().await,
        2,
        "the 37th message is counted, and a preparation is tried"
    );
    assert!(conversation.checkpoints().await.is_empty());
    conversation.append("And after that?").await;
    app.run_jobs_until_idle().await;
    let checkpoints = conversation.checkpoints().await;
    assert_eq!(
        (checkpoints.len(), checkpoints[0].trigger()),
        (1, CheckpointTrigger::Messages),
        "38 messages are the threshold"
    );
}

#[tokio::test]
async fn a_change_of_messages_deletes_the_prepared_summary() {
    let app = TestApp::start().await;
    let policy = pb::Policy {
        token_threshold: Some(8_000),
        keep_recent_tokens: Some(1_000),
        ..preparing(agents_policy())
    };
    let conversation = create_conversation(&app, policy, 11).await;
    let first = find_prepared_boundary(&app).await.expect("one is prepared");
    conversation
        .withdraw(&[2])
        .send()
        .await
        .expect("the message is withdrawn");
    assert_eq!(find_prepared_boundary(&app).await, None);
    app.run_jobs_until_idle().await;
    let_caches_grow_cold(&app).await;
    conversation.context().await;
    let checkpoints = conversation.checkpoints().await;
    assert!(
        checkpoints
            .iter()
            .all(|checkpoint| checkpoint.last_message_id >= first
                && !checkpoint.summary.contains("On day 3 ")),
        "no summary tells of the withdrawn message: {checkpoints:?}"
    );
    assert_eq!(checkpoints.len(), 1);
    conversation.verify().await;
}

#[tokio::test]
async fn a_prepared_summary_of_another_boundary_is_not_used() {
    let app = TestApp::with_summaries_by_a_model().await;
    let policy = pb::Policy {
        token_threshold: Some(8_000),
        keep_recent_tokens: Some(1_000),
        ..preparing(agents_policy())
    };
    let conversation = create_conversation(&app, policy, 11).await;
    assert!(find_prepared_boundary(&app).await.is_some());
    let behind = "update ai_prepared_checkpoint set previous_message_id = 1";
    let changed = sqlx::query(behind)
        .execute(&mut app.db().await)
        .await
        .expect("the row is changed");
    assert_eq!(changed.rows_affected(), 1);
    let_caches_grow_cold(&app).await;
    let cold = conversation.context().await;
    assert_eq!(cold.0.boundary_kind(), BoundaryKind::Unspecified);
}
