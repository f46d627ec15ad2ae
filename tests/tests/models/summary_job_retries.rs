//! Jobs that call a model: retry times, breakers, quotas, rate limits, costs of failed calls and
//! lost leases.

use std::{collections::HashSet, sync::Mutex, time::Duration};

use anneal_core::{admission::BreakerSettings, job::MAX_ATTEMPTS};
use anneal_testkit::{ModelWorkerSettings, Say, Script, ScriptedModel, TestApp, pb};
use anneal_worker::{Fallback, Worker};

use crate::due_checkpoints::{
    FailureScript, append_turns, count_llm_summaries, create_conversation_due_for_checkpoint,
    expire_postponements_and_cooldowns, list_checkpoint_jobs,
};

#[tokio::test]
async fn a_providers_retry_time_is_respected() {
    let limited: FailureScript = |_| Script::status(429, &[("retry-after", "120")], "{}");
    let model = ScriptedModel::start(limited).await;
    let app = TestApp::start().await;
    create_conversation_due_for_checkpoint(&app).await;
    app.worker_with_model(&ModelWorkerSettings::for_model(&model))
        .run_until_idle()
        .await;
    let [job] = &list_checkpoint_jobs(&app).await[..] else {
        panic!("the job waits")
    };
    // Kind 2: the checkpoint job.
    let query =
        "select extract(epoch from due_ts - now())::double precision from ai_job where kind = 2";
    let seconds_left: f64 = sqlx::query_scalar(query)
        .fetch_one(&mut app.db().await)
        .await
        .expect("asks");
    assert!(
        (110.0..=121.0).contains(&seconds_left),
        "{seconds_left} s: {}",
        job.last_error
    );
}

#[tokio::test]
async fn without_a_fallback_only_the_failing_conversations_job_dies() {
    let model = ScriptedModel::start(|request| {
        if request.raw.contains("POISON") {
            Script::raw(b"")
        } else {
            Script::summarizes(request)
        }
    })
    .await;
    let app = TestApp::start().await;
    let policy = pb::Policy {
        max_message_count: Some(10),
        keep_recent_turns: Some(1),
        ..Default::default()
    };
    let poisoned = app.conversation_with_policy(policy).await;
    poisoned
        .turn(
            "POISON, as a provider's gateway might dislike it.",
            "I see nothing wrong with it.",
        )
        .await;
    append_turns(&poisoned).await;
    let mut worker_settings = ModelWorkerSettings::for_model(&model);
    worker_settings.summarizer.fallback = Fallback::None;
    // The broken connections of one conversation must not open the model's breaker while the model
    // answers others.
    worker_settings.access.breaker = BreakerSettings {
        failures: 5,
        model_failures: 6,
        ..BreakerSettings::default()
    };
    let worker = app.worker_with_model(&worker_settings);
    let mut rounds = 0;
    while list_checkpoint_jobs(&app)
        .await
        .iter()
        .all(|job| job.state() != pb::JobState::Dead)
    {
        let healthy = create_conversation_due_for_checkpoint(&app).await;
        worker.run_until_idle().await;
        assert_eq!(
            healthy
                .checkpoints()
                .await
                .first()
                .map(pb::Checkpoint::kind),
            Some(pb::SummaryKind::Llm),
            "after {rounds} rounds"
        );
        rounds += 1;
        // In some rounds an open breaker postpones the job, so not every round is an attempt.
        assert!(rounds <= 3 * MAX_ATTEMPTS, "the job never dies");
        expire_postponements_and_cooldowns(&app).await;
    }
    let dead = list_checkpoint_jobs(&app).await;
    let [dead] = &dead[..] else {
        panic!("one dead job")
    };
    assert_eq!(
        (dead.attempts, dead.conversation_id.as_str()),
        (i32::from(MAX_ATTEMPTS), poisoned.id.as_str())
    );
    assert!(poisoned.checkpoints().await.is_empty());
    assert_eq!(count_llm_summaries(&app).await, i64::from(rounds));
    let stats = app
        .operators()
        .get_model_stats(pb::GetModelStatsRequest {})
        .await
        .expect("answers")
        .into_inner();
    assert_eq!(stats.conversations.len(), 1);
    assert_eq!(stats.conversations[0].conversation_id, poisoned.id);
}

