//! Injects the faults of a plan. Killed processes are started again, as a supervisor would.

use std::{
    sync::{Arc, Mutex},
    time::{Duration, SystemTime},
};

use sqlx::{Connection as _, PgConnection};
use tokio::time::{MissedTickBehavior, interval, timeout};

use super::{
    audit,
    campaign_state::CampaignState,
    client::Client,
    cluster::{Cluster, Database, signal, try_connect},
    findings::lock,
    history::RecordedConversation,
    model::{ModelBehavior, RecordingModel},
    plan::{Fault, Step},
    processes::{Processes, Stall},
};

/// The longest allowed time until appends continue after a fault.
const APPENDS_WITHIN: Duration = Duration::from_mins(1);
/// The duration of a short fault: a model failure, a held lock, a shortage of connections.
const SHORT_FAULT: Duration = Duration::from_millis(1_500);
/// How long it may take until a worker has claimed a new job, and until a suspended worker's leases
/// have ended: longer than a lease and the interval between two searches for expired leases.
const LEASES_CHANGE_WITHIN: Duration = Duration::from_secs(30);

/// The fault injector and what it acts on.
pub(super) struct FaultInjector<'a> {
    pub(super) cluster: &'a mut Cluster,
    pub(super) database: Database,
    pub(super) processes: Processes,
    pub(super) model: Arc<RecordingModel>,
    pub(super) state: Arc<CampaignState>,
    pub(super) stalls: Arc<Mutex<Vec<Stall>>>,
    /// The database's current URL, shared with the checkers.
    pub(super) url: Arc<Mutex<String>>,
    /// How long [`Fault::HoldSnapshot`] keeps its snapshot open, after the forty appends for which
    /// it waits anyway.
    pub(super) snapshot_duration: Duration,
}

