//! OperatorService (jobs, queue statistics, verification) and parts of ContextService (the list of
//! checkpoints, usage, compaction).

use anneal_testkit::{MODEL, ScriptedModel, TestApp, TestConversation, assert_refused, pb};
use serde_json::json;
use tonic::Code;

/// Creates a conversation with at least two checkpoints.
async fn create_compacted_conversation(app: &TestApp) -> TestConversation<'_> {
    let policy = pb::Policy {
        max_message_count: Some(10),
        keep_recent_turns: Some(1),
        ..Default::default()
    };
    let conversation = app.conversation_with_policy(policy).await;
    for round in 0..2 {
        for n in 0..8 {
            let asked = format!(
                "Question {round}-{n}: what is the capital of country {n}, and how many people live there?"
            );
            conversation
                .turn(
                    &asked,
                    &format!(
                        "The capital of country {n} is City-{n}; {n}00,000 people live there."
                    ),
                )
                .await;
        }
        app.run_jobs_until_idle().await;
    }
    conversation
}

#[tokio::test]
async fn jobs_are_listed_by_state_and_kind_page_by_page() {
    let app = TestApp::start().await;
    let mut ids = Vec::new();
    for _ in 0..5 {
        let conversation = app.conversation().await;
        conversation.turns(1).await;
        ids.push(conversation.id.clone());
    }
    let list = async |ask: pb::ListJobsRequest| {
        app.operators()
            .list_jobs(ask)
            .await
            .expect("lists")
            .into_inner()
    };
    let mut found = Vec::new();
    let mut page_token = String::new();
    loop {
        let page = list(pb::ListJobsRequest {
            page_size: 2,
            page_token,
            ..Default::default()
        })
        .await;
        found.extend(page.jobs.into_iter().map(|job| job.conversation_id));
        page_token = page.next_page_token;
        if page_token.is_empty() {
            break;
        }
    }
    ids.sort();
    assert_eq!(found, ids);
    let request = |kind: pb::JobKind, state: pb::JobState| pb::ListJobsRequest {
        kind: kind.into(),
        state: state.into(),
        ..Default::default()
    };
    assert_eq!(
        list(request(pb::JobKind::CountTokens, pb::JobState::Waiting))
            .await
            .jobs
            .len(),
        5
    );
    assert_eq!(
        list(request(pb::JobKind::Checkpoint, pb::JobState::Unspecified))
            .await
            .jobs
            .len(),
        0
    );
    assert_eq!(
        list(request(pb::JobKind::Unspecified, pb::JobState::Dead))
            .await
            .jobs
            .len(),
        0
    );
    let request_for_conversation = pb::ListJobsRequest {
        conversation_id: ids[0].clone(),
        ..Default::default()
    };
    assert_eq!(list(request_for_conversation).await.jobs.len(), 1);
    for (ask, field) in [
        (
            pb::ListJobsRequest {
                kind: 99,
                ..Default::default()
            },
            "kind",
        ),
        (
            pb::ListJobsRequest {
                state: 99,
                ..Default::default()
            },
            "state",
        ),
    ] {
        assert_refused(
            app.operators().list_jobs(ask).await,
            Code::InvalidArgument,
            "INVALID_FIELD",
            field,
        );
    }
    for kind in [0, 99, -1] {
        let ask = pb::RequeueJobRequest {
            kind,
            conversation_id: ids[0].clone(),
            ..Default::default()
        };
        assert_refused(
            app.operators().requeue_job(ask).await,
            Code::InvalidArgument,
            "INVALID_FIELD",
            "kind",
        );
        let ask = pb::DiscardJobRequest {
            kind,
            conversation_id: ids[0].clone(),
            ..Default::default()
        };
        assert_refused(
            app.operators().discard_job(ask).await,
            Code::InvalidArgument,
            "INVALID_FIELD",
            "kind",
        );
    }
}

