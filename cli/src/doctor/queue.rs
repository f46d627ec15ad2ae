//! Judges the queue: jobs that wait for long, jobs that were given up, and whether workers run.

use std::time::Duration;

use anneal_store::{QueueFigures, Store, StoreError, WorkerFigures};

use super::finding::Finding;

/// A job that is due for longer than this means that the workers do not keep up.
const LATE: Duration = Duration::from_mins(1);

/// Reads and judges the queue.
pub(super) async fn examine(store: &Store) -> Result<Vec<Finding>, StoreError> {
    let (queues, workers) =
        tokio::try_join!(store.read_queue_figures(), store.list_working_workers())?;
    Ok(vec![judge_waiting(&queues, &workers), judge_dead(&queues)])
}

fn judge_waiting(queues: &[QueueFigures], workers: &[WorkerFigures]) -> Finding {
    let check = "queue.waiting";
    let ready: i64 = queues.iter().map(|queue| queue.ready).sum();
    let oldest_us = queues
        .iter()
        .map(|queue| queue.oldest_ready_us)
        .max()
        .unwrap_or_default();
    let oldest = Duration::from_micros(u64::try_from(oldest_us).unwrap_or_default());
    let running = if workers.is_empty() {
        "no worker runs a job".to_owned()
    } else {
        let names: Vec<&str> = workers.iter().map(|worker| worker.name.as_str()).collect();
        format!("jobs run on {}", names.join(", "))
    };
    let found = format!(
        "{ready} jobs are due, the oldest for {} s; {running}",
        oldest.as_secs()
    );
    match (oldest > LATE, workers.is_empty()) {
        (false, _) => Finding::ok(check, found),
        (true, true) => Finding::problem(
            check,
            found,
            "start `anneal worker`, or see in the log of the workers why they claim nothing",
        ),
        (true, false) => Finding::warning(
            check,
            found,
            "start more workers, or raise worker.count_concurrency and worker.summary_concurrency",
        ),
    }
}

fn judge_dead(queues: &[QueueFigures]) -> Finding {
    let check = "queue.dead";
    let kinds: Vec<String> = queues
        .iter()
        .filter(|queue| queue.dead > 0)
        .map(|queue| format!("{} {}", queue.dead, queue.kind.name()))
        .collect();
    if kinds.is_empty() {
        return Finding::ok(check, "no job was given up");
    }
    Finding::warning(
        check,
        format!("jobs were given up: {}", kinds.join(", ")),
        "see why with `anneal jobs list --state dead`, remove the cause, then `anneal jobs requeue`",
    )
}
