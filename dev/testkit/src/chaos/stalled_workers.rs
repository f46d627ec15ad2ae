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

/// Maximum number of workers that are suspended at the same time. The others take their jobs.
const AT_ONCE: usize = 3;
/// How long a round waits for [`AT_ONCE`] workers to call the model. After that, one is enough.
const WAIT_FOR_ALL: Duration = Duration::from_millis(500);
/// The time limit of a wait within a round.
const STEP_TIMEOUT: Duration = Duration::from_secs(30);

/// Runs a campaign that suspends workers in the middle of summaries and resumes them when they have
/// lost their leases, until `times` workers have lost one. The leases of suspended workers are
/// ended at once, so that no round waits fifteen seconds for their end. The queue frees the jobs as
/// with any expired lease.
pub async fn run_with_suspended_workers(
    campaign: &Campaign,
    cluster: &mut Cluster,
    times: usize,
) -> Report {
    let mut running = RunningCampaign::start(campaign, cluster, Arc::<Findings>::default()).await;
    let injector = &mut running.injector;
    // The clients of the campaign have numbers below 1,000.
    let mut client = Client::new(Arc::clone(&injector.state), 1_000, campaign.plan.seed);
    let mut db = try_connect(&injector.database.direct_url())
        .await
        .expect("no fault is active");
    let mut stalled = 0;
    while stalled < times {
        match run_round(injector, &mut client, &mut db).await {
            0 => break,
            count => stalled += count,
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
    let calls_before = injector.model.call_count();
    // The process id, the number and the name of each running worker.
    let running: Vec<(u32, u32, String)> = injector
        .processes
        .running_workers()
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
        && (chosen.is_empty() || began.elapsed() < WAIT_FOR_ALL)
        && began.elapsed() < STEP_TIMEOUT
    {
        ticks.tick().await;
        chosen.clear();
        for worker in &running {
            let (_, number, name) = worker;
            if injector.model.has_called_since(*number, calls_before)
                && count_leases(db, name).await > 0
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
    let mut lost_job_counts = Vec::new();
    for worker in &suspended {
        // The model answers the worker while it is suspended.
        injector.model.release_answers(worker.number);
        lost_job_counts.push(expire_leases(db, &worker.name).await);
    }
    for (_, number, _) in &running {
        injector.model.release_answers(*number);
    }
    let (mut ticks, began) = (poll_interval(), Instant::now());
    while began.elapsed() < STEP_TIMEOUT {
        ticks.tick().await;
        let mut held_jobs = 0;
        for worker in &suspended {
            held_jobs += count_leases(db, &worker.name).await;
        }
        if held_jobs == 0 {
            break;
        }
    }
    let mut stalled = 0;
    for (worker, lost_jobs) in suspended.iter().zip(lost_job_counts) {
        let held_jobs = count_leases(db, &worker.name).await;
        injector
            .state
            .findings
            .demand(held_jobs == 0, "leases", || {
                format!(
                    "{} still holds {held_jobs} jobs whose leases have ended",
                    worker.name
                )
            });
        lock(&injector.stalls).push(Stall {
            worker_number: worker.number,
            from: worker.from,
            lost_leases_by: SystemTime::now(),
        });
        signal(worker.pid, "CONT").await;
        if lost_jobs > 0 {
            stalled += 1;
            injector.state.tally.increment(Fault::StallWorker.name());
        }
    }
    stalled
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
/// of summary and checkpoint jobs among them. Subtracts the lost start from each job's attempts:
/// otherwise the queue would give up a job that loses twelve workers within minutes.
async fn expire_leases(db: &mut PgConnection, worker: &str) -> i64 {
    // Locks the jobs in the usual order, because a heartbeat may be running.
    let expire = "with held as (
            select kind, conversation_id from ai_job
            where worker = $1 and state = 1 order by kind, conversation_id for update
        ), lost as (
            update ai_job as j set lease_until_ts = now() - interval '1 second', attempts = j.attempts - 1
            from held where j.kind = held.kind and j.conversation_id = held.conversation_id returning j.kind
        ) select count(*) from lost where kind in (2, 3)";
    sqlx::query_scalar(expire)
        .bind(worker)
        .fetch_one(db)
        .await
        .expect("the database answers")
}
