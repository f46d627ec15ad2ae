//! Deletes the conversations of users and tenants that are to be erased, step by step, while the
//! worker runs. All workers do so; each step is one transaction of one worker.

use std::time::{Duration, Instant};

use anneal_store::{ErasureStep, Store, StoreError};
use tracing::{info, warn};

use crate::{pause::sleep_about, settings::WorkerSettings};

/// Works on erasures until the future is dropped. After each step, also one that has failed, it
/// waits for as long as the step took, so that the database has time for other work; while there is
/// nothing to do, it looks once per poll interval.
pub(crate) async fn run_erasure_loop(store: &Store, settings: &WorkerSettings) {
    let poll_interval = Duration::from_millis(u64::from(settings.poll_ms));
    metrics::counter!("anneal_erased_conversations_total").increment(0);
    metrics::counter!("anneal_erasures_ended_total").increment(0);
    metrics::counter!("anneal_erasure_steps_failed_total").increment(0);
    loop {
        let started = Instant::now();
        let pause = match make_step(store).await {
            Ok(ErasureStep::Deleted(_) | ErasureStep::Ended(_)) => started.elapsed(),
            Ok(ErasureStep::Idle | ErasureStep::Busy) => poll_interval.max(started.elapsed()),
            Err(error) => {
                store.log_failure(&error, || {
                    warn!("could not make a step of an erasure: {error}");
                });
                poll_interval
            }
        };
        sleep_about(pause).await;
    }
}

/// Makes steps until there is no erasure left, or none that can go on.
pub(crate) async fn run_until_idle(store: &Store) -> Result<(), StoreError> {
    while let ErasureStep::Deleted(_) | ErasureStep::Ended(_) = make_step(store).await? {}
    Ok(())
}

async fn make_step(store: &Store) -> Result<ErasureStep, StoreError> {
    let round = store.run_erasure_step().await?;
    for (id, error) in &round.failures {
        metrics::counter!("anneal_erasure_steps_failed_total").increment(1);
        store.log_failure(error, || {
            warn!(erasure = %id, "a step of the erasure {id} failed, it is tried again: {error}");
        });
    }
    match round.step {
        ErasureStep::Idle | ErasureStep::Busy => {}
        ErasureStep::Deleted(conversations) => {
            metrics::counter!("anneal_erased_conversations_total").increment(conversations);
        }
        ErasureStep::Ended(id) => {
            metrics::counter!("anneal_erasures_ended_total").increment(1);
            info!(erasure = %id, "ended the erasure {id}: no conversation is left");
        }
    }
    Ok(round.step)
}