impl FaultInjector<'_> {
    /// Waits until `more` appends have been acknowledged. Returns whether this happened in time; if
    /// not, that is a finding.
    pub(super) async fn wait_for_appends(&self, more: u64) -> bool {
        self.wait_for_appends_within(APPENDS_WITHIN, more).await
    }

    /// Waits as [`Self::wait_for_appends`] does, for at most `limit`.
    pub(super) async fn wait_for_appends_within(&self, limit: Duration, more: u64) -> bool {
        let enough = self.state.tally.count("acknowledged") + more;
        let mut ticks = interval(Duration::from_millis(5));
        let appends = async {
            while self.state.tally.count("acknowledged") < enough {
                ticks.tick().await;
            }
        };
        let go_on = timeout(limit, appends).await.is_ok();
        self.state.findings.demand(go_on, "availability", || {
            format!(
                "too few appends were acknowledged within {} s",
                limit.as_secs()
            )
        });
        go_on
    }

    /// Injects the fault of a step, and counts it if it had an effect.
    pub(super) async fn inject(&mut self, step: Step) {
        let choice = step.choice as usize;
        let done = match step.fault {
            Fault::StopDatabase => {
                self.cluster.stop_immediately().await;
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
                let place = choice % self.processes.server_count();
                self.processes.kill_server(place).await;
                self.processes.start_server(place).await;
                true
            }
            Fault::KillWorker => {
                let place = choice % self.processes.worker_count();
                self.processes.kill_worker(place).await;
                self.processes.start_worker(place, &self.model).await;
                true
            }
            Fault::StallWorker => self.stall_worker(choice).await,
            Fault::FallSilent => {
                self.database.proxy.fall_silent();
                true
            }
            Fault::Storm => {
                self.disturb_model(choice).await;
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
                let jumped = self.processes.jump_clocks(choice);
                self.pause_for(SHORT_FAULT).await;
                jumped
            }
        };
        if done {
            self.state.tally.increment(step.fault.name());
        }
    }

    /// Makes the model misbehave for a short time.
    async fn disturb_model(&self, choice: usize) {
        let (name, behavior) = BEHAVIORS[choice % BEHAVIORS.len()];
        self.model.set_behavior(behavior);
        self.pause_for(SHORT_FAULT).await;
        self.model.set_behavior(ModelBehavior::Normal);
        self.state.tally.increment(name);
    }

    async fn migrate_twice(&self) {
        for code in self.processes.migrate_twice(&self.direct_url()).await {
            self.state
                .findings
                .demand(code == Some(0), "migrations", || {
                    format!("a migrator ended with {code:?}")
                });
        }
    }

    fn direct_url(&self) -> String {
        lock(&self.url).clone()
    }

    /// Waits this long while a fault lasts.
    pub(super) async fn pause_for(&self, how_long: Duration) {
        // There is no event to wait for: the fault is that nothing happens meanwhile.
        let _ = timeout(how_long, std::future::pending::<()>()).await;
    }

    pub(super) async fn restart_database(&mut self) {
        self.cluster.restart().await;
        self.database.follow(self.cluster);
        *lock(&self.url) = self.database.direct_url();
    }

    /// A connection to the database. Retries while other sessions hold all connections.
    async fn connect(&self) -> Option<PgConnection> {
        let mut ticks = interval(Duration::from_millis(100));
        let connected = async {
            loop {
                ticks.tick().await;
                if let Some(db) = try_connect(&self.direct_url()).await {
                    return db;
                }
            }
        };
        timeout(APPENDS_WITHIN, connected).await.ok()
    }

    async fn kill_backend(&mut self, choice: usize) -> bool {
        let Some(mut db) = self.connect().await else {
            return false;
        };
        let pids =
            "select pid from pg_stat_activity where application_name = 'anneal' order by pid";
        let pids: Vec<i32> = sqlx::query_scalar(pids)
            .fetch_all(&mut db)
            .await
            .unwrap_or_default();
        let Some(pid) = pids.get(choice % pids.len().max(1)) else {
            return false;
        };
        signal(pid.unsigned_abs(), "KILL").await;
        // PostgreSQL terminates all sessions, including this one, and accepts connections again
        // after its recovery.
        timeout(APPENDS_WITHIN, async { while db.ping().await.is_ok() {} })
            .await
            .is_ok()
    }

    async fn terminate_sessions(&self) -> bool {
        let Some(mut db) = self.connect().await else {
            return false;
        };
        let terminate_half = "select pg_terminate_backend(pid) from pg_stat_activity
            where application_name = 'anneal' and random() < 0.5";
        sqlx::query(terminate_half)
            .execute(&mut db)
            .await
            .is_ok_and(|terminated| terminated.rows_affected() > 0)
    }

    /// Suspends a worker (SIGSTOP) in the middle of a summary until it has lost its leases. The
    /// model answers meanwhile. Then the worker is resumed and must not store the summary. Returns
    /// whether the leases were lost.
    async fn stall_worker(&mut self, choice: usize) -> bool {
        let mut stalled = false;
        let numbers: Vec<u32> = self
            .processes
            .running_workers()
            .map(|worker| worker.number)
            .collect();
        for number in &numbers {
            self.model.hold_answers(*number);
        }
        // No other client uses this conversation, and the answers to the other workers are held
        // back. So only the lost lease keeps the suspended worker from storing its summary.
        // The clients of the campaign have numbers below 1,000.
        let mut client = Client::new(
            Arc::clone(&self.state),
            1_000 + choice % 1_000,
            u64::from(self.stalls_so_far()),
        );
        if let Some(conversation) = client.create_due_conversation().await
            && let Some(name) = self.find_holder(&conversation).await
            && let Some(worker) = self
                .processes
                .running_workers()
                .find(|worker| worker.name == name)
        {
            // After this time the worker has called the model.
            self.pause_for(SHORT_FAULT).await;
            let from = SystemTime::now();
            worker.process.signal("STOP").await;
            self.model.release_answers(worker.number);
            if self.wait_until_leases_end(&name).await {
                stalled = true;
                lock(&self.stalls).push(Stall {
                    worker_number: worker.number,
                    from,
                    lost_leases_by: SystemTime::now(),
                });
                self.pause_for(SHORT_FAULT).await;
            }
            worker.process.signal("CONT").await;
            // Gives the worker time to try to write the result of the lost job.
            self.pause_for(SHORT_FAULT).await;
            self.audit_now(&conversation).await;
        }
        for number in numbers {
            self.model.release_answers(number);
        }
        stalled
    }

    /// Audits a conversation at once. The periodic audit may not reach it before the end.
    async fn audit_now(&self, conversation: &RecordedConversation) {
        let Some(mut db) = try_connect(&self.direct_url()).await else {
            return;
        };
        let (stalls, findings) = (lock(&self.stalls).clone(), &self.state.findings);
        // If the database does not answer, the final checks cover the conversation.
        let _ = audit::check_summaries(&mut db, conversation, &self.model, &stalls, findings).await;
        let _ = audit::check_figures(&mut db, conversation, findings).await;
    }

    fn stalls_so_far(&self) -> u32 {
        lock(&self.stalls).len() as u32
    }

    /// Waits until a worker has a job that summarizes this conversation. Returns the worker's name.
    async fn find_holder(&self, conversation: &RecordedConversation) -> Option<String> {
        let mut ticks = interval(Duration::from_millis(50));
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let holding = async {
            loop {
                ticks.tick().await;
                let Some(mut db) = try_connect(&self.direct_url()).await else {
                    continue;
                };
                // Kind 2: checkpoints; kind 3: summaries of messages; state 1: running.
                let held = "select worker from ai_job
                    where conversation_id = $1::text::uuid and kind in (2, 3) and state = 1 order by kind";
                let held: Result<Option<String>, _> = sqlx::query_scalar(held)
                    .bind(&conversation.id)
                    .fetch_optional(&mut db)
                    .await;
                if let Ok(Some(worker)) = held {
                    return worker;
                }
            }
        };
        let holder = timeout(LEASES_CHANGE_WITHIN, holding).await.ok();
        self.state.findings.demand(holder.is_some(), "jobs", || {
            format!("no worker summarizes {}", conversation.id)
        });
        holder
    }

    /// Waits until a worker holds no lease. Returns whether that happened in time.
    async fn wait_until_leases_end(&self, worker: &str) -> bool {
        let mut ticks = interval(Duration::from_millis(100));
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let ending = async {
            loop {
                ticks.tick().await;
                let Some(mut db) = try_connect(&self.direct_url()).await else {
                    continue;
                };
                let held = "select count(*) from ai_job where worker = $1";
                let held: Result<i64, _> = sqlx::query_scalar(held)
                    .bind(worker)
                    .fetch_one(&mut db)
                    .await;
                if matches!(held, Ok(0)) {
                    return;
                }
            }
        };
        let ended = timeout(LEASES_CHANGE_WITHIN, ending).await.is_ok();
        self.state.findings.demand(ended, "leases", || {
            format!(
                "{worker} was suspended, and kept its leases for {} s",
                LEASES_CHANGE_WITHIN.as_secs()
            )
        });
        ended
    }

    /// Opens every connection that PostgreSQL allows, for a short time.
    async fn take_connections(&self) -> bool {
        let url = self.direct_url();
        let mut taken = Vec::new();
        while let Some(db) = try_connect(&url).await {
            taken.push(db);
        }
        self.pause_for(SHORT_FAULT).await;
        !taken.is_empty()
    }

    /// Locks the rows of all conversations for a short time.
    async fn hold_rows(&self) -> bool {
        let Some(mut db) = self.connect().await else {
            return false;
        };
        let Ok(mut transaction) = db.begin().await else {
            return false;
        };
        let locked = sqlx::query("select from ai_conversation for update")
            .execute(&mut *transaction)
            .await;
        self.pause_for(SHORT_FAULT).await;
        transaction.rollback().await.is_ok() && locked.is_ok_and(|rows| rows.rows_affected() > 0)
    }

    /// Keeps a snapshot open while appends continue, and checks that it does not change.
    async fn hold_snapshot(&self) -> bool {
        let Some(mut db) = self.connect().await else {
            return false;
        };
        let Ok(before) = begin_snapshot(&mut db).await else {
            return false;
        };
        self.wait_for_appends(40).await;
        self.pause_for(self.snapshot_duration).await;
        let after: Result<i64, _> = sqlx::query_scalar(COUNT_MESSAGES).fetch_one(&mut db).await;
        self.state.findings.demand(
            after.as_ref().is_ok_and(|after| *after == before),
            "availability",
            || format!("a snapshot had {before} messages at first, and then {after:?}"),
        );
        true
    }

    /// Terminates and starts one server after the other while the others serve.
    async fn restart_servers(&mut self) {
        for place in 0..self.processes.server_count() {
            let code = self.processes.stop_server(place).await;
            self.state.findings.demand(code == Some(0), "draining", || {
                format!("a server ended with {code:?}")
            });
            self.processes.start_server(place).await;
            self.wait_for_appends(5).await;
        }
    }

    /// Ends the faults of commits and of the model, and starts the processes that do not run.
    pub(super) async fn stop_faults(&mut self) {
        self.database.proxy.disturb(0, 0);
        self.model.set_behavior(ModelBehavior::Normal);
        self.processes.start_all(&self.model).await;
    }
}

const COUNT_MESSAGES: &str = "select count(*) from ai_message";
/// Kinds of misbehavior of the model, and the name under which each is counted.
const BEHAVIORS: [(&str, ModelBehavior); 4] = [
    ("storms of refusals", ModelBehavior::RateLimited),
    ("storms of errors", ModelBehavior::Failing),
    ("storms of silence", ModelBehavior::Hanging),
    ("storms of nonsense", ModelBehavior::Nonsense),
];

/// Begins a snapshot. Returns the number of messages in it.
async fn begin_snapshot(db: &mut PgConnection) -> Result<i64, sqlx::Error> {
    sqlx::query("begin isolation level repeatable read read only")
        .execute(&mut *db)
        .await?;
    sqlx::query_scalar(COUNT_MESSAGES).fetch_one(db).await
}
