//! Workers that stand still for longer than their leases, again and again, and go on as if nothing had been.

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use sqlx::PgConnection;
use tokio::time::{Instant, MissedTickBehavior, interval};

use super::{
    campaign::{Campaign, Report, Stage},
    client::Client,
    cluster::{Cluster, look, signal},
    crew::Stall,
    findings::{Findings, held},
    nemesis::Nemesis,
    plan::Fault,
};

/// Workers that stand still at once, of those that there are; the others take their jobs.
const AT_ONCE: usize = 3;
/// How long others may take to come to the middle of something beside the first.
const ENOUGH: Duration = Duration::from_millis(500);
/// How long a step of a round may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// Stops workers in the middle of summaries and lets them go on when others have their jobs, so many times altogether. So that
/// this does not take half an hour, leases of those who stand still end at once, and not after fifteen seconds: rescues find
/// them as they find any.
pub async fn zombies(campaign: &Campaign, cluster: &mut Cluster, times: usize) -> Report {
    let mut stage = Stage::set(campaign, cluster, Arc::<Findings>::default()).await;
    let nemesis = &mut stage.nemesis;
    let mut client = Client::new(Arc::clone(&nemesis.scene), 1_000, campaign.plan.seed);
    let mut db = look(&nemesis.database.direct()).await.expect("nothing disturbs it");
    let mut stalled = 0;
    while stalled < times {
        match stall_some(nemesis, &mut client, &mut db).await {
            0 => break,
            some => stalled += some,
        }
    }
    nemesis.scene.findings.demand(stalled >= times, "jobs", || format!("only {stalled} workers had something to lose"));
    stage.end().await
}

/// One that was stopped.
struct Zombie {
    pid: u32,
    number: u32,
    name: String,
    from: SystemTime,
}

/// One round; how many were stopped in the middle of a summary and have lost it.
async fn stall_some(nemesis: &mut Nemesis<'_>, client: &mut Client, db: &mut PgConnection) -> usize {
    let asked_before = nemesis.witness.calls();
    let running: Vec<(u32, u32, String)> = nemesis
        .crew
        .running()
        .filter_map(|worker| Some((worker.process.id()?, worker.number, worker.name.clone())))
        .collect();
    for (_, number, _) in &running {
        nemesis.witness.hold_back(*number);
    }
    for _ in 0..AT_ONCE {
        if client.bystander().await.is_none() {
            return 0;
        }
    }
    // Each has asked its model by then, for something that it holds a lease on.
    let (mut ticks, began) = (looks(), Instant::now());
    let mut chosen = Vec::new();
    while chosen.len() < AT_ONCE && (chosen.is_empty() || began.elapsed() < ENOUGH) && began.elapsed() < PATIENCE {
        ticks.tick().await;
        chosen.clear();
        for worker in &running {
            if nemesis.witness.has_asked_since(worker.1, asked_before) && leases(db, &worker.2).await > 0 {
                chosen.push(worker.clone());
            }
        }
    }
    chosen.truncate(AT_ONCE);
    let mut zombies = Vec::new();
    for (pid, number, name) in chosen {
        let from = SystemTime::now();
        signal(pid, "STOP").await;
        zombies.push(Zombie { pid, number, name, from });
    }
    let mut lost = Vec::new();
    for zombie in &zombies {
        // Its answer comes while it stands still.
        nemesis.witness.let_go(zombie.number);
        lost.push(lose(db, &zombie.name).await);
    }
    for (_, number, _) in &running {
        nemesis.witness.let_go(*number);
    }
    let (mut ticks, began) = (looks(), Instant::now());
    while began.elapsed() < PATIENCE {
        ticks.tick().await;
        let mut left = 0;
        for zombie in &zombies {
            left += leases(db, &zombie.name).await;
        }
        if left == 0 {
            break;
        }
    }
    let mut counted = 0;
    for (zombie, lost_jobs) in zombies.iter().zip(lost) {
        let left = leases(db, &zombie.name).await;
        nemesis
            .scene
            .findings
            .demand(left == 0, "leases", || format!("{} keeps {left} leases that ended", zombie.name));
        held(&nemesis.stalls).push(Stall { process: zombie.number, from: zombie.from, lost: SystemTime::now() });
        signal(zombie.pid, "CONT").await;
        if lost_jobs > 0 {
            counted += 1;
            nemesis.scene.tally.one(Fault::StallWorker.name());
        }
    }
    counted
}

fn looks() -> tokio::time::Interval {
    let mut looks = interval(Duration::from_millis(25));
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    looks
}

/// Summaries and checkpoints that a worker holds.
async fn leases(db: &mut PgConnection, worker: &str) -> i64 {
    let held = "select count(*) from ai_job where worker = $1 and state = 1 and kind in (2, 3)";
    sqlx::query_scalar(held).bind(worker).fetch_one(db).await.expect("the database answers")
}

/// Ends its leases now; of how many summaries and checkpoints. The start that this costs them does not count: twelve of them
/// within minutes would have jobs given up, as they should be that lose every worker.
async fn lose(db: &mut PgConnection, worker: &str) -> i64 {
    // Locked in everybody's order: a heartbeat may be under way.
    let ends = "with theirs as (
            select kind, conversation_id from ai_job
            where worker = $1 and state = 1 order by kind, conversation_id for update
        ), lost as (
            update ai_job as j set lease_until_ts = now() - interval '1 second', attempts = j.attempts - 1
            from theirs where j.kind = theirs.kind and j.conversation_id = theirs.conversation_id returning j.kind
        ) select count(*) from lost where kind in (2, 3)";
    sqlx::query_scalar(ends).bind(worker).fetch_one(db).await.expect("the database answers")
}