#[tokio::test]
async fn requeuing_makes_a_waiting_job_due_and_discarding_it_is_refused() {
    let app = TestApp::start().await;
    let conversation = app.conversation().await;
    conversation.append("a").await;
    let postpone = "update ai_job set due_ts = now() + interval '1 hour', attempts = 5";
    sqlx::query(postpone)
        .execute(&mut app.db().await)
        .await
        .expect("runs");
    assert_eq!(app.run_jobs_until_idle().await, 0);
    let stats = async || {
        let stats = app
            .operators()
            .get_queue_stats(pb::GetQueueStatsRequest {})
            .await
            .expect("statistics")
            .into_inner();
        assert_eq!(
            stats.queues.len(),
            3,
            "there is an entry for every kind of job"
        );
        let counts_tokens = |queue: &pb::QueueStats| queue.kind() == pb::JobKind::CountTokens;
        stats
            .queues
            .into_iter()
            .find(counts_tokens)
            .expect("counting")
    };
    let before = stats().await;
    assert_eq!(
        (before.waiting, before.ready, before.running, before.dead),
        (1, 0, 0, 0)
    );
    let kind = pb::JobKind::CountTokens.into();
    let ask = pb::DiscardJobRequest {
        kind,
        conversation_id: conversation.id.clone(),
        ..Default::default()
    };
    assert_refused(
        app.operators().discard_job(ask).await,
        Code::NotFound,
        "JOB_NOT_FOUND",
        "",
    );
    let ask = pb::RequeueJobRequest {
        kind,
        conversation_id: conversation.id.clone(),
        ..Default::default()
    };
    let job = app
        .operators()
        .requeue_job(ask)
        .await
        .expect("requeues")
        .into_inner();
    assert_eq!((job.state(), job.attempts), (pb::JobState::Waiting, 0));
    assert_eq!(stats().await.ready, 1);
    assert_eq!(app.run_jobs_until_idle().await, 1);
    assert_eq!(stats().await.waiting, 0);
}

#[tokio::test]
async fn checkpoints_are_listed_newest_first_and_form_a_chain() {
    let app = TestApp::start().await;
    let conversation = create_compacted_conversation(&app).await;
    let all = conversation.checkpoints().await;
    assert!(all.len() >= 2);
    let mut paged = Vec::new();
    let mut page_token = String::new();
    loop {
        let ask = pb::ListCheckpointsRequest {
            conversation_id: conversation.id.clone(),
            page_size: 1,
            page_token,
            ..Default::default()
        };
        let page = app
            .contexts()
            .list_checkpoints(ask)
            .await
            .expect("lists")
            .into_inner();
        paged.extend(page.checkpoints);
        page_token = page.next_page_token;
        if page_token.is_empty() {
            break;
        }
    }
    assert_eq!(paged, all);
    for pair in all.windows(2) {
        assert_eq!(pair[0].source_first_message_id, pair[1].last_message_id + 1);
        assert_eq!(pair[0].generation, pair[1].generation + 1);
    }
    assert!(all.iter().all(|checkpoint| checkpoint.valid
        && checkpoint.kind() == pb::SummaryKind::Extractive
        && checkpoint.tokens_after < checkpoint.tokens_before));
}

#[tokio::test]
async fn the_usage_of_a_compacted_conversation_equals_the_tokens_of_its_context() {
    let app = TestApp::start().await;
    let conversation = create_compacted_conversation(&app).await;
    let ask = pb::GetContextUsageRequest {
        conversation_id: conversation.id.clone(),
        ..Default::default()
    };
    let usage = app
        .contexts()
        .get_context_usage(ask)
        .await
        .expect("usage")
        .into_inner();
    assert_eq!(
        usage.total_tokens,
        conversation.context().await.0.total_tokens
    );
}

#[tokio::test]
async fn without_a_model_in_the_policy_the_usage_is_of_the_servers_model() {
    let model = ScriptedModel::saying("Hello.").await;
    let app = TestApp::with_scripted_model(&model).await;
    let conversation = app.conversation().await;
    conversation.append("hello").await;
    let usage = conversation.usage().await;
    assert_eq!(
        (usage.window_tokens, usage.model_window_tokens),
        (8_192, 8_192)
    );
    assert!((usage.used_share - usage.total_tokens as f64 / 8_192.0).abs() < 1e-9);
}

