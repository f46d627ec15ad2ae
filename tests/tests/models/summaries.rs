//! Summaries written by a language model: what is stored, limits on the calls, when a summary is
//! rewritten from the messages, a Compact that waits for its summary, and a model that hangs.

use anneal_core::tokens::Tokens;
use anneal_testkit::{
    Gate, ModelWorkerSettings, ReportedUsage, SUMMARY_MODEL, Script, ScriptedModel, TestApp,
    TestConversation, eventually, pb, prose, user,
};
use tokio_util::sync::CancellationToken;

/// Creates a conversation with twelve messages. A checkpoint is due at ten.
async fn create_six_turns_due_for_checkpoint(app: &TestApp) -> TestConversation<'_> {
    let policy = pb::Policy {
        max_message_count: Some(10),
        keep_recent_turns: Some(1),
        ..Default::default()
    };
    let conversation = app.conversation_with_policy(policy).await;
    append_six_turns(&conversation, 0).await;
    conversation
}

/// Appends six turns, numbered from `from`.
async fn append_six_turns(conversation: &TestConversation<'_>, from: usize) {
    for number in from..from + 6 {
        let question = format!(
            "What is the capital of country number {number}, and how many people live there today?"
        );
        conversation
            .turn(
                &question,
                &format!(
                    "It is City-{number}, and {number} million people live in it and around it."
                ),
            )
            .await;
    }
}

async fn newest_checkpoint(conversation: &TestConversation<'_>) -> pb::Checkpoint {
    conversation
        .checkpoints()
        .await
        .into_iter()
        .next()
        .expect("there is a checkpoint")
}

#[tokio::test]
async fn a_summary_is_stored_with_its_model_and_cost() {
    let counted = ReportedUsage {
        input: 700,
        output: 40,
        ..ReportedUsage::default()
    };
    let model =
        ScriptedModel::start(move |request| Script::summarizes_counted(request, counted)).await;
    let app = TestApp::start().await;
    let conversation = create_six_turns_due_for_checkpoint(&app).await;
    app.worker_with_model(&ModelWorkerSettings::for_model(&model))
        .run_until_idle()
        .await;
    let checkpoint = newest_checkpoint(&conversation).await;
    assert_eq!(checkpoint.kind(), pb::SummaryKind::Llm);
    assert_eq!(
        (
            checkpoint.model.as_str(),
            checkpoint.prompt_version,
            checkpoint.generation
        ),
        (SUMMARY_MODEL, 1, 1)
    );
    assert_eq!(
        (
            checkpoint.model_calls,
            checkpoint.input_tokens,
            checkpoint.output_tokens
        ),
        (1, 700, 40)
    );
    assert!(
        checkpoint.summary.contains("each of them was answered"),
        "{}",
        checkpoint.summary
    );
    assert!(checkpoint.tokens_after < checkpoint.tokens_before);
    assert_eq!(model.requests().len(), 1);
    let stats = app
        .operators()
        .get_model_stats(pb::GetModelStatsRequest {})
        .await
        .expect("answers")
        .into_inner();
    let [figures] = &stats.models[..] else {
        panic!("one model")
    };
    assert_eq!(
        (
            figures.model.as_str(),
            figures.calls_today,
            figures.failed_calls_today
        ),
        (SUMMARY_MODEL, 1, 0)
    );
    assert_eq!(
        (
            figures.input_tokens_today,
            figures.output_tokens_today,
            figures.calls_under_way
        ),
        (700, 40, 0)
    );
    conversation.verify().await;
}

#[tokio::test]
async fn a_large_message_is_summarized_by_the_model_and_marked_as_such() {
    let model = ScriptedModel::start(Script::summarizes).await;
    let app = TestApp::start().await;
    let policy = pb::Policy {
        large_message_threshold: Some(500),
        hot_zone_radius: Some(0),
        ..Default::default()
    };
    let conversation = app.conversation_with_policy(policy).await;
    conversation
        .append_all(vec![user(&prose(3, 90))])
        .send()
        .await
        .expect("appends");
    conversation.turns(2).await;
    app.worker_with_model(&ModelWorkerSettings::for_model(&model))
        .run_until_idle()
        .await;
    let query = "select summary_kind, summary_model, summary_input_tokens, summary_output_tokens, summary_duration_ms is not null
               from ai_message where message_id = 1";
    let (kind, summary_model, input, output, has_duration): (i16, String, i64, i64, bool) =
        sqlx::query_as(query)
            .fetch_one(&mut app.db().await)
            .await
            .expect("is there");
    // Kind 1: by a model.
    assert_eq!((kind, summary_model.as_str()), (1, SUMMARY_MODEL));
    assert!(has_duration && input > 500 && output > 0);
    let built = conversation.context().await;
    assert_eq!(built.representation(1).0, pb::Representation::Summary);
    assert!(
        built.text().contains("each of them was answered"),
        "{}",
        built.text()
    );
}

