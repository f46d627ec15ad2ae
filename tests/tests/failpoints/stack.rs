//! One visit: a server and a worker with a fault in them, a load, and what is left of it.

use anneal_tests::{Anneal, Folder, House, Line, Process, ScriptedModel, Talk, eventually, pb};
use tonic::transport::Channel;

use crate::{
    BINARY,
    calls::{booked, leases},
    load::{ANSWER, Load, Told},
    points::{Fault, Point},
};

/// A server and a worker on one database. Who dies is started again, without faults.
pub(crate) struct Stack {
    anneal: Anneal,
    server: Process,
    worker: Process,
    line: Line,
    /// What processes that are gone have said.
    said: Vec<String>,
    /// Whether a worker has died whose leases have not ended yet.
    left_leases: bool,
}

impl Stack {
    async fn start(anneal: &Anneal, configuration: &str) -> Self {
        let failing = anneal.failing(configuration);
        let ((server, port), worker) = tokio::join!(failing.server(), failing.worker());
        let line = Line::to_port(port).await;
        Self { anneal: anneal.clone(), server, worker, line, said: Vec::new(), left_leases: false }
    }

    /// A channel to whatever server is there.
    pub(crate) fn channel(&self) -> Channel {
        Channel::from_shared(format!("http://127.0.0.1:{}", self.line.port())).expect("an address").connect_lazy()
    }

    /// Starts again who has died.
    pub(crate) async fn revive(&mut self) {
        if self.server.has_ended() {
            let (server, port) = self.anneal.server().await;
            self.line.leads_to(port);
            self.said.extend(std::mem::replace(&mut self.server, server).lines());
        }
        if self.worker.has_ended() {
            let worker = self.anneal.worker().await;
            self.said.extend(std::mem::replace(&mut self.worker, worker).lines());
            self.left_leases = true;
        }
    }

    /// Sends the worker a signal: STOP and CONT make it stand still for a while.
    pub(crate) async fn signal_worker(&self, name: &str) {
        self.worker.signal(name).await;
    }

    /// Waits until somebody has come by the place, and where that is deadly, is gone.
    async fn came_by(&mut self, name: &str, fault: Fault) {
        let words = format!("failpoint {name}: ");
        let has_said = |lines: &[String]| lines.iter().any(|line| line.contains(&words));
        eventually(&words, async || {
            let (of_server, of_worker) = (has_said(&self.server.lines()), has_said(&self.worker.lines()));
            let is_gone = (of_server && self.server.has_ended()) || (of_worker && self.worker.has_ended());
            // Those of whom this is said were started again since.
            has_said(&self.said) || (if fault == Fault::Abort { is_gone } else { of_server || of_worker })
        })
        .await;
    }
}

/// A visit of one place with one fault.
pub(crate) async fn visit(point: &Point, fault: Fault) {
    let (house, folder) = (House::start().await, Folder::new());
    if point.needs_orphan() {
        leave_orphan(&house).await;
    }
    let model = ScriptedModel::saying(ANSWER).await;
    folder.file("anneal.toml", &model.server_settings());
    let anneal = Anneal::new(BINARY, &folder, &house.url);
    let mut stack = Stack::start(&anneal, &point.configuration(fault)).await;
    let told = Load::new(&house, point.needs_contention()).run(&mut stack).await;
    stack.came_by(&point.name, fault).await;
    settle(&house, &mut stack, fault).await;
    if fault != Fault::Abort {
        calls_end(&house, &model).await;
    }
    // Both end in good order, whatever they have come by; what they leave is looked at by others.
    stack.worker.terminate().await;
    stack.server.terminate().await;
    assert_eq!((stack.worker.ended().await, stack.server.ended().await), (Some(0), Some(0)));
    check(&house, &told).await;
    house.demolish().await;
}

/// A job whose worker is gone.
async fn leave_orphan(house: &House) {
    let talk = house.conversation().await;
    talk.turn("a", "b").await;
    let leave = "update ai_job set state = 1, lease = gen_random_uuid(), lease_until_ts = now() - interval '1 s'";
    sqlx::query(leave).execute(&mut house.db().await).await.expect("leaves");
}

/// Waits until every job has ended; none may be dead. Who dies is started again, and its leases are over: that they end by
/// themselves is seen elsewhere (`faults/orphans.rs`).
async fn settle(house: &House, stack: &mut Stack, fault: Fault) {
    let mut db = house.db().await;
    eventually("every job ends", async || {
        if fault == Fault::Abort {
            stack.revive().await;
        }
        if std::mem::take(&mut stack.left_leases) {
            let end = "update ai_job set lease_until_ts = now() - interval '1 s' where state = 1";
            sqlx::query(end).execute(&mut db).await.expect("runs");
            house.worker().rescue().await;
        }
        let stats = house.operators().get_queue_stats(pb::GetQueueStatsRequest {}).await.expect("answers");
        let queues = stats.into_inner().queues;
        assert!(queues.iter().all(|queue| queue.dead == 0), "{queues:?}");
        queues.iter().all(|queue| queue.waiting + queue.running == 0)
    })
    .await;
}

/// A lease that nobody needs any more is gone, not only past its time, and each call of the model is booked once.
async fn calls_end(house: &House, model: &ScriptedModel) {
    eventually("no call has a lease", async || leases(house).await == 0).await;
    assert_eq!(usize::try_from(booked(house).await), Ok(model.asked().len()), "each call is booked once");
}

/// What was acknowledged is there, once and in order, and has had its effects; what was deleted is not.
async fn check(house: &House, told: &Told) {
    for (id, said) in &told.said {
        let talk = Talk { house, id: id.clone() };
        let stored = talk.messages().await;
        let found: Vec<(i64, String)> =
            stored.iter().map(|message| (message.message_id, crate::load::text_of(message))).collect();
        assert_eq!(found.len(), said.len(), "each once");
        assert!(found.iter().eq(said.iter()), "what is stored is what was acknowledged");
        assert!(stored.iter().all(|message| message.tokens.is_some_and(|tokens| !tokens.estimated)), "all are counted");
        assert!(!talk.checkpoints().await.is_empty(), "there is a checkpoint");
        talk.context().await.assert_covers(said.len() as i64);
        talk.verify().await;
    }
    let mut db = house.db().await;
    let summarized = "select count(summary_cache) from ai_message where text_bytes > 60000";
    let summarized: i64 = sqlx::query_scalar(summarized).fetch_one(&mut db).await.expect("asks");
    assert_eq!(summarized, 1, "the large message has its summary");
    let marks: i64 = sqlx::query_scalar("select count(*) from ai_separator").fetch_one(&mut db).await.expect("asks");
    assert_eq!(marks, 0, "the separator is gone again");
    let left = "select (select count(*) from ai_message where conversation_id = $1)
        + (select count(*) from ai_job where conversation_id = $1)
        + (select count(*) from ai_conversation where conversation_id = $1)";
    let deleted: uuid::Uuid = told.deleted.parse().expect("an id");
    let left: i64 = sqlx::query_scalar(left).bind(deleted).fetch_one(&mut db).await.expect("asks");
    assert_eq!(left, 0, "what was deleted is gone");
    let open = "select count(*) from pg_stat_activity
        where state like 'idle in transaction%' and datname = current_database()";
    let open: i64 = sqlx::query_scalar(open).fetch_one(&mut db).await.expect("asks");
    assert_eq!(open, 0, "no transaction is left open");
}