#[tokio::test]
async fn an_open_breaker_postpones_jobs_without_counting_attempts() {
    let model = ScriptedModel::start(|_| Script::status(503, &[], "")).await;
    let app = TestApp::start().await;
    create_conversation_due_for_checkpoint(&app).await;
    let mut worker_settings = ModelWorkerSettings::for_model(&model);
    worker_settings.summarizer.fallback = Fallback::None;
    worker_settings.access.breaker = BreakerSettings {
        failures: 1,
        cooldown_seconds: 300,
        ..BreakerSettings::default()
    };
    let worker: Worker = app.worker_with_model(&worker_settings);
    for _ in 0..4 {
        worker.run_until_idle().await;
        let make_due = "update ai_job set due_ts = now() where state = 0";
        sqlx::query(make_due)
            .execute(&mut app.db().await)
            .await
            .expect("runs");
    }
    let [job] = &list_checkpoint_jobs(&app).await[..] else {
        panic!("the job waits")
    };
    assert_eq!((job.attempts, model.requests().len()), (1, 1));
    assert!(
        job.last_error
            .contains("breaker of this conversation is open"),
        "{}",
        job.last_error
    );
    worker.run_until_idle().await;
    // Kind 2: the checkpoint job.
    let query =
        "select extract(epoch from due_ts - now())::double precision from ai_job where kind = 2";
    let seconds_left: f64 = sqlx::query_scalar(query)
        .fetch_one(&mut app.db().await)
        .await
        .expect("asks");
    assert!(
        Duration::from_secs_f64(seconds_left) > Duration::from_secs(200),
        "{seconds_left} s"
    );
}

#[tokio::test]
async fn new_messages_do_not_start_a_postponed_job_early() {
    let model = ScriptedModel::start(|_| Script::status(503, &[], "")).await;
    let app = TestApp::start().await;
    let conversation = create_conversation_due_for_checkpoint(&app).await;
    let mut worker_settings = ModelWorkerSettings::for_model(&model);
    worker_settings.summarizer.fallback = Fallback::None;
    worker_settings.access.tokens_per_day = Some(anneal_core::tokens::Tokens::new(10));
    let worker = app.worker_with_model(&worker_settings);
    worker.run_until_idle().await;
    let [postponed] = &list_checkpoint_jobs(&app).await[..] else {
        panic!("the job waits")
    };
    assert!(
        postponed.last_error.contains("tokens of the day"),
        "{}",
        postponed.last_error
    );
    append_turns(&conversation).await;
    let ran = worker.run_until_idle().await;
    assert_eq!(ran, 1, "only the counting job");
    let [job] = &list_checkpoint_jobs(&app).await[..] else {
        panic!("the job waits")
    };
    assert_eq!(
        (job.due_time, job.attempts, model.requests().len()),
        (postponed.due_time, 0, 0)
    );
}

#[tokio::test]
async fn a_rate_limited_model_is_not_called_for_the_next_large_message() {
    let limited: FailureScript = |request| match request.nth {
        0 => Script::summarizes(request),
        _ => Script::status(429, &[("retry-after", "120")], "{}"),
    };
    let model = ScriptedModel::start(limited).await;
    let app = TestApp::start().await;
    let policy = pb::Policy {
        large_message_threshold: Some(300),
        max_message_count: Some(0),
        ..Default::default()
    };
    let conversation = app.conversation_with_policy(policy).await;
    for seed in 0..5 {
        conversation
            .append_all(vec![anneal_testkit::user(&anneal_testkit::prose(seed, 60))])
            .send()
            .await
            .expect("appends");
    }
    app.worker_with_model(&ModelWorkerSettings::for_model(&model))
        .run_until_idle()
        .await;
    assert_eq!(
        model.requests().len(),
        2,
        "one call is answered, one is rate-limited, three are not made"
    );
    assert_eq!(
        count_llm_summaries(&app).await,
        1,
        "the finished summary is kept"
    );
    // Kind 3: the job that summarizes large messages.
    let query = "select extract(epoch from due_ts - now())::double precision, attempts from ai_job where kind = 3";
    let (seconds_left, attempts): (f64, i16) = sqlx::query_as(query)
        .fetch_one(&mut app.db().await)
        .await
        .expect("asks");
    assert!(
        seconds_left > 100.0 && attempts == 1,
        "{seconds_left} s, {attempts} starts"
    );
}

