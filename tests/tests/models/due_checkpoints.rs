//! Functions that several test files share: they create a conversation that is due for a
//! checkpoint, make settings of workers that write the checkpoint, and read or change its jobs.

use anneal_testkit::{
    ModelRequest, ModelWorkerSettings, Script, ScriptedModel, TestApp, TestConversation, pb,
};

/// The answer of a failing model to a request.
pub(crate) type FailureScript = fn(&ModelRequest) -> Script;

/// Appends eight turns of the same form.
pub(crate) async fn append_turns(conversation: &TestConversation<'_>) {
    for number in 0..8 {
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

/// Creates a conversation of 16 messages. A checkpoint is due at ten.
pub(crate) async fn create_conversation_due_for_checkpoint(app: &TestApp) -> TestConversation<'_> {
    let policy = pb::Policy {
        max_message_count: Some(10),
        keep_recent_turns: Some(1),
        ..Default::default()
    };
    let conversation = app.conversation_with_policy(policy).await;
    append_turns(&conversation).await;
    conversation
}

/// Settings of a worker that reads at most 256 KiB of a model's response, so that an endless
/// response ends soon.
pub(crate) fn settings_with_small_responses(model: &ScriptedModel) -> ModelWorkerSettings {
    let mut worker_settings = ModelWorkerSettings::for_model(model);
    for provider in worker_settings.providers.values_mut() {
        provider.response_bytes = 256 * 1024;
    }
    worker_settings
}

/// [`settings_with_small_responses`] with short timeouts, for models that send nothing.
pub(crate) fn settings_with_short_timeouts(model: &ScriptedModel) -> ModelWorkerSettings {
    let mut worker_settings = settings_with_small_responses(model);
    for provider in worker_settings.providers.values_mut() {
        provider.first_byte_timeout_ms = 300;
        provider.total_timeout_ms = 1_500;
    }
    worker_settings
}

/// Lists the checkpoint jobs: waiting, running and dead ones.
pub(crate) async fn list_checkpoint_jobs(app: &TestApp) -> Vec<pb::Job> {
    let ask = pb::ListJobsRequest {
        kind: pb::JobKind::Checkpoint.into(),
        ..Default::default()
    };
    app.operators()
        .list_jobs(ask)
        .await
        .expect("lists")
        .into_inner()
        .jobs
}

/// Makes all waiting jobs (state 0) due and ends the cooldown of all open breakers.
pub(crate) async fn expire_postponements_and_cooldowns(app: &TestApp) {
    for update in [
        "update ai_job set due_ts = now() where state = 0",
        "update ai_conversation_breaker set open_until_ts = now() where open_until_ts is not null",
        "update ai_model_breaker set open_until_ts = now() where open_until_ts is not null",
        "update ai_tenant_breaker set open_until_ts = now() where open_until_ts is not null",
    ] {
        sqlx::query(update)
            .execute(&mut app.db().await)
            .await
            .expect("runs");
    }
}

/// Counts the checkpoints and message summaries that are stored as written by a model
/// (kind 1).
pub(crate) async fn count_llm_summaries(app: &TestApp) -> i64 {
    let count = "select (select count(*) from ai_conversation_checkpoint where kind = 1)
                      + (select count(*) from ai_message where summary_kind = 1)";
    sqlx::query_scalar(count)
        .fetch_one(&mut app.db().await)
        .await
        .expect("counts")
}
