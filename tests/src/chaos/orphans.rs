//! Jobs whose worker died: when they run again, and what becomes of those that kill every worker.

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
    campaign::{Campaign, Report, Stage},
    checker::DEAD_JOB,
    client::Client,
    cluster::{Cluster, look},
    findings::Findings,
    model::Weather,
    nemesis::Nemesis,
    plan::Fault,
    scene::Scene,
};
use crate::{eventually, pb};

/// Conversations whose jobs are under way when workers die.
const TALKS: usize = 40;

/// A job by its kind and conversation.
type Job = (i16, Uuid);

/// When the orphans of killed workers ran again.
pub struct Orphans {
    /// After the kill, the shortest time first.
    pub after: Vec<Duration>,
    /// What the campaign came to.
    pub report: Report,
}

/// Kills all workers but one while all of them are in the middle of summaries.
pub async fn orphans(campaign: &Campaign, cluster: &mut Cluster) -> Orphans {
    let mut stage = Stage::set(campaign, cluster, Arc::<Findings>::default()).await;
    let nemesis = &mut stage.nemesis;
    let numbers: Vec<u32> = nemesis.crew.running().map(|worker| worker.number).collect();
    for number in &numbers {
        nemesis.witness.hold_back(*number);
    }
    let mut client = Client::new(Arc::clone(&nemesis.scene), 0, campaign.plan.seed);
    for _ in 0..TALKS {
        client.bystander().await.expect("nothing disturbs it");
    }
    let mut db = look(&nemesis.database.direct()).await.expect("nothing disturbs it");
    let free = "select count(*) from ai_job where state = 0 or kind = 1";
    eventually("all jobs but counts are under way", async || {
        sqlx::query_scalar::<_, i64>(free).fetch_one(&mut db).await.is_ok_and(|free| free == 0)
    })
    .await;
    let mut dead = Vec::new();
    for place in 1..nemesis.crew.workers() {
        dead.extend(nemesis.crew.kill_worker(place).await);
    }
    let killed = Instant::now();
    let orphaned = held_by(&mut db, &dead).await;
    for number in numbers {
        nemesis.witness.let_go(number);
    }
    let mut left = orphaned;
    let mut after = Vec::new();
    let mut looks = interval(Duration::from_millis(25));
    while !left.is_empty() && killed.elapsed() < Duration::from_mins(1) {
        looks.tick().await;
        let still = waiting_for_others(&mut db, &dead).await;
        let ran = left.extract_if(|job| !still.contains(job)).count();
        after.extend(std::iter::repeat_n(killed.elapsed(), ran));
    }
    nemesis.scene.findings.demand(left.is_empty(), "leases", || format!("{} orphans have not run again", left.len()));
    Orphans { after, report: stage.end().await }
}

async fn held_by(db: &mut PgConnection, workers: &[String]) -> HashSet<Job> {
    let held = "select kind, conversation_id from ai_job where state = 1 and worker = any ($1)";
    let held: Vec<Job> = sqlx::query_as(held).bind(workers).fetch_all(db).await.expect("the database answers");
    held.into_iter().collect()
}

/// Jobs that dead workers hold, and those that were freed and that nobody has begun yet.
async fn waiting_for_others(db: &mut PgConnection, dead: &[String]) -> HashSet<Job> {
    let waiting = "select kind, conversation_id from ai_job
        where state = 1 and worker = any ($1) or state = 0 and last_error = 'lease expired'";
    let waiting: Vec<Job> = sqlx::query_as(waiting).bind(dead).fetch_all(db).await.expect("the database answers");
    waiting.into_iter().collect()
}

/// Connections fall silent while the results of many jobs are on their way, and are never closed: all must end all the same.
pub async fn silence(campaign: &Campaign, cluster: &mut Cluster) -> Report {
    let mut stage = Stage::set(campaign, cluster, Arc::<Findings>::default()).await;
    let nemesis = &mut stage.nemesis;
    nemesis.witness.turns(Weather::Hanging);
    let mut client = Client::new(Arc::clone(&nemesis.scene), 0, campaign.plan.seed);
    for _ in 0..TALKS {
        client.bystander().await.expect("nothing disturbs it");
    }
    let mut db = look(&nemesis.database.direct()).await.expect("nothing disturbs it");
    let running = "select count(*) from ai_job where state = 1 and kind <> 1";
    eventually("summaries are under way", async || {
        sqlx::query_scalar::<_, i64>(running).fetch_one(&mut db).await.is_ok_and(|running| running >= 20)
    })
    .await;
    nemesis.witness.turns(Weather::Calm);
    let mut moments = interval(Duration::from_millis(40));
    for _ in 0..10 {
        moments.tick().await;
        nemesis.database.proxy.fall_silent();
        nemesis.scene.tally.one(Fault::FallSilent.name());
    }
    stage.end().await
}