#[tokio::test]
async fn after_five_generations_a_summary_is_rewritten_from_the_messages() {
    let model = ScriptedModel::start(Script::summarizes).await;
    let app = TestApp::start().await;
    let conversation = create_six_turns_due_for_checkpoint(&app).await;
    let worker = app.worker_with_model(&ModelWorkerSettings::for_model(&model));
    let (mut generations, mut are_from_messages) = (Vec::new(), Vec::new());
    for round in 1..=7 {
        worker.run_until_idle().await;
        let checkpoint = newest_checkpoint(&conversation).await;
        generations.push(checkpoint.generation);
        are_from_messages.push(checkpoint.source_first_message_id == 1);
        append_six_turns(&conversation, 6 * round).await;
    }
    assert_eq!(generations, [1, 2, 3, 4, 5, 1, 2]);
    assert_eq!(
        are_from_messages[4..],
        [false, true, false],
        "the summaries of the rounds 5, 6 and 7"
    );
    let sixth_prompt = model
        .requests()
        .into_iter()
        .nth(5)
        .expect("six calls")
        .texts()
        .concat();
    assert!(
        sixth_prompt.contains("country number 0,")
            && !sixth_prompt.contains("\"earlier_summary\","),
        "{sixth_prompt}"
    );
    conversation.verify().await;
}

#[tokio::test]
async fn a_models_call_limit_holds_across_workers() {
    let gate = Gate::default();
    let held = gate.clone();
    let model = ScriptedModel::start(move |request| Script::summarizes(request).after(&held)).await;
    let app = TestApp::start().await;
    let other = app.second_server().await;
    let (one, two) = (
        create_six_turns_due_for_checkpoint(&app).await,
        create_six_turns_due_for_checkpoint(&app).await,
    );
    let mut worker_settings = ModelWorkerSettings::for_model(&model);
    worker_settings.models = serde_json::from_value(serde_json::json!({
        SUMMARY_MODEL: {"provider": "scripted", "window_tokens": 8_192, "concurrent_calls": 1}
    }))
    .expect("settings of a model");
    let workers = [
        app.worker_with_model(&worker_settings),
        other.worker_with_model(&worker_settings),
    ];
    let stop = CancellationToken::new();
    let running = workers.map(|worker| {
        let stop = stop.clone();
        tokio::spawn(async move { worker.run(stop).await })
    });
    model.wait_for_calls(1).await;
    eventually("both jobs run", async || {
        let queues = app
            .operators()
            .get_queue_stats(pb::GetQueueStatsRequest {})
            .await
            .expect("answers")
            .into_inner();
        queues.queues.iter().map(|queue| queue.running).sum::<i64>() == 2
    })
    .await;
    gate.open_for_ever();
    eventually("both have summaries", async || {
        !one.checkpoints().await.is_empty() && !two.checkpoints().await.is_empty()
    })
    .await;
    assert_eq!(
        (model.requests().len(), model.most_open_calls()),
        (2, 1),
        "the second call waited until the first had ended"
    );
    stop.cancel();
    for running in running {
        running.await.expect("stops");
    }
    for conversation in [one, two] {
        assert_eq!(
            newest_checkpoint(&conversation).await.kind(),
            pb::SummaryKind::Llm
        );
    }
}

