//! A model that is dead costs its own jobs time, and nobody else anything.

use anneal_core::admission::BreakerSettings;
use anneal_tests::{House, Script, ScriptedModel, eventually};
use anneal_worker::Fallback;
use tokio_util::sync::CancellationToken;

use crate::trouble::{checkpoint_jobs, impatient, ripe};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn jobs_that_wait_for_a_dead_model_are_left_alone() {
    let model = ScriptedModel::start(|_| Script::status(500, &[], "oops")).await;
    let house = House::start().await;
    for _ in 0..40 {
        ripe(&house).await;
    }
    let mut writing = impatient(&model);
    writing.summarizer.fallback = Fallback::None;
    writing.access.breaker = BreakerSettings { model_failures: 3, ..BreakerSettings::default() };
    let (worker, stop) = (house.worker_writing(&writing), CancellationToken::new());
    let running = tokio::spawn({
        let stop = stop.clone();
        async move { worker.run(stop).await }
    });
    eventually("the breaker is open", async || {
        let jobs = checkpoint_jobs(&house).await;
        jobs.len() == 40 && jobs.iter().any(|job| job.last_error.contains("breaker of this tenant"))
    })
    .await;
    // What is said meanwhile is counted, and rings for nothing else.
    let talk = house.conversation().await;
    for _ in 0..5 {
        talk.turns(1).await;
        eventually("it is counted", async || {
            talk.conversation().await.token_total.is_some_and(|total| total.estimated_messages == 0)
        })
        .await;
    }
    stop.cancel();
    running.await.expect("stops");
    let jobs = checkpoint_jobs(&house).await;
    let touched = jobs.iter().filter(|job| !job.last_error.is_empty()).count();
    assert_eq!(jobs.len(), 40);
    assert!((1..=10).contains(&touched), "{touched} of 40 jobs were claimed although the breaker was open");
}