#[tokio::test]
async fn rate_limited_calls_among_many_are_retried_at_once() {
    // Each call is rate-limited at most once: three times would postpone the job.
    let limited_calls = Mutex::new(HashSet::new());
    let model = ScriptedModel::start(move |request| {
        let mut limited_calls = limited_calls.lock().expect("no thread panicked");
        if request.nth % 3 == 1 && limited_calls.insert(request.raw.clone()) {
            Script::status(429, &[("retry-after-ms", "1")], "{}")
        } else {
            Script::summarizes(request)
        }
    })
    .await;
    let app = TestApp::start().await;
    let policy = pb::Policy {
        large_message_threshold: Some(5_000),
        max_message_count: Some(0),
        ..Default::default()
    };
    let conversation = app.conversation_with_policy(policy).await;
    conversation
        .append_all(vec![anneal_testkit::user(&anneal_testkit::prose(1, 3_000))])
        .send()
        .await
        .expect("appends");
    app.worker_with_model(&ModelWorkerSettings::for_model(&model))
        .run_until_idle()
        .await;
    assert_eq!(count_llm_summaries(&app).await, 1);
    assert!(
        model.requests().len() > 9,
        "{} calls: of ten or more, at least three are rate-limited",
        model.requests().len()
    );
}

#[tokio::test]
async fn the_cost_of_a_broken_answer_is_recorded() {
    let model = ScriptedModel::start(|request| {
        Script::says(request, Say::texts(&["It was ", "asked."])).cut_after(1)
    })
    .await;
    let app = TestApp::start().await;
    app.postpone_failed_jobs().await;
    create_conversation_due_for_checkpoint(&app).await;
    app.worker_with_model(&ModelWorkerSettings::for_model(&model))
        .run_until_idle()
        .await;
    let stats = app
        .operators()
        .get_model_stats(pb::GetModelStatsRequest {})
        .await
        .expect("answers")
        .into_inner();
    assert_eq!(
        (
            stats.models[0].calls_today,
            stats.models[0].failed_calls_today
        ),
        (1, 1)
    );
    assert!(stats.models[0].input_tokens_today > 500, "{stats:?}");
}

#[tokio::test]
async fn a_call_whose_lease_is_lost_does_not_count_as_a_failure_of_the_model() {
    let model = ScriptedModel::start(|_| Script::hang()).await;
    let app = TestApp::start().await;
    app.postpone_failed_jobs().await;
    create_conversation_due_for_checkpoint(&app).await;
    let worker = app.worker_with_model(&ModelWorkerSettings::for_model(&model));
    let running = tokio::spawn(async move { worker.run_until_idle().await });
    model.wait_for_calls(1).await;
    sqlx::query("delete from ai_model_lease")
        .execute(&mut app.db().await)
        .await
        .expect("deletes the lease");
    model.wait_for_closed_calls(1).await;
    running.await.expect("runs");
    let [job] = &list_checkpoint_jobs(&app).await[..] else {
        panic!("the job waits")
    };
    assert_eq!(job.attempts, 0, "{}", job.last_error);
    let stats = app
        .operators()
        .get_model_stats(pb::GetModelStatsRequest {})
        .await
        .expect("answers")
        .into_inner();
    assert_eq!(
        stats.models[0]
            .breaker
            .as_ref()
            .map(|breaker| breaker.failures),
        Some(0)
    );
}