/// What a job did that kills whoever works on it.
pub struct Poison {
    /// Workers that died of it.
    pub killed: u32,
    /// Its starts, as an operator sees them once it is given up; None: it never was.
    pub starts: Option<u32>,
    /// What the campaign came to, another conversation's jobs included that ended after it was given up.
    pub report: Report,
}

/// Kills every worker that begins to summarise one conversation, until nobody does any more. So that this does not take five
/// minutes, the dead workers' leases end at once.
pub async fn poison(campaign: &Campaign, cluster: &mut Cluster) -> Poison {
    let mut stage = Stage::set(campaign, cluster, Arc::<Findings>::default()).await;
    let nemesis = &mut stage.nemesis;
    let scene = Arc::clone(&nemesis.scene);
    let mut client = Client::new(scene, 0, campaign.plan.seed);
    nemesis.witness.hold_all_back();
    let talk = uuid(&client.bystander().await.expect("nothing disturbs it"));
    let mut db = look(&nemesis.database.direct()).await.expect("nothing disturbs it");
    let mut looks = interval(Duration::from_millis(20));
    let (mut killed, mut starts) = (0, None);
    let began = Instant::now();
    while starts.is_none() && began.elapsed() < Duration::from_secs(150) {
        looks.tick().await;
        if kill_holder(nemesis, &mut db, talk).await {
            killed += 1;
        }
        starts = given_up(&nemesis.scene, talk).await;
    }
    // From now on it kills nobody: whoever works gets through what others need, or is found to have ended.
    nemesis.witness.turns(Weather::Calm);
    client.bystander().await.expect("nothing disturbs it");
    let mut report = stage.end().await;
    // The one that was given up, and no other.
    let given_up = report.findings.iter().position(|finding| finding.promise == DEAD_JOB);
    given_up.map(|place| report.findings.remove(place));
    Poison { killed, starts, report }
}

/// The starts of the conversation's checkpoint, if an operator sees that it was given up.
async fn given_up(scene: &Scene, talk: Uuid) -> Option<u32> {
    let ask = pb::ListJobsRequest {
        kind: pb::JobKind::Checkpoint.into(),
        state: pb::JobState::Dead.into(),
        conversation_id: talk.to_string(),
        ..Default::default()
    };
    let list = |channel: Channel| {
        let ask = ask.clone();
        async move { OperatorServiceClient::new(channel).list_jobs(ask).await.map(tonic::Response::into_inner) }
    };
    let listed = scene.answered("ListJobs", 0, list).await?.expect("jobs are listed");
    listed.jobs.first().map(|job| job.attempts.unsigned_abs())
}

/// Kills the worker that has the conversation's checkpoint, if one has, and starts another.
async fn kill_holder(nemesis: &mut Nemesis<'_>, db: &mut PgConnection, talk: Uuid) -> bool {
    let holder = "select worker from ai_job where conversation_id = $1 and kind = 2 and state = 1";
    let holder: Option<String> = sqlx::query_scalar(holder).bind(talk).fetch_optional(&mut *db).await.expect("answers");
    let place = holder.and_then(|holder| nemesis.crew.place_of(&holder));
    let Some(place) = place else { return false };
    let dead: Vec<String> = nemesis.crew.kill_worker(place).await.into_iter().collect();
    // Its other jobs are not the ones that kill: they are as if it had not had them.
    let free = "delete from ai_job where kind <> 2 and worker = any ($1)";
    sqlx::query(free).bind(&dead).execute(&mut *db).await.expect("answers");
    let ends = "update ai_job set lease_until_ts = now() where worker = any ($1)";
    sqlx::query(ends).bind(&dead).execute(&mut *db).await.expect("answers");
    nemesis.crew.start_worker(place, &nemesis.witness).await;
    true
}
