//! The conversation, what is known of it, and the workers that are busy with it.

use std::collections::{BTreeMap, BTreeSet};

use anneal_core::{
    caller::{Caller, ConversationId, TenantId},
    digest::Digest,
    job::{JobKind, MAX_ATTEMPTS},
    message::{Message, MessageId},
    tokens::{Tokens, count_message_while},
};
use anneal_store::{ClaimedJob, ConversationChange, CountedMessages, ManualCompaction, NewConversation, StoreError};
use anneal_tests::{House, Waiting, pb};
use sqlx::PgConnection;
use tokio::task::JoinHandle;
use uuid::Uuid;

use crate::{beside::Beside, invariants, materials::policy, operations::Operation, rows::Kept};

/// In whose name everything is done.
pub(crate) const CALLER: Caller = Caller::of(TenantId::DEFAULT);

/// What is wrong.
pub(crate) type Broken = String;

/// What has happened in all lists, by name.
pub(crate) type Tally = BTreeMap<&'static str, u64>;

/// A worker that has claimed a counting job.
struct Counting {
    job: ClaimedJob,
    /// What it has read and counted: up to which message all were counted before, and the counts.
    read: Option<(MessageId, Vec<(MessageId, Tokens)>)>,
}

/// A worker in the middle of a summary.
struct Summarizing {
    summarizer: Waiting,
    running: JoinHandle<usize>,
}

/// One conversation, with all that was said.
pub(crate) struct World<'a> {
    pub(crate) house: &'a House,
    pub(crate) db: &'a mut PgConnection,
    pub(crate) id: ConversationId,
    pub(crate) policy: u8,
    /// What creates it: the same id each time.
    created_by: String,
    /// What is kept of what was said, in order.
    pub(crate) said: Vec<pb::NewMessage>,
    /// The same as rows, as far as they were looked at.
    pub(crate) kept: Vec<Kept>,
    /// By request id: what was said, and the ids that were told.
    pub(crate) requests: BTreeMap<u8, (Vec<pb::NewMessage>, Vec<i64>)>,
    /// By request id: where the separator was put.
    separations: BTreeMap<u8, MessageId>,
    pub(crate) separators: BTreeSet<MessageId>,
    /// Where the checkpoints end that were there when they were last looked at.
    pub(crate) checkpoints: Vec<i64>,
    /// Other conversations.
    pub(crate) beside: Beside,
    counting: Vec<Counting>,
    summarizing: Vec<Summarizing>,
    pub(crate) tally: &'a mut Tally,
}

/// An outcome that a worker may meet whose job has passed to others, or is gone.
fn moot(error: &StoreError) -> bool {
    matches!(error, StoreError::LeaseLost | StoreError::NotFound(_))
}

impl<'a> World<'a> {
    pub(crate) async fn make(house: &'a House, db: &'a mut PgConnection, policy: u8, tally: &'a mut Tally) -> Self {
        let created_by = Uuid::now_v7().to_string();
        let mut world = Self {
            house,
            db,
            id: ConversationId(Uuid::nil()),
            policy,
            created_by,
            said: Vec::new(),
            kept: Vec::new(),
            requests: BTreeMap::new(),
            separations: BTreeMap::new(),
            separators: BTreeSet::new(),
            checkpoints: Vec::new(),
            beside: Beside::default(),
            counting: Vec::new(),
            summarizing: Vec::new(),
            tally,
        };
        world.create().await;
        world
    }

    async fn create(&mut self) {
        let new = NewConversation { policy: policy(self.policy), ..NewConversation::default() }.counted();
        let made = self.house.store.create_conversation(CALLER, Some(&self.created_by), Digest::default(), &new);
        self.id = made.await.expect("creates").id;
    }

    pub(crate) fn note(&mut self, what: &'static str) {
        *self.tally.entry(what).or_default() += 1;
    }

    /// The newest message.
    pub(crate) fn newest(&self) -> MessageId {
        MessageId(self.said.len() as i64)
    }

    /// Whether nothing is there that the operation could do something with: nothing has happened then.
    pub(crate) fn has_nothing_for(&self, operation: Operation) -> bool {
        match operation {
            Operation::GoOn(_) => self.summarizing.is_empty(),
            Operation::Join => self.separators.is_empty(),
            Operation::Leave | Operation::Forget => self.beside.has_nothing_for(operation),
            _ => false,
        }
    }

