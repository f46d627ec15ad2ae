//! GetContextUsage says whether summaries of a conversation can be made, and if not, why.

use anneal_core::admission::BreakerSettings;
use anneal_testkit::{
    ModelWorkerSettings, Script, ScriptedModel, TestApp, TestConversation, pb, sentence,
};
use anneal_worker::Fallback;
use pb::{SummaryHealth, SummaryState};

/// Creates a conversation of 12 messages, whose checkpoint is due at ten.
async fn create_due_conversation(app: &TestApp) -> TestConversation<'_> {
    let policy = pb::Policy {
        max_message_count: Some(10),
        keep_recent_turns: Some(1),
        ..Default::default()
    };
    let conversation = app.conversation_with_policy(policy).await;
    for turn in 0..6 {
        conversation
            .turn(&sentence(2 * turn), &sentence(2 * turn + 1))
            .await;
    }
    conversation
}

async fn read_health(conversation: &TestConversation<'_>) -> SummaryHealth {
    conversation.usage().await.summaries.expect("is reported")
}

/// Runs the checkpoint job with a model that answers with this status, and no fallback.
async fn fail_with(app: &TestApp, status: u16, breaker: BreakerSettings) {
    let body = "{\"error\":{\"message\":\"Incorrect: the user said plover\"}}";
    let model = ScriptedModel::start(move |_| Script::status(status, &[], body)).await;
    let mut settings = ModelWorkerSettings::for_model(&model);
    settings.summarizer.fallback = Fallback::None;
    settings.access.breaker = breaker;
    app.worker_with_model(&settings).run_until_idle().await;
}

#[tokio::test]
async fn summaries_that_can_be_made_are_ok() {
    let app = TestApp::start().await;
    let conversation = create_due_conversation(&app).await;
    assert_eq!(
        read_health(&conversation).await,
        SummaryHealth {
            state: SummaryState::Ok.into(),
            ..Default::default()
        }
    );
    app.run_jobs_until_idle().await;
    assert_eq!(conversation.checkpoints().await.len(), 1);
    assert_eq!(read_health(&conversation).await.state(), SummaryState::Ok);
}

#[tokio::test]
async fn a_tail_that_cannot_be_cut_is_stalled_until_the_next_message() {
    let app = TestApp::start().await;
    let policy = pb::Policy {
        max_message_count: Some(1),
        keep_recent_from_last_user_message: Some(true),
        ..Default::default()
    };
    let conversation = app.conversation_with_policy(policy).await;
    conversation.append("The only question.").await;
    app.run_jobs_until_idle().await;
    let health = read_health(&conversation).await;
    assert_eq!(
        (health.state(), health.until_message_id),
        (SummaryState::Stalled, 1)
    );
    conversation.append("The next one.").await;
    let health = read_health(&conversation).await;
    assert_eq!(
        (health.state(), health.until_message_id),
        (SummaryState::Ok, 0)
    );
}

#[tokio::test]
async fn an_open_breaker_is_shown_with_its_cause_and_the_time_that_is_left() {
    let app = TestApp::start().await;
    app.postpone_failed_jobs().await;
    let conversation = create_due_conversation(&app).await;
    let breaker = BreakerSettings {
        failures: 1,
        ..BreakerSettings::default()
    };
    fail_with(&app, 500, breaker).await;
    let health = read_health(&conversation).await;
    assert_eq!(health.state(), SummaryState::BreakerOpen);
    let left = health.retry_after.expect("the time that is left");
    assert!(left.seconds > 0 || left.nanos > 0);
    assert!(
        health.last_failure.contains("status 500"),
        "{}",
        health.last_failure
    );
    let other = app.conversation().await;
    assert_eq!(
        read_health(&other).await.state(),
        SummaryState::Ok,
        "one failure opens the breaker of its conversation"
    );
}

#[tokio::test]
async fn a_job_that_was_given_up_is_shown_without_the_providers_words() {
    let app = TestApp::start().await;
    let conversation = create_due_conversation(&app).await;
    let breaker = BreakerSettings {
        failures: 100,
        ..BreakerSettings::default()
    };
    fail_with(&app, 401, breaker).await;
    let health = read_health(&conversation).await;
    assert_eq!(health.state(), SummaryState::Dead);
    assert!(
        health.last_failure.contains("status 401") && !health.last_failure.contains("plover"),
        "{}",
        health.last_failure
    );
}
