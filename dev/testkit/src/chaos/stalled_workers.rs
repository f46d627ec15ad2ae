//! Workers that are stopped for longer than their leases, repeatedly, and then continue.

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

/// Workers that are stopped at the same time. The others take their jobs.
const AT_ONCE: usize = 3;
/// How long to wait for further workers after the first one is in the middle of a summary.
const MORE_WITHIN: Duration = Duration::from_millis(500);
/// The time limit of a step of a round.
const STEP_TIMEOUT: Duration = Duration::from_secs(30);

/// Stops workers in the middle of summaries and continues them when others have their jobs, until
/// `times` workers were stopped. The leases of stopped workers are ended at once; waiting fifteen
/// seconds for each would take half an hour. The queue frees them like any expired lease.
pub async fn stall_workers(campaign: &Campaign, cluster: &mut Cluster, times: usize) -> Report {
    let mut running = RunningCampaign::start(campaign, cluster, Arc::<Findings>::default()).await;
    let injector = &mut running.injector;
    let mut client = Client::new(Arc::clone(&injector.state), 1_000, campaign.plan.seed);
    let mut db = try_connect(&injector.database.direct_url())
        .await
        .expect("no fault is active");
    let mut stalled = 0;
    while stalled < times {
        match stall_some(injector, &mut client, &mut db).await {
            0 => break,
            some => stalled += some,
        }
    }
    injector
        .state
        .findings
        .demand(stalled >= times, "jobs", || {
            format!("only {stalled} workers had something to lose")
        });
    running.finish().await
}

/// A stopped worker.
struct Zombie {
    pid: u32,
    number: u32,
    name: String,
    from: SystemTime,
}

/// One round. Returns how many workers were stopped in the middle of a summary and lost it.
async fn stall_some(
    injector: &mut FaultInjector<'_>,
    client: &mut Client,
    db: &mut PgConnection,
) -> usize {
    let asked_before = injector.model.calls();
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
    // Each chosen worker has called its model and holds a lease.
    let (mut ticks, began) = (looks(), Instant::now());
    let mut chosen = Vec::new();
    while chosen.len() < AT_ONCE
        && (chosen.is_empty() || began.elapsed() < MORE_WITHIN)
        && began.elapsed() < STEP_TIMEOUT
    {
        ticks.tick().await;
        chosen.clear();
        for worker in &running {
            if injector.model.has_asked_since(worker.1, asked_before)
                && count_leases(db, &worker.2).await > 0
            {
                chosen.push(worker.clone());
            }
        }
    }
    chosen.truncate(AT_ONCE);
    let mut zombies = Vec::new();
    for (pid, number, name) in chosen {
        let from = SystemTime::now();
        signal(pid, "STOP").await;
        zombies.push(Zombie {
            pid,
            number,
            name,
            from,
        });
    }
    let mut lost = Vec::new();
    for zombie in &zombies {
        // Its model answers while it is stopped.
        injector.model.release_answers(zombie.number);
        lost.push(expire_leases(db, &zombie.name).await);
    }
    for (_, number, _) in &running {
        injector.model.release_answers(*number);
    }
    let (mut ticks, began) = (looks(), Instant::now());
    while began.elapsed() < STEP_TIMEOUT {
        ticks.tick().await;
        let mut left = 0;
        for zombie in &zombies {
            left += count_leases(db, &zombie.name).await;
        }
        if left == 0 {
            break;
        }
    }
    let mut counted = 0;
    for (zombie, lost_jobs) in zombies.iter().zip(lost) {
        let left = count_leases(db, &zombie.name).await;
        injector.state.findings.demand(left == 0, "leases", || {
            format!("{} keeps {left} leases that ended", zombie.name)
        });
        lock(&injector.stalls).push(Stall {
            process: zombie.number,
            from: zombie.from,
            lost: SystemTime::now(),
        });
        signal(zombie.pid, "CONT").await;
        if lost_jobs > 0 {
            counted += 1;
            injector.state.tally.increment(Fault::StallWorker.name());
        }
    }
    counted
}

fn looks() -> tokio::time::Interval {
    let mut looks = interval(Duration::from_millis(25));
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    looks
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

/// Ends a worker's leases now. Returns the number of summaries and checkpoints among them. The lost
/// start is not counted: after twelve lost starts within minutes the queue would give a job up, as
/// it should for a job that kills workers.
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