#[tokio::test]
async fn a_tenant_over_its_daily_tokens_gets_extracts() {
    let model = ScriptedModel::start(Script::summarizes).await;
    let app = TestApp::start().await;
    let (first, second) = (
        create_six_turns_due_for_checkpoint(&app).await,
        create_six_turns_due_for_checkpoint(&app).await,
    );
    let mut worker_settings = ModelWorkerSettings::for_model(&model);
    worker_settings.access.tokens_per_day = Some(Tokens::new(9_000));
    let worker = app.worker_with_model(&worker_settings);
    worker.run_until_idle().await;
    let spend = "update ai_model_spend set input_tokens = 9000";
    let kinds = [
        newest_checkpoint(&first).await.kind(),
        newest_checkpoint(&second).await.kind(),
    ];
    assert_eq!(kinds, [pb::SummaryKind::Llm; 2]);
    sqlx::query(spend)
        .execute(&mut app.db().await)
        .await
        .expect("spends");
    let third = create_six_turns_due_for_checkpoint(&app).await;
    worker.run_until_idle().await;
    assert_eq!(
        newest_checkpoint(&third).await.kind(),
        pb::SummaryKind::Extractive
    );
    assert_eq!(model.requests().len(), 2);
}

#[tokio::test]
async fn compact_waits_for_the_model_and_returns_its_summary() {
    let model = ScriptedModel::start(Script::summarizes).await;
    let app = TestApp::start().await;
    let conversation = app.conversation().await;
    append_six_turns(&conversation, 0).await;
    append_six_turns(&conversation, 6).await;
    let ask = pb::CompactRequest {
        conversation_id: conversation.id.clone(),
        request_id: "c".into(),
        focus: "the sea".into(),
        ..Default::default()
    };
    let at_once = app
        .contexts()
        .compact(ask.clone())
        .await
        .expect("answers")
        .into_inner();
    assert_eq!(at_once.outcome(), pb::CompactOutcome::Pending);
    let worker = app.worker_with_model(&ModelWorkerSettings::for_model(&model));
    let wait = Some(prost_types::Duration {
        seconds: 30,
        nanos: 0,
    });
    let (waited, _) = tokio::join!(
        async {
            app.contexts()
                .compact(pb::CompactRequest {
                    wait,
                    ..ask.clone()
                })
                .await
        },
        worker.run_until_idle()
    );
    let done = waited.expect("answers").into_inner();
    assert_eq!(done.outcome(), pb::CompactOutcome::Created);
    let checkpoint = done.checkpoint.expect("with the checkpoint");
    assert_eq!(
        (checkpoint.kind(), checkpoint.model.as_str()),
        (pb::SummaryKind::Llm, SUMMARY_MODEL)
    );
    assert!(checkpoint.tokens_after < checkpoint.tokens_before && checkpoint.last_message_id > 0);
    assert!(
        model.requests()[0].texts().concat().contains("the sea"),
        "the focus reaches the model"
    );
    let repeated = app
        .contexts()
        .compact(ask)
        .await
        .expect("answers")
        .into_inner();
    assert_eq!(
        repeated.checkpoint,
        Some(checkpoint),
        "a repeated request finds its checkpoint"
    );
}

#[tokio::test]
async fn a_hanging_model_delays_no_other_work() {
    let model = ScriptedModel::start(|_| Script::hang()).await;
    let app = TestApp::start().await;
    let conversations =
        futures::future::join_all((0..4).map(|_| create_six_turns_due_for_checkpoint(&app))).await;
    let mut worker_settings = ModelWorkerSettings::for_model(&model);
    worker_settings.worker.stop_seconds = 0;
    let worker = app.worker_with_model(&worker_settings);
    let stop = CancellationToken::new();
    let working = tokio::spawn({
        let (worker, stop) = (worker.clone(), stop.clone());
        async move { worker.run(stop).await }
    });
    // Two jobs, the default of `worker.summary_concurrency`, call the model.
    model.wait_for_calls(2).await;
    // If a connection were held, it would stay held: PostgreSQL ends an idle transaction but does
    // not return the connection to the pool.
    eventually("no connection is held while the model hangs", async || {
        app.store
            .pool_figures()
            .iter()
            .all(|(_, pool)| pool.idle == pool.open && pool.waiting == 0)
    })
    .await;
    for conversation in &conversations {
        conversation.turn("And what now?", "Nothing waits.").await;
        // The conversation's twelve messages and the new turn.
        assert_eq!(conversation.context().await.0.messages.len(), 14);
    }
    eventually("new messages are counted", async || {
        let uncounted = "select count(*) from ai_message where token_count is null";
        let messages: i64 = sqlx::query_scalar(uncounted)
            .fetch_one(&mut app.db().await)
            .await
            .expect("asks");
        messages == 0
    })
    .await;
    assert_eq!(
        model.open_calls(),
        2,
        "the worker's limit of concurrent calls"
    );
    stop.cancel();
    model.wait_for_closed_calls(2).await;
    working.await.expect("stops");
}
