//! Campaigns about jobs that lost their worker or its connections: when the jobs of killed workers
//! run again, whether jobs end although all connections stall, and how a job ends whose worker is
//! killed at each start. The campaigns have no other clients, so the one client is number 0.
//!
//! The SQL uses codes of `ai_job`: state 0 is waiting, 1 running; kind 1 counts tokens, 2 writes
//! checkpoints, 3 summaries of messages.

use std::{
    collections::HashSet,
    sync::Arc,
    time::{Duration, Instant},
};

use pb::operator_service_client::OperatorServiceClient;
use sqlx::PgConnection;
use tokio::time::interval;
use tonic::transport::Channel;
use uuid::Uuid;

use super::{
    audit::uuid,
    campaign::{Campaign, Report, RunningCampaign},
    campaign_state::CampaignState,
    checker::DEAD_JOB,
    client::Client,
    cluster::{Cluster, try_connect},
    fault_injector::FaultInjector,
    findings::Findings,
    model::ModelBehavior,
    plan::Fault,
};
use crate::{eventually, pb};

/// Number of conversations with due jobs before workers are killed or connections stall.
const CONVERSATIONS: usize = 40;

/// A job's kind and conversation.
type Job = (i16, Uuid);

/// The outcome of [`run_with_killed_workers`].
pub struct Orphans {
    /// For each job of a killed worker, the time from the kill until it ran again, shortest first.
    pub delays: Vec<Duration>,
    /// The report of the campaign.
    pub report: Report,
}

/// Runs a campaign that kills all workers but one while all of them are in the middle of summaries,
/// and measures when their jobs run again.
pub async fn run_with_killed_workers(campaign: &Campaign, cluster: &mut Cluster) -> Orphans {
    let mut running = RunningCampaign::start(campaign, cluster, Arc::<Findings>::default()).await;
    let injector = &mut running.injector;
    let numbers: Vec<u32> = injector
        .processes
        .running_workers()
        .map(|worker| worker.number)
        .collect();
    for number in &numbers {
        injector.model.hold_answers(*number);
    }
    let mut client = Client::new(Arc::clone(&injector.state), 0, campaign.plan.seed);
    for _ in 0..CONVERSATIONS {
        client
            .create_due_conversation()
            .await
            .expect("no fault is active");
    }
    let mut db = try_connect(&injector.database.direct_url())
        .await
        .expect("no fault is active");
    let waiting_or_counting = "select count(*) from ai_job where state = 0 or kind = 1";
    eventually("all summary jobs are running", async || {
        sqlx::query_scalar::<_, i64>(waiting_or_counting)
            .fetch_one(&mut db)
            .await
            .is_ok_and(|jobs| jobs == 0)
    })
    .await;
    let mut killed_workers = Vec::new();
    for place in 1..injector.processes.worker_count() {
        killed_workers.extend(injector.processes.kill_worker(place).await);
    }
    let killed_at = Instant::now();
    let mut orphaned_jobs = jobs_held_by(&mut db, &killed_workers).await;
    for number in numbers {
        injector.model.release_answers(number);
    }
    let mut delays = Vec::new();
    let mut ticks = interval(Duration::from_millis(25));
    while !orphaned_jobs.is_empty() && killed_at.elapsed() < Duration::from_mins(1) {
        ticks.tick().await;
        let not_run_again = jobs_not_run_again(&mut db, &killed_workers).await;
        let ran = orphaned_jobs
            .extract_if(|job| !not_run_again.contains(job))
            .count();
        delays.extend(std::iter::repeat_n(killed_at.elapsed(), ran));
    }
    injector
        .state
        .findings
        .demand(orphaned_jobs.is_empty(), "leases", || {
            format!(
                "{} jobs of killed workers have not run again",
                orphaned_jobs.len()
            )
        });
    Orphans {
        delays,
        report: running.finish().await,
    }
}

async fn jobs_held_by(db: &mut PgConnection, workers: &[String]) -> HashSet<Job> {
    let held = "select kind, conversation_id from ai_job where state = 1 and worker = any ($1)";
    let held: Vec<Job> = sqlx::query_as(held)
        .bind(workers)
        .fetch_all(db)
        .await
        .expect("the database answers");
    held.into_iter().collect()
}

/// Jobs that the killed workers still hold, and freed jobs that no worker has started yet.
async fn jobs_not_run_again(db: &mut PgConnection, killed_workers: &[String]) -> HashSet<Job> {
    let held_or_freed = "select kind, conversation_id from ai_job
        where state = 1 and worker = any ($1) or state = 0 and last_error = 'lease expired'";
    let held_or_freed: Vec<Job> = sqlx::query_as(held_or_freed)
        .bind(killed_workers)
        .fetch_all(db)
        .await
        .expect("the database answers");
    held_or_freed.into_iter().collect()
}

