//! Runs a server and a worker with one fault under the load, and checks what is stored afterwards.

use anneal_testkit::{
    AnnealBinary, Folder, Process, Say, Script, ScriptedModel, TcpProxy, TestApp, TestConversation,
    eventually, pb,
};
use tonic::transport::Channel;

use crate::{
    BINARY,
    load::{ANSWER, Acknowledged, Load, UNANSWERED},
    model_calls::{count_leases, count_recorded_calls},
    points::{Fault, Point},
};

/// Settings by which the worker deletes what is older than 30 days.
const RETENTION: &str = "[retention]\ninterval_seconds = 1\nidle_days = 30\nwithdrawn_days = 30\n";

/// A server and a worker on one database. A process that dies is started again without faults.
pub(crate) struct Stack {
    anneal: AnnealBinary,
    server: Process,
    worker: Process,
    proxy: TcpProxy,
    /// Log lines of the processes that have died.
    old_lines: Vec<String>,
    /// Whether a worker has died whose leases have not expired yet.
    has_unexpired_leases: bool,
}

impl Stack {
    async fn start(anneal: &AnnealBinary, configuration: &str) -> Self {
        let failing = anneal.with_failpoints(configuration);
        let ((server, port), worker) = tokio::join!(failing.server(), failing.worker());
        let proxy = TcpProxy::to_port(port).await;
        Self {
            anneal: anneal.clone(),
            server,
            worker,
            proxy,
            old_lines: Vec::new(),
            has_unexpired_leases: false,
        }
    }

    /// A channel to the current server.
    pub(crate) fn channel(&self) -> Channel {
        Channel::from_shared(format!("http://127.0.0.1:{}", self.proxy.port()))
            .expect("an address")
            .connect_lazy()
    }

    /// Restarts the processes that have died, without faults.
    pub(crate) async fn restart_dead_processes(&mut self) {
        if self.server.has_ended() {
            let (server, port) = self.anneal.server().await;
            self.proxy.set_target(port);
            self.old_lines
                .extend(std::mem::replace(&mut self.server, server).lines());
        }
        if self.worker.has_ended() {
            let worker = self.anneal.worker().await;
            self.old_lines
                .extend(std::mem::replace(&mut self.worker, worker).lines());
            self.has_unexpired_leases = true;
        }
    }

    /// Sends the worker a signal: STOP suspends it, CONT resumes it.
    pub(crate) async fn signal_worker(&self, name: &str) {
        self.worker.signal(name).await;
    }

    /// Waits until a process has reached the failpoint and, if the fault is an abort, has died.
    async fn wait_for_failpoint(&mut self, name: &str, fault: Fault) {
        let message = format!("failpoint {name}: ");
        let reports = |lines: &[String]| lines.iter().any(|line| line.contains(&message));
        eventually(&message, async || {
            let by_server = reports(&self.server.lines());
            let by_worker = reports(&self.worker.lines());
            let is_dead =
                (by_server && self.server.has_ended()) || (by_worker && self.worker.has_ended());
            // The process that reached the failpoint may have been started again meanwhile.
            reports(&self.old_lines)
                || (if fault == Fault::Abort {
                    is_dead
                } else {
                    by_server || by_worker
                })
        })
        .await;
    }
}

/// Runs the load against processes with one fault at one failpoint, and checks what is stored.
pub(crate) async fn inject(point: &Point, fault: Fault) {
    let (app, folder) = (TestApp::start().await, Folder::new());
    if point.needs_orphan_job() {
        create_orphan_job(&app).await;
    }
    let model = ScriptedModel::start(|request| {
        if request.raw.contains(UNANSWERED) {
            // The role is the first event. A thought alone is not kept.
            Script::says(request, [Say::thought("Hm.")]).hanging_after(2)
        } else {
            Script::says(request, [Say::text(ANSWER)])
        }
    })
    .await;
    folder.file("anneal.toml", &model.server_settings());
    let anneal = AnnealBinary::new(BINARY, &folder, &app.url);
    let mut stack = Stack::start(&anneal, &point.configuration(fault)).await;
    let acknowledged = Load::new(&app, point.needs_contention())
        .run(&mut stack)
        .await;
    // The worker reads the settings again, also one that is started again.
    let settings = format!("{}{RETENTION}", model.server_settings());
    folder.file("anneal.toml", &settings);
    let_expire(&app, &mut stack, &acknowledged.expiring).await;
    stack.wait_for_failpoint(&point.name, fault).await;
    wait_until_jobs_end(&app, &mut stack, fault).await;
    // A process that dies during a model call neither releases the call's lease nor records the
    // call.
    if fault != Fault::Abort {
        wait_until_calls_end(&app, &model).await;
    }
    // Both processes must stop cleanly after any fault. The checks use the test's own server.
    stack.worker.terminate().await;
    stack.server.terminate().await;
    assert_eq!(
        (
            stack.worker.wait_for_exit().await,
            stack.server.wait_for_exit().await
        ),
        (Some(0), Some(0))
    );
    check_final_state(&app, &acknowledged).await;
    app.drop_database().await;
}

/// Creates a job whose worker has died and whose lease has expired: it is still running (state 1).
async fn create_orphan_job(app: &TestApp) {
    let conversation = app.conversation().await;
    conversation.turn("a", "b").await;
    let orphan = "update ai_job set state = 1, lease = gen_random_uuid(), lease_until_ts = now() - interval '1 s'";
    sqlx::query(orphan)
        .execute(&mut app.db().await)
        .await
        .expect("updates the job");
}