#[tokio::test]
async fn with_a_model_in_the_policy_the_usage_is_of_that_models_window() {
    let model = ScriptedModel::saying("Hello.").await;
    let (providers, _) = model.settings(&[MODEL]);
    let models = serde_json::from_value(json!({
        MODEL: {"provider": "scripted", "window_tokens": 8_192},
        "large": {"provider": "scripted", "window_tokens": 100_000},
    }))
    .expect("the settings are valid");
    let app = TestApp::with_models((providers, models), "large").await;
    let policy = pb::Policy {
        model: MODEL.into(),
        ..Default::default()
    };
    let conversation = app.conversation_with_policy(policy.clone()).await;
    conversation.append("hello").await;
    let without_model = app.conversation().await;
    without_model.append("hello").await;
    let ask = pb::GetContextUsageRequest {
        conversation_id: without_model.id.clone(),
        policy: Some(policy),
        ..Default::default()
    };
    let with_policy_of_the_call = app
        .contexts()
        .get_context_usage(ask)
        .await
        .expect("usage")
        .into_inner();
    for usage in [conversation.usage().await, with_policy_of_the_call] {
        assert_eq!(
            (usage.window_tokens, usage.model_window_tokens),
            (8_192, 8_192)
        );
        assert_eq!(usage.token_threshold, 2_000_000, "is not the window");
        assert!((usage.used_share - usage.total_tokens as f64 / 8_192.0).abs() < 1e-9);
    }
    assert_eq!(without_model.usage().await.window_tokens, 100_000);
}

#[tokio::test]
async fn usage_by_segment_agrees_with_the_context() {
    let app = TestApp::counted_by_workers().await;
    let ask = pb::CreateConversationRequest {
        system_prompt: "Be brief.".into(),
        ..Default::default()
    };
    let conversation = app.conversation_with(ask).await;
    conversation.turns(5).await;
    let ask = pb::GetContextUsageRequest {
        conversation_id: conversation.id.clone(),
        window_tokens: 1_000,
        ..Default::default()
    };
    assert!(
        app.contexts()
            .get_context_usage(ask.clone())
            .await
            .expect("usage")
            .into_inner()
            .estimated
    );
    app.run_jobs_until_idle().await;
    let usage = app
        .contexts()
        .get_context_usage(ask)
        .await
        .expect("usage")
        .into_inner();
    let built = conversation.context().await.0;
    assert_eq!(usage.total_tokens, built.total_tokens);
    assert_eq!(
        usage
            .segments
            .iter()
            .map(|segment| segment.tokens)
            .sum::<u64>(),
        usage.total_tokens
    );
    assert!((usage.used_share - usage.total_tokens as f64 / 1_000.0).abs() < 1e-9);
    assert!(!usage.estimated);
    assert_eq!((usage.tail_messages, usage.max_message_count), (10, 50));
}

#[tokio::test]
async fn a_compaction_without_a_wait_is_pending() {
    let app = TestApp::start().await;
    let conversation = app.conversation().await;
    conversation.turns(5).await;
    app.run_jobs_until_idle().await;
    let ask = pb::CompactRequest {
        conversation_id: conversation.id.clone(),
        ..Default::default()
    };
    let compacted = app
        .contexts()
        .compact(ask)
        .await
        .expect("enqueues")
        .into_inner();
    assert_eq!(compacted.outcome(), pb::CompactOutcome::Pending);
}

