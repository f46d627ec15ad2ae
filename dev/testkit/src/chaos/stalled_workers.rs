//! A campaign in which workers are suspended (SIGSTOP) until they have lost their leases, and are
//! then resumed, many times.

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use sqlx::PgConnection;
use tokio::time::{Instant, MissedTickBehavior, interval};

use super::{
    campaign::{Campaign, Report, RunningCampaign},
    client::Client,
    cluster::{Cluster, signal, try_connect},
    fault_injector::FaultInjector,
    findings::{Findings, lock},
    plan::Fault,
    processes::Stall,
};

/// Number of workers that are suspended at the same time. The others take their jobs.
const AT_ONCE: usize = 3;
/// How long to wait until further workers call the model after the first one.
const MORE_WITHIN: Duration = Duration::from_millis(500);
/// The time limit of a wait within a round.
const STEP_TIMEOUT: Duration = Duration::from_secs(30);

/// Runs a campaign that suspends workers in the middle of summaries and resumes them when they have
/// lost their leases, until `times` workers have lost one. The leases of suspended workers are
/// ended at once; waiting fifteen seconds for each would take half an hour. The queue frees them
/// like any expired lease.
pub async fn run_with_suspended_workers(
    campaign: &Campaign,
    cluster: &mut Cluster,
    times: usize,
) -> Report {
    let mut running = RunningCampaign::start(campaign, cluster, Arc::<Findings>::default()).await;
    let injector = &mut running.injector;
    let mut client = Client::new(Arc::clone(&injector.state), 1_000, campaign.plan.seed);
    let mut db = try_connect(&injector.database.direct_url())
        .await
        .expect("no fault is active");
    let mut stalled = 0;
    while stalled < times {
        match run_round(injector, &mut client, &mut db).await {
            0 => break,
            some => stalled += some,
        }
    }
    injector
        .state
        .findings
        .demand(stalled >= times, "jobs", || {
            format!(
                "only {stalled} of {times} workers were suspended while they held a summary job"
            )
        });
    running.finish().await
}

/// A suspended worker.
struct SuspendedWorker {
    pid: u32,
    number: u32,
    name: String,
    from: SystemTime,
}

/// Runs one round. Returns the number of workers that lost the lease of a summary job while they
/// were suspended.
async fn run_round(
    injector: &mut FaultInjector<'_>,
    client: &mut Client,
    db: &mut PgConnection,
) -> usize {
    let calls_before = injector.model.calls();
    let running: Vec<(u32, u32, String)> = injector
        .processes
        .running()
        .filter_map(|worker| Some((worker.process.id()?, worker.number, worker.name.clone())))
        .collect();
    for (_, number, _) in &running {
        injector.model.hold_answers(*number);
    }
    for _ in 0..AT_ONCE {
        if client.create_due_conversation().await.is_none() {
            return 0;
        }
    }
    // Chooses workers that have called the model and hold a lease.
    let (mut ticks, began) = (poll_interval(), Instant::now());
    let mut chosen = Vec::new();
    while chosen.len() < AT_ONCE
        && (chosen.is_empty() || began.elapsed() < MORE_WITHIN)
        && began.elapsed() < STEP_TIMEOUT
    {
        ticks.tick().await;
        chosen.clear();
        for worker in &running {
            if injector.model.has_asked_since(worker.1, calls_before)
                && count_leases(db, &worker.2).await > 0
            {
                chosen.push(worker.clone());
            }
        }
    }
    chosen.truncate(AT_ONCE);
    let mut suspended = Vec::new();
    for (pid, number, name) in chosen {
        let from = SystemTime::now();
        signal(pid, "STOP").await;
        suspended.push(SuspendedWorker {
            pid,
            number,
            name,
            from,
        });
    }
    let mut lost = Vec::new();
    for worker in &suspended {
        // The model answers the worker while it is suspended.
        injector.model.release_answers(worker.number);
        lost.push(expire_leases(db, &worker.name).await);
    }
    for (_, number, _) in &running {
        injector.model.release_answers(*number);
    }
    let (mut ticks, began) = (poll_interval(), Instant::now());
    while began.elapsed() < STEP_TIMEOUT {
        ticks.tick().await;
        let mut left = 0;
        for worker in &suspended {
            left += count_leases(db, &worker.name).await;
        }
        if left == 0 {
            break;
        }
    }
    let mut counted = 0;
    for (worker, lost_jobs) in suspended.iter().zip(lost) {
        let left = count_leases(db, &worker.name).await;
        injector.state.findings.demand(left == 0, "leases", || {
            format!(
                "{} still holds {left} jobs whose leases have ended",
                worker.name
            )
        });
        lock(&injector.stalls).push(Stall {
            process: worker.number,
            from: worker.from,
            lost: SystemTime::now(),
        });
        signal(worker.pid, "CONT").await;
        if lost_jobs > 0 {
            counted += 1;
            injector.state.tally.increment(Fault::StallWorker.name());
        }
    }
    counted
}

fn poll_interval() -> tokio::time::Interval {
    let mut ticks = interval(Duration::from_millis(25));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks
}

/// The number of summary and checkpoint jobs that a worker holds.
async fn count_leases(db: &mut PgConnection, worker: &str) -> i64 {
    let held = "select count(*) from ai_job where worker = $1 and state = 1 and kind in (2, 3)";
    sqlx::query_scalar(held)
        .bind(worker)
        .fetch_one(db)
        .await
        .expect("the database answers")
}

/// Makes a worker's leases end a second ago, so that the queue frees its jobs. Returns the number
/// of summary and checkpoint jobs among them. Subtracts the lost start from the job's attempts:
/// otherwise the queue would give up a job that loses twelve workers within minutes.
async fn expire_leases(db: &mut PgConnection, worker: &str) -> i64 {
    // Locks the jobs in the usual order, because a heartbeat may be running.
    let ends = "with theirs as (
            select kind, conversation_id from ai_job
            where worker = $1 and state = 1 order by kind, conversation_id for update
        ), lost as (
            update ai_job as j set lease_until_ts = now() - interval '1 second', attempts = j.attempts - 1
            from theirs where j.kind = theirs.kind and j.conversation_id = theirs.conversation_id returning j.kind
        ) select count(*) from lost where kind in (2, 3)";
    sqlx::query_scalar(ends)
        .bind(worker)
        .fetch_one(db)
        .await
        .expect("the database answers")
}
