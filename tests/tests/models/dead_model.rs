//! A model that fails every call delays only the jobs that call it.

use anneal_core::admission::BreakerSettings;
use anneal_testkit::{Script, ScriptedModel, TestApp, eventually};
use anneal_worker::Fallback;
use tokio_util::sync::CancellationToken;

use crate::due_checkpoints::{
    create_conversation_due_for_checkpoint, list_checkpoint_jobs, settings_with_short_timeouts,
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn jobs_waiting_for_a_dead_model_are_not_started_early() {
    let model = ScriptedModel::start(|_| Script::status(500, &[], "oops")).await;
    let app = TestApp::start().await;
    for _ in 0..40 {
        create_conversation_due_for_checkpoint(&app).await;
    }
    let mut worker_settings = settings_with_short_timeouts(&model);
    worker_settings.summarizer.fallback = Fallback::None;
    worker_settings.access.breaker = BreakerSettings {
        model_failures: 3,
        ..BreakerSettings::default()
    };
    let (worker, stop) = (
        app.worker_with_model(&worker_settings),
        CancellationToken::new(),
    );
    let running = tokio::spawn({
        let stop = stop.clone();
        async move { worker.run(stop).await }
    });
    eventually("the breaker is open", async || {
        let jobs = list_checkpoint_jobs(&app).await;
        jobs.len() == 40
            && jobs
                .iter()
                .any(|job| job.last_error.contains("breaker of this tenant"))
    })
    .await;
    // Meanwhile new messages are counted. That starts none of the waiting jobs.
    let conversation = app.conversation().await;
    for _ in 0..5 {
        conversation.turns(1).await;
        eventually("the new messages are counted", async || {
            conversation
                .conversation()
                .await
                .token_total
                .is_some_and(|total| total.estimated_messages == 0)
        })
        .await;
    }
    stop.cancel();
    running.await.expect("stops");
    let jobs = list_checkpoint_jobs(&app).await;
    // A job that was claimed has an error: of its call, or that the breaker is open.
    let claimed = jobs.iter().filter(|job| !job.last_error.is_empty()).count();
    assert_eq!(jobs.len(), 40);
    // The tenant's breaker opens after three failed calls. When it refuses a job, the worker stops
    // claiming this tenant's checkpoint jobs, of which it runs two at a time. So it claims few.
    assert!(
        (1..=10).contains(&claimed),
        "{claimed} of 40 jobs were claimed"
    );
}