#[tokio::test]
async fn a_manual_compaction_waits_for_its_checkpoint_and_repeats_it() {
    let app = TestApp::start().await;
    let conversation = app.conversation().await;
    for n in 0..8 {
        conversation
            .turn(
                &format!("What is the capital of country {n}, and how many live there?"),
                &format!("City-{n}; {n}00,000 people live there."),
            )
            .await;
    }
    let stop = tokio_util::sync::CancellationToken::new();
    let (worker, stopping) = (app.worker(), stop.clone());
    let running = tokio::spawn(async move { worker.run(stopping).await });
    let wait = Some(prost_types::Duration {
        seconds: 60,
        nanos: 0,
    });
    let ask = pb::CompactRequest {
        conversation_id: conversation.id.clone(),
        request_id: "k1".into(),
        focus: "people".into(),
        wait,
        ..Default::default()
    };
    let first = app
        .contexts()
        .compact(ask.clone())
        .await
        .expect("compacts")
        .into_inner();
    assert_eq!(first.outcome(), pb::CompactOutcome::Created, "{first:?}");
    let repeated = app
        .contexts()
        .compact(ask)
        .await
        .expect("repeats")
        .into_inner();
    assert_eq!(repeated, first);
    let checkpoint = first.checkpoint.expect("a checkpoint");
    assert_eq!(
        (checkpoint.focus.as_str(), checkpoint.trigger()),
        ("people", pb::CheckpointTrigger::Manual)
    );
    stop.cancel();
    running.await.expect("stops");
    conversation.verify().await;
}

#[tokio::test]
async fn a_compaction_may_wait_longer_than_other_calls_may_take() {
    let app = TestApp::start().await;
    let conversation = app.conversation().await;
    conversation.turns(8).await;
    // Other calls get ten seconds by default.
    let wait = Some(prost_types::Duration {
        seconds: 11,
        nanos: 0,
    });
    let ask = pb::CompactRequest {
        conversation_id: conversation.id.clone(),
        wait,
        ..Default::default()
    };
    let answered = app
        .contexts()
        .compact(ask)
        .await
        .expect("waits without a worker")
        .into_inner();
    assert_eq!(answered.outcome(), pb::CompactOutcome::Pending);
}

#[tokio::test]
async fn a_verification_finds_every_violation_that_the_test_makes() {
    let app = TestApp::start().await;
    // The number of a promise in `Violation.promise` of the proto (0: inconsistent figures), and a
    // statement that breaks it.
    let statements = [
        (3, "delete from ai_message where conversation_id = $1 and message_id = 5"),
        (3, "update ai_message set turn = turn + 1 where conversation_id = $1 and message_id = 4"),
        (3, "update ai_conversation set last_message_id = last_message_id + 1 where conversation_id = $1"),
        (12, "update ai_message set content = '[]' where conversation_id = $1 and message_id = 7"),
        (
            12,
            "update ai_message set content = replace(content::text, 'Question', 'question')::json where conversation_id = $1 and message_id = 7",
        ),
        (0, "update ai_message set token_count = token_count + 1 where conversation_id = $1 and message_id = 2"),
        (0, "update ai_conversation set token_total = token_total - 1 where conversation_id = $1"),
        (0, "update ai_conversation set turn = turn + 1 where conversation_id = $1"),
        (0, "update ai_message set token_count = null where conversation_id = $1 and message_id = 3"),
        (
            6,
            "update ai_conversation_checkpoint set source_digest = 'x' where conversation_id = $1 and previous_message_id is null",
        ),
        (
            6,
            "update ai_conversation_checkpoint set generation = 9 where conversation_id = $1 and previous_message_id is null",
        ),
        (
            7,
            "update ai_conversation_checkpoint set source_first_message_id = source_first_message_id + 1
             where conversation_id = $1 and previous_message_id is not null",
        ),
        (7, "delete from ai_message where conversation_id = $1 and message_id > 5"),
    ];
    for (promise, statement) in statements {
        let conversation = create_compacted_conversation(&app).await;
        conversation.verify().await;
        let id: uuid::Uuid = conversation.id.parse().expect("a UUID");
        let changed = sqlx::query(statement)
            .bind(id)
            .execute(&mut app.db().await)
            .await
            .expect("runs");
        assert!(changed.rows_affected() > 0, "{statement}");
        let ask = pb::VerifyConversationRequest {
            conversation_id: conversation.id.clone(),
        };
        let verified = app
            .operators()
            .verify_conversation(ask)
            .await
            .expect("verifies")
            .into_inner();
        assert!(
            verified
                .violations
                .iter()
                .any(|found| found.promise == promise),
            "{statement}: {:#?}",
            verified.violations
        );
    }
}