/// Runs a campaign that stalls all connections to PostgreSQL, without closing them, while workers
/// store the results of many jobs. All jobs must end nevertheless.
pub async fn run_with_silent_connections(campaign: &Campaign, cluster: &mut Cluster) -> Report {
    let mut running = RunningCampaign::start(campaign, cluster, Arc::<Findings>::default()).await;
    let injector = &mut running.injector;
    injector.model.set_behavior(ModelBehavior::Hanging);
    let mut client = Client::new(Arc::clone(&injector.state), 0, campaign.plan.seed);
    for _ in 0..CONVERSATIONS {
        client
            .create_due_conversation()
            .await
            .expect("no fault is active");
    }
    let mut db = try_connect(&injector.database.direct_url())
        .await
        .expect("no fault is active");
    let running_jobs = "select count(*) from ai_job where state = 1 and kind <> 1";
    eventually("20 summary jobs are running", async || {
        sqlx::query_scalar::<_, i64>(running_jobs)
            .fetch_one(&mut db)
            .await
            .is_ok_and(|jobs| jobs >= 20)
    })
    .await;
    injector.model.set_behavior(ModelBehavior::Normal);
    let mut ticks = interval(Duration::from_millis(40));
    for _ in 0..10 {
        ticks.tick().await;
        injector.database.proxy.fall_silent();
        injector.state.tally.increment(Fault::FallSilent.name());
    }
    running.finish().await
}

/// The outcome of [`run_poison_job`].
pub struct Poison {
    /// Number of workers that were killed.
    pub killed: u32,
    /// The number of starts that ListJobs shows for the dead job. None if the job never became a
    /// dead one.
    pub starts: Option<u32>,
    /// The report of the campaign, without the finding about this dead job.
    pub report: Report,
}

/// Runs a campaign that kills every worker that begins to summarize one conversation, until the job
/// is given up. Jobs of other conversations must end. The leases of the killed workers are ended at
/// once; otherwise this would take five minutes.
pub async fn run_poison_job(campaign: &Campaign, cluster: &mut Cluster) -> Poison {
    let mut running = RunningCampaign::start(campaign, cluster, Arc::<Findings>::default()).await;
    let injector = &mut running.injector;
    let state = Arc::clone(&injector.state);
    let mut client = Client::new(state, 0, campaign.plan.seed);
    injector.model.hold_all_answers();
    let conversation = uuid(
        &client
            .create_due_conversation()
            .await
            .expect("no fault is active"),
    );
    let mut db = try_connect(&injector.database.direct_url())
        .await
        .expect("no fault is active");
    let mut ticks = interval(Duration::from_millis(20));
    let (mut killed, mut starts) = (0, None);
    let began = Instant::now();
    while starts.is_none() && began.elapsed() < Duration::from_secs(150) {
        ticks.tick().await;
        if kill_holder(injector, &mut db, conversation).await {
            killed += 1;
        }
        starts = find_starts_of_dead_job(&injector.state, conversation).await;
    }
    // From now on workers are not killed. They must run the jobs of another conversation.
    injector.model.set_behavior(ModelBehavior::Normal);
    client
        .create_due_conversation()
        .await
        .expect("no fault is active");
    let mut report = running.finish().await;
    // Removes the expected dead job from the findings; any other one stays.
    let given_up = report
        .findings
        .iter()
        .position(|finding| finding.promise == DEAD_JOB);
    given_up.map(|place| report.findings.remove(place));
    Poison {
        killed,
        starts,
        report,
    }
}

/// The number of starts of the conversation's dead checkpoint job, if there is one.
async fn find_starts_of_dead_job(state: &CampaignState, conversation: Uuid) -> Option<u32> {
    let ask = pb::ListJobsRequest {
        kind: pb::JobKind::Checkpoint.into(),
        state: pb::JobState::Dead.into(),
        conversation_id: conversation.to_string(),
        ..Default::default()
    };
    let list = |channel: Channel| {
        let ask = ask.clone();
        async move {
            OperatorServiceClient::new(channel)
                .list_jobs(ask)
                .await
                .map(tonic::Response::into_inner)
        }
    };
    let listed = state
        .call_with_retries("ListJobs", 0, list)
        .await?
        .expect("jobs are listed");
    listed.jobs.first().map(|job| job.attempts.unsigned_abs())
}

/// Kills the worker that holds the conversation's checkpoint job, if any, ends its leases and
/// starts another worker. Returns whether a worker was killed.
async fn kill_holder(
    injector: &mut FaultInjector<'_>,
    db: &mut PgConnection,
    conversation: Uuid,
) -> bool {
    let holder = "select worker from ai_job where conversation_id = $1 and kind = 2 and state = 1";
    let holder: Option<String> = sqlx::query_scalar(holder)
        .bind(conversation)
        .fetch_optional(&mut *db)
        .await
        .expect("the query succeeds");
    let place = holder.and_then(|holder| injector.processes.place_of(&holder));
    let Some(place) = place else { return false };
    let killed_workers: Vec<String> = injector
        .processes
        .kill_worker(place)
        .await
        .into_iter()
        .collect();
    // The worker's jobs of other kinds than checkpoints are removed, so that they do not wait for
    // their leases to end.
    let delete_others = "delete from ai_job where kind <> 2 and worker = any ($1)";
    sqlx::query(delete_others)
        .bind(&killed_workers)
        .execute(&mut *db)
        .await
        .expect("the query succeeds");
    let end_leases = "update ai_job set lease_until_ts = now() where worker = any ($1)";
    sqlx::query(end_leases)
        .bind(&killed_workers)
        .execute(&mut *db)
        .await
        .expect("the query succeeds");
    injector
        .processes
        .start_worker(place, &injector.model)
        .await;
    true
}
