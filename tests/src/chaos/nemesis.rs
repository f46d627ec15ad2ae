//! Who does what the plan says, and puts right what does not put itself right: what was killed is started again.

use std::{
    sync::{Arc, Mutex},
    time::{Duration, SystemTime},
};

use sqlx::{Connection as _, PgConnection};
use tokio::time::{MissedTickBehavior, interval, timeout};

use super::{
    audit,
    client::Client,
    cluster::{Cluster, Database, look, signal},
    crew::{Crew, Stall},
    findings::held,
    history::Talk,
    model::{Weather, Witness},
    plan::{Fault, Step},
    scene::Scene,
};

/// How long appends may take to go on after whatever was done.
const GOES_ON_WITHIN: Duration = Duration::from_mins(1);
/// What lasts for a moment: a storm, a held lock, a shortage.
const A_MOMENT: Duration = Duration::from_millis(1_500);
/// Longer than a lease, and the pauses between two looks for those that ran out.
const LEASES_END_WITHIN: Duration = Duration::from_secs(30);

/// The nemesis, and what it may lay hands on.
pub(super) struct Nemesis<'a> {
    pub(super) cluster: &'a mut Cluster,
    pub(super) database: Database,
    pub(super) crew: Crew,
    pub(super) witness: Arc<Witness>,
    pub(super) scene: Arc<Scene>,
    pub(super) stalls: Arc<Mutex<Vec<Stall>>>,
    /// Where the database is, for those who look at it.
    pub(super) url: Arc<Mutex<String>>,
    /// How long a snapshot is held after forty appends.
    pub(super) snapshot: Duration,
}