/// Makes the withdrawn content of this conversation old, and waits until it is erased. Then does
/// the same with the conversation. A worker that has died is started again.
async fn let_expire(app: &TestApp, stack: &mut Stack, id: &str) {
    let id: uuid::Uuid = id.parse().expect("an id");
    let mut db = app.db().await;
    for (age, left) in [
        (
            "update ai_message_version set replaced_ts = now() - interval '31 days' where conversation_id = $1",
            "select count(*) from ai_message_version where conversation_id = $1",
        ),
        (
            "update ai_conversation set last_activity_ts = now() - interval '31 days',
                 listed_ts = now() - interval '31 days'
             where conversation_id = $1",
            "select count(*) from ai_conversation where conversation_id = $1",
        ),
    ] {
        let aged = sqlx::query(age).bind(id).execute(&mut db).await;
        assert_eq!(aged.expect("makes it old").rows_affected(), 1);
        eventually("what is old is deleted", async || {
            stack.restart_dead_processes().await;
            let rows: i64 = sqlx::query_scalar(left)
                .bind(id)
                .fetch_one(&mut db)
                .await
                .expect("counts");
            rows == 0
        })
        .await;
    }
}

/// Waits until every job has ended. No job may be dead. Processes that have died are started again,
/// and the leases of a dead worker are ended at once to save time; `faults/campaigns/orphans.rs`
/// tests that they expire by themselves.
async fn wait_until_jobs_end(app: &TestApp, stack: &mut Stack, fault: Fault) {
    let mut db = app.db().await;
    eventually("every job ends", async || {
        if fault == Fault::Abort {
            stack.restart_dead_processes().await;
        }
        if std::mem::take(&mut stack.has_unexpired_leases) {
            let end = "update ai_job set lease_until_ts = now() - interval '1 s' where state = 1";
            sqlx::query(end).execute(&mut db).await.expect("runs");
            app.worker().rescue().await;
        }
        let stats = app
            .operators()
            .get_queue_stats(pb::GetQueueStatsRequest {})
            .await
            .expect("answers");
        let queues = stats.into_inner().queues;
        assert!(queues.iter().all(|queue| queue.dead == 0), "{queues:?}");
        queues
            .iter()
            .all(|queue| queue.waiting + queue.running == 0)
    })
    .await;
}

/// Waits until every lease of a model call is released, not only expired. Asserts that each call is
/// recorded once.
async fn wait_until_calls_end(app: &TestApp, model: &ScriptedModel) {
    eventually("no call has a lease", async || count_leases(app).await == 0).await;
    assert_eq!(
        usize::try_from(count_recorded_calls(app).await),
        Ok(model.requests().len()),
        "each call is recorded once"
    );
}

/// Asserts that every acknowledged message is stored once and in order, that its jobs have run, and
/// that the deleted conversation has no rows.
async fn check_final_state(app: &TestApp, acknowledged: &Acknowledged) {
    for (id, messages) in &acknowledged.messages {
        let conversation = TestConversation {
            app,
            id: id.clone(),
        };
        let stored = conversation.messages().await;
        let found: Vec<(i64, String)> = stored
            .iter()
            .map(|message| (message.message_id, crate::load::first_text(message)))
            .collect();
        assert_eq!(found.len(), messages.len(), "each message is stored once");
        assert!(
            found.iter().eq(messages.iter()),
            "the stored messages are the acknowledged ones"
        );
        assert!(
            stored
                .iter()
                .all(|message| message.tokens.is_some_and(|tokens| !tokens.estimated)),
            "all messages are counted"
        );
        assert!(
            !conversation.checkpoints().await.is_empty(),
            "there is a checkpoint"
        );
        conversation
            .context()
            .await
            .assert_covers(messages.len() as i64);
        conversation.verify().await;
    }
    let mut db = app.db().await;
    // Only the large message of the load has more than 60,000 bytes.
    let summarized = "select count(summary_cache) from ai_message where text_bytes > 60000";
    let summarized: i64 = sqlx::query_scalar(summarized)
        .fetch_one(&mut db)
        .await
        .expect("runs the query");
    assert_eq!(summarized, 1, "the large message has its summary");
    let separators: i64 = sqlx::query_scalar("select count(*) from ai_separator")
        .fetch_one(&mut db)
        .await
        .expect("runs the query");
    assert_eq!(separators, 0, "the separator is deleted again");
    let count_rows = "select (select count(*) from ai_message where conversation_id = $1)
        + (select count(*) from ai_job where conversation_id = $1)
        + (select count(*) from ai_conversation where conversation_id = $1)";
    let deleted: uuid::Uuid = acknowledged.deleted.parse().expect("an id");
    let rows: i64 = sqlx::query_scalar(count_rows)
        .bind(deleted)
        .fetch_one(&mut db)
        .await
        .expect("runs the query");
    assert_eq!(rows, 0, "no row of the deleted conversation is left");
    let count_transactions = "select count(*) from pg_stat_activity
        where state like 'idle in transaction%' and datname = current_database()";
    let transactions: i64 = sqlx::query_scalar(count_transactions)
        .fetch_one(&mut db)
        .await
        .expect("runs the query");
    assert_eq!(transactions, 0, "no transaction is left open");
}