    /// Does one thing; what contradicts what is known is broken.
    pub(crate) async fn happen(&mut self, operation: Operation) -> Result<(), Broken> {
        match operation {
            Operation::Append { request, body, messages } => self.append(request, body, messages).await,
            Operation::Separate { request } => self.separate(request).await,
            Operation::Join => self.join().await,
            Operation::Compact => self.compact().await,
            Operation::Build(way) => invariants::build(self, way).await,
            Operation::Step => self.step().await,
            Operation::Claim => self.claim().await,
            Operation::Read(_) | Operation::Record(..) | Operation::Fail(_) | Operation::Beat(_)
                if self.counting.is_empty() =>
            {
                self.claim().await
            }
            Operation::Read(place) => self.read(place).await,
            Operation::Record(place, alone) => self.record(place, alone).await,
            Operation::Fail(place) => self.fail(place).await,
            Operation::Beat(place) => self.beat(place).await,
            Operation::Begin => self.begin().await,
            Operation::GoOn(place) => self.go_on(place).await,
            Operation::TimePasses => {
                self.time_passes().await;
                Ok(())
            }
            Operation::Rescue => {
                let rescued = self.house.store.rescue_jobs(100).await.expect("rescues");
                if rescued.waiting > 0 {
                    self.note("jobs rescued");
                }
                Ok(())
            }
            Operation::Change(number) => self.change(number).await,
            Operation::Renew => self.renew().await,
            Operation::Resolve => self.resolve().await,
            Operation::Rotate { repeatable } => self.rotate(repeatable).await,
            Operation::Leave => self.leave().await,
            Operation::Import(turns) => self.import(turns).await,
            Operation::Forget => self.forget().await,
        }
    }

    async fn separate(&mut self, request: Option<u8>) -> Result<(), Broken> {
        let name = request.map(|id| format!("s{id}"));
        let put = self.house.store.insert_separator(CALLER, self.id, name.as_deref(), None).await;
        let after = put.map_err(|error| format!("no separator: {error}"))?.after;
        let earlier = request.and_then(|id| self.separations.get(&id).copied());
        if after != earlier.unwrap_or(self.newest()) {
            return Err(format!("a separator was put after {after}, asked for at {}", self.newest()));
        }
        if earlier.is_none() {
            self.separators.insert(after);
            if let Some(id) = request {
                self.separations.insert(id, after);
            }
            self.note("separators");
        }
        Ok(())
    }

    async fn join(&mut self) -> Result<(), Broken> {
        let Some(after) = self.separators.pop_last() else { return Ok(()) };
        let joined = self.house.store.delete_separator(CALLER, self.id, None, after).await;
        joined.map(|_| ()).map_err(|error| format!("the separator after {after} cannot go: {error}"))
    }

    async fn compact(&mut self) -> Result<(), Broken> {
        let manual = ManualCompaction { focus: String::new(), request_id: Uuid::now_v7().to_string(), keep: None };
        let asked = self.house.store.request_compaction(CALLER, self.id, &manual).await;
        asked.map(|_| ()).map_err(|error| format!("no compaction: {error}"))
    }

    async fn step(&mut self) -> Result<(), Broken> {
        let known = self.newest_checkpoint().await;
        self.house.run_jobs_until_idle().await;
        let made = self.newest_checkpoint().await;
        // One that others had begun was planned with what there was then.
        if made == known || !self.summarizing.is_empty() {
            return Ok(());
        }
        invariants::parts_no_pair(self).await
    }

    /// Up to where the newest checkpoint reaches.
    pub(crate) async fn newest_checkpoint(&mut self) -> Option<i64> {
        let newest = "select max(last_message_id) from ai_conversation_checkpoint where conversation_id = $1";
        sqlx::query_scalar(newest).bind(self.id.0).fetch_one(&mut *self.db).await.expect("asks")
    }

    async fn claim(&mut self) -> Result<(), Broken> {
        let nobody = TenantId(Uuid::nil());
        let claim = self.house.store.claim_jobs(JobKind::CountTokens, 10, 10, nobody, "by hand").await.expect("claims");
        for job in claim.jobs {
            if job.conversation != self.id && !self.beside.is_imported(job.conversation) {
                return Err(format!("claimed a job of {}, which has none", job.conversation));
            }
            self.counting.push(Counting { job, read: None });
        }
        Ok(())
    }

    /// The worker at this place among those that count.
    fn worker(&mut self, place: u8) -> Option<&mut Counting> {
        let workers = self.counting.len();
        self.counting.get_mut(usize::from(place) % workers.max(1))
    }

    async fn read(&mut self, place: u8) -> Result<(), Broken> {
        let store = self.house.store.clone();
        let Some(worker) = self.worker(place) else { return Ok(()) };
        let Some(page) = store.uncounted_page(&worker.job).await.map_err(|error| format!("unread: {error}"))? else {
            return Ok(());
        };
        let counts = page.messages.into_iter().map(|(id, role, parts)| {
            let message = Message { role, parts, metadata: BTreeMap::new() };
            (id, count_message_while(page.encoding, &message, &|| true).unwrap_or_default())
        });
        worker.read = Some((page.counted, counts.collect()));
        Ok(())
    }

    async fn record(&mut self, place: u8, alone: bool) -> Result<(), Broken> {
        if self.counting.is_empty() {
            return Ok(());
        }
        let place = usize::from(place) % self.counting.len();
        let Counting { job, read } = self.counting.remove(place);
        let Some((counted, counts)) = read else { return Ok(()) };
        let one = CountedMessages { job: &job, counted, counts };
        let store = &self.house.store;
        let recorded = if alone {
            store.record_counts_alone(&one).await.map(Some)
        } else {
            store.record_counts(std::slice::from_ref(&one)).await.map(|mut recorded| recorded.pop().flatten())
        };
        match recorded {
            Ok(Some(_)) => self.note("counts recorded"),
            Err(error) if moot(&error) => self.note("counts of lost leases"),
            Ok(None) => return Err("nobody holds the conversation, and it was passed over".into()),
            Err(error) => return Err(format!("not recorded: {error}")),
        }
        Ok(())
    }