impl Nemesis<'_> {
    /// Waits until so many more appends are acknowledged; whether they were.
    pub(super) async fn goes_on(&self, more: u64) -> bool {
        self.goes_on_within(GOES_ON_WITHIN, more).await
    }

    /// The same where it may take so long.
    pub(super) async fn goes_on_within(&self, most: Duration, more: u64) -> bool {
        let until = self.scene.tally.of("acknowledged") + more;
        let mut looks = interval(Duration::from_millis(5));
        let going = async {
            while self.scene.tally.of("acknowledged") < until {
                looks.tick().await;
            }
        };
        let goes_on = timeout(most, going).await.is_ok();
        self.scene
            .findings
            .demand(goes_on, "availability", || format!("appends have not gone on for {} s", most.as_secs()));
        goes_on
    }

    /// Takes one step of the plan, and counts it where it had an effect.
    pub(super) async fn does(&mut self, step: Step) {
        let choice = step.choice as usize;
        let done = match step.fault {
            Fault::StopDatabase => {
                self.cluster.stop_at_once().await;
                self.restart_database().await;
                true
            }
            Fault::KillPostmaster => {
                self.cluster.kill().await;
                self.restart_database().await;
                true
            }
            Fault::KillBackend => self.kill_backend(choice).await,
            Fault::TerminateSessions => self.terminate_sessions().await,
            Fault::KillServer => {
                let place = choice % self.crew.servers();
                self.crew.kill_server(place).await;
                self.crew.start_server(place).await;
                true
            }
            Fault::KillWorker => {
                let place = choice % self.crew.workers();
                self.crew.kill_worker(place).await;
                self.crew.start_worker(place, &self.witness).await;
                true
            }
            Fault::StallWorker => self.stall_worker(choice).await,
            Fault::FallSilent => {
                self.database.proxy.fall_silent();
                true
            }
            Fault::Storm => {
                self.storm(choice).await;
                true
            }
            Fault::TakeConnections => self.take_connections().await,
            Fault::HoldRows => self.hold_rows().await,
            Fault::HoldSnapshot => self.hold_snapshot().await,
            Fault::RestartServers => {
                self.restart_servers().await;
                true
            }
            Fault::MigrateTwice => {
                self.migrate_twice().await;
                true
            }
            Fault::JumpClocks => {
                let jumped = self.crew.jump_clocks(choice);
                self.lasts(A_MOMENT).await;
                jumped
            }
        };
        if done {
            self.scene.tally.one(step.fault.name());
        }
    }

    async fn storm(&self, choice: usize) {
        let (name, weather) = WEATHERS[choice % WEATHERS.len()];
        self.witness.turns(weather);
        self.lasts(A_MOMENT).await;
        self.witness.turns(Weather::Calm);
        self.scene.tally.one(name);
    }

    async fn migrate_twice(&self) {
        for code in self.crew.migrate_twice(&self.direct()).await {
            self.scene.findings.demand(code == Some(0), "migrations", || format!("a migrator ended with {code:?}"));
        }
    }

    fn direct(&self) -> String {
        held(&self.url).clone()
    }

    /// Lets time pass in which something lasts.
    pub(super) async fn lasts(&self, how_long: Duration) {
        // Nothing of it can be waited for: that nothing happens meanwhile is the point.
        let _ = timeout(how_long, std::future::pending::<()>()).await;
    }

    pub(super) async fn restart_database(&mut self) {
        self.cluster.restart().await;
        self.database.moved(self.cluster);
        *held(&self.url) = self.database.direct();
    }

    /// A connection to the database, which others may have taken all of for a while.
    async fn reached(&self) -> Option<PgConnection> {
        let mut looks = interval(Duration::from_millis(100));
        let reaching = async {
            loop {
                looks.tick().await;
                if let Some(db) = look(&self.direct()).await {
                    return db;
                }
            }
        };
        timeout(GOES_ON_WITHIN, reaching).await.ok()
    }

    async fn kill_backend(&mut self, choice: usize) -> bool {
        let Some(mut db) = self.reached().await else { return false };
        let pids = "select pid from pg_stat_activity where application_name = 'anneal' order by pid";
        let pids: Vec<i32> = sqlx::query_scalar(pids).fetch_all(&mut db).await.unwrap_or_default();
        let Some(pid) = pids.get(choice % pids.len().max(1)) else { return false };
        signal(pid.unsigned_abs(), "KILL").await;
        // It throws everybody out, this connection too, and lets them in again when it has recovered.
        timeout(GOES_ON_WITHIN, async { while db.ping().await.is_ok() {} }).await.is_ok()
    }

    async fn terminate_sessions(&self) -> bool {
        let Some(mut db) = self.reached().await else { return false };
        let some = "select pg_terminate_backend(pid) from pg_stat_activity
            where application_name = 'anneal' and random() < 0.5";
        sqlx::query(some).execute(&mut db).await.is_ok_and(|ended| ended.rows_affected() > 0)
    }

    /// Stops a worker in the middle of a summary until others have taken the job and are in the middle of it; then its model has
    /// answered, and it goes on as if nothing had been.
    async fn stall_worker(&mut self, choice: usize) -> bool {
        let mut stalled = false;
        let numbers: Vec<u32> = self.crew.running().map(|worker| worker.number).collect();
        for number in &numbers {
            self.witness.hold_back(*number);
        }
        // Of a conversation that nobody else touches: only the lease says whose the job is.
        let mut client = Client::new(Arc::clone(&self.scene), 1_000 + choice % 1_000, u64::from(self.stalls_so_far()));
        if let Some(talk) = client.bystander().await
            && let Some(name) = self.holder(&talk).await
            && let Some(worker) = self.crew.running().find(|worker| worker.name == name)
        {
            // It has asked its model by then.
            self.lasts(A_MOMENT).await;
            let from = SystemTime::now();
            worker.process.signal("STOP").await;
            self.witness.let_go(worker.number);
            if self.leases_end(&name).await {
                stalled = true;
                held(&self.stalls).push(Stall { process: worker.number, from, lost: SystemTime::now() });
                self.lasts(A_MOMENT).await;
            }
            worker.process.signal("CONT").await;
            // Time enough to write what is not its to write any more.
            self.lasts(A_MOMENT).await;
            self.look_at(&talk).await;
        }
        for number in numbers {
            self.witness.let_go(number);
        }
        stalled
    }

    /// Looks at a conversation at once, to which the audit may not come round before the end.
    async fn look_at(&self, talk: &Talk) {
        let Some(mut db) = look(&self.direct()).await else { return };
        let (stalls, findings) = (held(&self.stalls).clone(), &self.scene.findings);
        // Where the database does not answer, those who look at everything in the end are left.
        let _ = audit::one(&mut db, talk, findings).await;
        let _ = audit::summaries(&mut db, talk, &self.witness, &stalls, findings).await;
    }

    fn stalls_so_far(&self) -> u32 {
        held(&self.stalls).len() as u32
    }

    /// The worker that makes a summary of this conversation.
    async fn holder(&self, talk: &Talk) -> Option<String> {
        let mut looks = interval(Duration::from_millis(50));
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let holding = async {
            loop {
                looks.tick().await;
                let Some(mut db) = look(&self.direct()).await else { continue };
                let held = "select worker from ai_job
                    where conversation_id = $1::text::uuid and kind in (2, 3) and state = 1 order by kind";
                let held: Result<Option<String>, _> =
                    sqlx::query_scalar(held).bind(&talk.id).fetch_optional(&mut db).await;
                if let Ok(Some(worker)) = held {
                    return worker;
                }
            }
        };
        let holder = timeout(LEASES_END_WITHIN, holding).await.ok();
        self.scene.findings.demand(holder.is_some(), "jobs", || format!("no worker summarises {}", talk.id));
        holder
    }

    /// Waits until a worker holds no lease any more; whether it came to that.
    async fn leases_end(&self, worker: &str) -> bool {
        let mut looks = interval(Duration::from_millis(100));
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let ending = async {
            loop {
                looks.tick().await;
                let Some(mut db) = look(&self.direct()).await else { continue };
                let held = "select count(*) from ai_job where worker = $1";
                let held: Result<i64, _> = sqlx::query_scalar(held).bind(worker).fetch_one(&mut db).await;
                if matches!(held, Ok(0)) {
                    return;
                }
            }
        };
        let ended = timeout(LEASES_END_WITHIN, ending).await.is_ok();
        self.scene.findings.demand(ended, "leases", || {
            format!("{worker} was stopped, and held its leases for {} s", LEASES_END_WITHIN.as_secs())
        });
        ended
    }

    /// Takes every connection that PostgreSQL has.
    async fn take_connections(&self) -> bool {
        let url = self.direct();
        let mut taken = Vec::new();
        while let Some(db) = look(&url).await {
            taken.push(db);
        }
        self.lasts(A_MOMENT).await;
        !taken.is_empty()
    }

    /// Holds the rows of all conversations for a moment.
    async fn hold_rows(&self) -> bool {
        let Some(mut db) = self.reached().await else { return false };
        let Ok(mut held) = db.begin().await else { return false };
        let holds = sqlx::query("select from ai_conversation for update").execute(&mut *held).await;
        self.lasts(A_MOMENT).await;
        held.rollback().await.is_ok() && holds.is_ok_and(|holds| holds.rows_affected() > 0)
    }

    /// Somebody reads one snapshot while everything goes on.
    async fn hold_snapshot(&self) -> bool {
        let Some(mut db) = self.reached().await else { return false };
        let Ok(before) = snapshot(&mut db).await else { return false };
        self.goes_on(40).await;
        self.lasts(self.snapshot).await;
        let again: Result<i64, _> = sqlx::query_scalar(MESSAGES).fetch_one(&mut db).await;
        self.scene.findings.demand(again.as_ref().is_ok_and(|again| *again == before), "availability", || {
            format!("a snapshot held {before} messages, and then {again:?}")
        });
        true
    }

    /// One server after the other is asked to stop, and ends well; others serve meanwhile.
    async fn restart_servers(&mut self) {
        for place in 0..self.crew.servers() {
            let code = self.crew.stop_server(place).await;
            self.scene.findings.demand(code == Some(0), "draining", || format!("a server ended with {code:?}"));
            self.crew.start_server(place).await;
            self.goes_on(5).await;
        }
    }

    /// What was killed runs again, and nothing is disturbed any more.
    pub(super) async fn rests(&mut self) {
        self.database.proxy.disturb(0, 0);
        self.witness.turns(Weather::Calm);
        self.crew.start_all(&self.witness).await;
    }
}

const MESSAGES: &str = "select count(*) from ai_message";
/// How a model storms, and what each is called where it is counted.
const WEATHERS: [(&str, Weather); 4] = [
    ("storms of refusals", Weather::Limited),
    ("storms of errors", Weather::Failing),
    ("storms of silence", Weather::Hanging),
    ("storms of nonsense", Weather::Mad),
];

async fn snapshot(db: &mut PgConnection) -> Result<i64, sqlx::Error> {
    sqlx::query("begin isolation level repeatable read read only").execute(&mut *db).await?;
    sqlx::query_scalar(MESSAGES).fetch_one(db).await
}