    async fn fail(&mut self, place: u8) -> Result<(), Broken> {
        if self.counting.is_empty() {
            return Ok(());
        }
        let place = usize::from(place) % self.counting.len();
        let job = self.counting.remove(place).job;
        match self.house.store.fail_job(&job, "it was to fail", 60_000, MAX_ATTEMPTS).await {
            Ok(_) => Ok(()),
            Err(error) if moot(&error) => Ok(()),
            Err(error) => Err(format!("could not fail: {error}")),
        }
    }

    async fn beat(&mut self, place: u8) -> Result<(), Broken> {
        let store = self.house.store.clone();
        let Some(worker) = self.worker(place) else { return Ok(()) };
        let beat = store.heartbeat(std::slice::from_ref(&worker.job)).await;
        beat.map(|_| ()).map_err(|error| format!("no heartbeat: {error}"))
    }

    async fn begin(&mut self) -> Result<(), Broken> {
        let summarizer = Waiting::default();
        let worker = self.house.worker_with(summarizer.clone());
        let mut running = tokio::spawn(async move { worker.run_until_idle().await });
        tokio::select! {
            () = summarizer.begun() => {
                self.note("summaries begun");
                self.summarizing.push(Summarizing { summarizer, running });
                Ok(())
            }
            ended = &mut running => ended.map(|_| ()).map_err(|error| format!("a worker panicked: {error}")),
        }
    }

    async fn go_on(&mut self, place: u8) -> Result<(), Broken> {
        if self.summarizing.is_empty() {
            return Ok(());
        }
        let place = usize::from(place) % self.summarizing.len();
        let Summarizing { summarizer, running } = self.summarizing.remove(place);
        // This summary, and whatever it comes to after it.
        for _ in 0..1_000 {
            summarizer.go_on();
        }
        running.await.map(|_| ()).map_err(|error| format!("a worker panicked: {error}"))
    }

    /// Returns the states of the conversation's jobs.
    async fn time_passes(&mut self) -> Vec<i16> {
        let passes = "update ai_job set due_ts = case state when 0 then now() else due_ts end,
                lease_until_ts = case state when 1 then now() - interval '1 s' else lease_until_ts end
            where conversation_id = $1 returning state";
        sqlx::query_scalar(passes).bind(self.id.0).fetch_all(&mut *self.db).await.expect("runs")
    }

    async fn change(&mut self, number: u8) -> Result<(), Broken> {
        self.policy = number;
        let change = ConversationChange { policy: Some(policy(number)), ..ConversationChange::default() };
        let changed =
            self.house.store.update_conversation(CALLER, self.id, None, Digest::default(), &change, None).await;
        changed.map(|_| ()).map_err(|error| format!("no other policy: {error}"))
    }

    async fn renew(&mut self) -> Result<(), Broken> {
        let old = self.id;
        self.house.store.delete_conversation(CALLER, old).await.map_err(|error| format!("not deleted: {error}"))?;
        self.said.clear();
        self.kept.clear();
        self.checkpoints.clear();
        self.requests.clear();
        self.separations.clear();
        self.separators.clear();
        self.create().await;
        self.note("conversations made again");
        if self.id == old { Ok(()) } else { Err("one request has made two ids".into()) }
    }

    /// All that is under way dies, and others do the work: nothing may be left to do.
    pub(crate) async fn settle(&mut self) {
        for _ in 0..20 {
            let states = self.time_passes().await;
            if states.is_empty() {
                return;
            }
            if states.contains(&1) {
                self.house.store.rescue_jobs(100).await.expect("rescues");
            }
            self.house.run_jobs_until_idle().await;
        }
    }

    /// Deletes the conversation; then everybody who was thought dead wakes up.
    pub(crate) async fn end(mut self) -> Result<(), Broken> {
        let deleted = self.house.store.delete_conversation(CALLER, self.id).await;
        deleted.map_err(|error| format!("not deleted: {error}"))?;
        self.leave_all().await?;
        while !self.summarizing.is_empty() {
            self.note("zombies woken");
            self.go_on(0).await?;
        }
        while !self.counting.is_empty() {
            self.record(0, true).await?;
        }
        Ok(())
    }

    /// The context, as callers get it.
    pub(crate) async fn context(&self, ask: pb::BuildContextRequest) -> Result<pb::BuildContextResponse, Broken> {
        let ask = pb::BuildContextRequest { conversation_id: self.id.to_string(), ..ask };
        let built = self.house.contexts().build_context(ask).await;
        Ok(built.map_err(|status| format!("no context: {status}"))?.into_inner())
    }
}
