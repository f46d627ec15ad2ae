//! The simulated conversation: its expected state, its workers, and how each operation is
//! performed.

use std::collections::{BTreeMap, BTreeSet};

use anneal_core::{
    caller::{Caller, ConversationId, TenantId},
    digest::Digest,
    job::{JobKind, MAX_ATTEMPTS},
    message::{Message, MessageId},
    tokens::{Tokens, count_message_while},
};
use anneal_store::{
    ClaimedJob, ConversationChange, CountedMessages, ManualCompaction, NewConversation,
    OpenToolCalls, StoreError,
};
use anneal_testkit::{GatedSummarizer, TestApp};
use sqlx::PgConnection;
use tokio::task::JoinHandle;
use uuid::Uuid;

use crate::simulation::{
    changes::MadeChange,
    invariants,
    messages::ExpectedMessage,
    operations::Operation,
    other_conversations::OtherConversations,
    policies_and_messages::{MarkedMessage, policy},
    turn_script::TurnScript,
    turns::{ExpectedTurns, TurnPrompt},
};

/// The caller of the store functions.
pub(crate) const CALLER: Caller = Caller::of(TenantId::DEFAULT);

/// A sentence that says which invariant is violated.
pub(crate) type Violation = String;

/// How often each event has happened in all lists of a thread, by the event's name.
pub(crate) type Tally = BTreeMap<&'static str, u64>;

/// A worker that has claimed a counting job.
struct CountingWorker {
    job: ClaimedJob,
    /// How often messages had been changed when it claimed the job.
    changes: u64,
    /// The last message that was counted before, and the new counts. None: nothing is read yet, or
    /// the conversation had been deleted when the worker read.
    read: Option<(MessageId, Vec<(MessageId, Tokens)>)>,
}

/// A worker whose summary is not finished.
struct SummarizingWorker {
    summarizer: GatedSummarizer,
    /// Runs the worker's jobs, and returns their number.
    running: JoinHandle<usize>,
    /// How often messages had been changed when it began.
    changes: u64,
}

/// One conversation and its expected state.
pub(crate) struct SimulatedConversation<'a> {
    pub(crate) app: &'a TestApp,
    pub(crate) db: &'a mut PgConnection,
    pub(crate) id: ConversationId,
    /// Number of its policy.
    pub(crate) policy: u8,
    /// The request id of the conversation's creation. One request id always makes the same
    /// conversation id.
    create_request_id: String,
    /// The messages that must be stored, in order.
    pub(crate) messages: Vec<ExpectedMessage>,
    /// How many marks of messages were made.
    pub(crate) marks: u64,
    /// The messages and the acknowledged message ids of each append with a request id.
    pub(crate) requests: BTreeMap<u8, (Vec<MarkedMessage>, Vec<i64>)>,
    /// The change that was made with a request id, by its event.
    pub(crate) made_changes: BTreeMap<&'static str, MadeChange>,
    /// How often messages were changed.
    pub(crate) changes: u64,
    pub(crate) turns: ExpectedTurns,
    /// The position of each separator that was inserted with a request id.
    separator_requests: BTreeMap<u8, MessageId>,
    pub(crate) separators: BTreeSet<MessageId>,
    /// Last messages of the checkpoints at the last check.
    pub(crate) checkpoints: Vec<i64>,
    /// Whether the next check verifies the conversation.
    pub(crate) must_verify: bool,
    pub(crate) others: OtherConversations,
    counting_workers: Vec<CountingWorker>,
    summarizing_workers: Vec<SummarizingWorker>,
    pub(crate) tally: &'a mut Tally,
}

/// Whether the error means that the job has passed to another worker or is deleted.
fn is_lost_job(error: &StoreError) -> bool {
    matches!(error, StoreError::LeaseLost | StoreError::NotFound(_))
}

impl<'a> SimulatedConversation<'a> {
    pub(crate) async fn create(
        app: &'a TestApp,
        db: &'a mut PgConnection,
        policy: u8,
        script: &TurnScript,
        tally: &'a mut Tally,
    ) -> Self {
        let create_request_id = Uuid::now_v7().to_string();
        let mut simulated = Self {
            app,
            db,
            id: ConversationId(Uuid::nil()),
            policy,
            create_request_id,
            messages: Vec::new(),
            marks: 0,
            requests: BTreeMap::new(),
            made_changes: BTreeMap::new(),
            changes: 0,
            turns: ExpectedTurns::new(script),
            separator_requests: BTreeMap::new(),
            separators: BTreeSet::new(),
            checkpoints: Vec::new(),
            must_verify: false,
            others: OtherConversations::default(),
            counting_workers: Vec::new(),
            summarizing_workers: Vec::new(),
            tally,
        };
        simulated.create_conversation().await;
        simulated
    }

    async fn create_conversation(&mut self) {
        let new = NewConversation {
            policy: policy(self.policy),
            ..NewConversation::default()
        }
        .counted();
        let made = self.app.store.create_conversation(
            CALLER,
            Some(&self.create_request_id),
            Digest::default(),
            &new,
        );
        self.id = made.await.expect("creates").id;
    }

    pub(crate) fn record_event(&mut self, event: &'static str) {
        *self.tally.entry(event).or_default() += 1;
    }

    /// Whether the operation would do nothing, because nothing exists that it applies to.
    pub(crate) fn is_no_op(&self, operation: Operation) -> bool {
        match operation {
            Operation::FinishSummary(_) => self.summarizing_workers.is_empty(),
            Operation::DeleteSeparator => self.separators.is_empty(),
            Operation::Turn { prompt, .. } => {
                matches!(prompt, TurnPrompt::Edited(..)) && self.messages.is_empty()
            }
            Operation::Change { .. }
            | Operation::EditTwice { .. }
            | Operation::Fork(_)
            | Operation::Choose(..) => self.messages.is_empty(),
            Operation::DeleteActiveSession | Operation::DeleteImported => {
                self.others.is_no_op(operation)
            }
            _ => false,
        }
    }

    /// Performs one operation. A result that contradicts the expected state is a violation.
    pub(crate) async fn perform(&mut self, operation: Operation) -> Result<(), Violation> {
        match operation {
            Operation::Append {
                request,
                body,
                messages,
            } => self.append(request, body, messages).await,
            Operation::InsertSeparator { request } => self.insert_separator(request).await,
            Operation::DeleteSeparator => self.delete_separator().await,
            Operation::RequestCompaction => self.request_compaction().await,
            Operation::BuildContext(variant) => {
                invariants::build_and_check_context(self, variant).await
            }
            Operation::RunJobs => self.run_jobs().await,
            Operation::ClaimCounting => self.claim_counting_jobs().await,
            Operation::ReadUncounted(_)
            | Operation::RecordCounts(..)
            | Operation::FailJob(_)
            | Operation::Heartbeat(_)
                if self.counting_workers.is_empty() =>
            {
                self.claim_counting_jobs().await
            }
            Operation::ReadUncounted(index) => self.read_uncounted_messages(index).await,
            Operation::RecordCounts(index, is_single) => self.record_counts(index, is_single).await,
            Operation::FailJob(index) => self.fail_job(index).await,
            Operation::Heartbeat(index) => self.heartbeat(index).await,
            Operation::BeginSummary => self.begin_summary().await,
            Operation::FinishSummary(index) => self.finish_summary(index).await,
            Operation::EndLeasesAndWaits => {
                self.end_leases_and_waits().await;
                Ok(())
            }
            Operation::RescueJobs => {
                let rescued = self.app.store.rescue_jobs(100).await.expect("rescues");
                if rescued.waiting > 0 {
                    self.record_event("jobs rescued");
                }
                Ok(())
            }
            Operation::ChangePolicy(number) => self.change_policy(number).await,
            Operation::Recreate => self.recreate().await,
            Operation::ResolveSession => self.resolve_session().await,
            Operation::RotateSession { repeatable } => self.rotate_session(repeatable).await,
            Operation::DeleteActiveSession => self.delete_active_session().await,
            Operation::ImportFile(turns) => self.import_file(turns).await,
            Operation::DeleteImported => self.delete_imported_conversation().await,
            Operation::Change {
                operation,
                has_request,
            } => self.change(operation, has_request).await,
            Operation::EditTwice { which, size } => self.edit_twice(which, size).await,
            Operation::Fork(at) => self.fork_and_check(at).await,
            Operation::Turn {
                prompt,
                end,
                has_request,
            } => Box::pin(self.run_turn(prompt, end, has_request)).await,
            Operation::Choose(which, number) => self.choose(which, number).await,
        }
    }

    async fn insert_separator(&mut self, request: Option<u8>) -> Result<(), Violation> {
        let request_id = request.map(|id| format!("s{id}"));
        let inserted = self
            .app
            .store
            .insert_separator(
                CALLER,
                self.id,
                request_id.as_deref(),
                None,
                OpenToolCalls::Part,
            )
            .await;
        let after = inserted
            .map_err(|error| format!("no separator: {error}"))?
            .after;
        let earlier = request.and_then(|id| self.separator_requests.get(&id).copied());
        if after != earlier.unwrap_or(self.last_message_id()) {
            return Err(format!(
                "a separator was inserted after message {after}, and requested when message {} was the last",
                self.last_message_id()
            ));
        }
        if earlier.is_none() {
            self.separators.insert(after);
            if let Some(id) = request {
                self.separator_requests.insert(id, after);
            }
            self.record_event("separators");
        }
        Ok(())
    }

    async fn delete_separator(&mut self) -> Result<(), Violation> {
        let Some(after) = self.separators.pop_last() else {
            return Ok(());
        };
        let deleted = self
            .app
            .store
            .delete_separator(CALLER, self.id, None, after)
            .await;
        deleted
            .map(|_| ())
            .map_err(|error| format!("the separator after {after} was not deleted: {error}"))
    }

    async fn request_compaction(&mut self) -> Result<(), Violation> {
        let manual = ManualCompaction {
            focus: String::new(),
            request_id: Uuid::now_v7().to_string(),
            keep: None,
        };
        let requested = self
            .app
            .store
            .request_compaction(CALLER, self.id, &manual)
            .await;
        requested
            .map(|_| ())
            .map_err(|error| format!("no compaction: {error}"))
    }

    async fn run_jobs(&mut self) -> Result<(), Violation> {
        let before = self.read_last_checkpoint().await;
        self.app.run_jobs_until_idle().await;
        let after = self.read_last_checkpoint().await;
        // A suspended worker may have planned a checkpoint from earlier messages. While there is
        // such a worker, checkpoints are not checked.
        if after == before || !self.summarizing_workers.is_empty() {
            return Ok(());
        }
        invariants::check_tool_pairs(self).await
    }

    /// The last message of the newest checkpoint.
    pub(crate) async fn read_last_checkpoint(&mut self) -> Option<i64> {
        let newest = "select max(last_message_id) from ai_conversation_checkpoint where conversation_id = $1";
        sqlx::query_scalar(newest)
            .bind(self.id.0)
            .fetch_one(&mut *self.db)
            .await
            .expect("runs the query")
    }

    async fn claim_counting_jobs(&mut self) -> Result<(), Violation> {
        let before_all_tenants = TenantId(Uuid::nil());
        let claim = self
            .app
            .store
            .claim_jobs(
                JobKind::CountTokens,
                10,
                10,
                before_all_tenants,
                "by hand",
                &[],
            )
            .await
            .expect("claims");
        for job in claim.jobs {
            if job.conversation != self.id && !self.others.is_imported(job.conversation) {
                return Err(format!(
                    "claimed a job of {}, which must have none",
                    job.conversation
                ));
            }
            self.counting_workers.push(CountingWorker {
                job,
                changes: self.changes,
                read: None,
            });
        }
        Ok(())
    }

    /// The counting worker at this index, modulo their number.
    fn counting_worker(&mut self, index: u8) -> Option<&mut CountingWorker> {
        let workers = self.counting_workers.len();
        self.counting_workers
            .get_mut(usize::from(index) % workers.max(1))
    }

    async fn read_uncounted_messages(&mut self, index: u8) -> Result<(), Violation> {
        let store = self.app.store.clone();
        let Some(worker) = self.counting_worker(index) else {
            return Ok(());
        };
        let Some(page) = store
            .read_uncounted_page(&worker.job)
            .await
            .map_err(|error| format!("not read: {error}"))?
        else {
            return Ok(());
        };
        let counts = page.messages.into_iter().map(|(id, role, parts)| {
            let message = Message {
                role,
                parts,
                metadata: BTreeMap::new(),
            };
            (
                id,
                count_message_while(page.encoding, &message, &|| true).unwrap_or_default(),
            )
        });
        worker.read = Some((page.counted, counts.collect()));
        Ok(())
    }

    async fn record_counts(&mut self, index: u8, is_single: bool) -> Result<(), Violation> {
        if self.counting_workers.is_empty() {
            return Ok(());
        }
        let index = usize::from(index) % self.counting_workers.len();
        let CountingWorker { job, changes, read } = self.counting_workers.remove(index);
        let Some((counted, counts)) = read else {
            return Ok(());
        };
        let is_late = job.conversation == self.id && changes < self.changes;
        let one = CountedMessages {
            job: &job,
            counted,
            counts,
        };
        let store = &self.app.store;
        let recorded = if is_single {
            store.record_counts_of_one(&one).await.map(Some)
        } else {
            store
                .record_counts(std::slice::from_ref(&one))
                .await
                .map(|mut recorded| recorded.pop().flatten())
        };
        match recorded {
            Ok(Some(_)) if is_late => {
                return Err("counts of before a change of messages were recorded".into());
            }
            Ok(Some(_)) => self.record_event("counts recorded"),
            Err(error) if is_late && is_lost_job(&error) => {
                self.record_event("counts refused after a change");
            }
            Err(error) if is_lost_job(&error) => self.record_event("counts of lost leases"),
            Ok(None) => {
                return Err("the conversation is not locked, and its counts were skipped".into());
            }
            Err(error) => return Err(format!("not recorded: {error}")),
        }
        Ok(())
    }

    async fn fail_job(&mut self, index: u8) -> Result<(), Violation> {
        if self.counting_workers.is_empty() {
            return Ok(());
        }
        let index = usize::from(index) % self.counting_workers.len();
        let job = self.counting_workers.remove(index).job;
        // The job waits for 60,000 ms, unless `Operation::EndLeasesAndWaits` ends the wait.
        match self
            .app
            .store
            .fail_job(&job, "failed on purpose", 60_000, MAX_ATTEMPTS)
            .await
        {
            Ok(_) => Ok(()),
            Err(error) if is_lost_job(&error) => Ok(()),
            Err(error) => Err(format!("the failure was not recorded: {error}")),
        }
    }

    async fn heartbeat(&mut self, index: u8) -> Result<(), Violation> {
        let store = self.app.store.clone();
        let Some(worker) = self.counting_worker(index) else {
            return Ok(());
        };
        let beat = store.heartbeat(std::slice::from_ref(&worker.job)).await;
        beat.map(|_| ())
            .map_err(|error| format!("no heartbeat: {error}"))
    }

    async fn begin_summary(&mut self) -> Result<(), Violation> {
        let summarizer = GatedSummarizer::default();
        let worker = self.app.worker_with(summarizer.clone());
        let mut running = tokio::spawn(async move { worker.run_until_idle().await });
        tokio::select! {
            () = summarizer.wait_until_begun() => {
                self.record_event("summaries begun");
                let changes = self.changes;
                self.summarizing_workers.push(SummarizingWorker { summarizer, running, changes });
                Ok(())
            }
            ended = &mut running => ended.map(|_| ()).map_err(|error| format!("a worker panicked: {error}")),
        }
    }

    async fn finish_summary(&mut self, index: u8) -> Result<(), Violation> {
        if self.summarizing_workers.is_empty() {
            return Ok(());
        }
        let index = usize::from(index) % self.summarizing_workers.len();
        let SummarizingWorker {
            summarizer,
            running,
            changes,
        } = self.summarizing_workers.remove(index);
        if changes < self.changes {
            self.record_event("summaries finished after a change");
            self.must_verify = true;
        }
        // Releases this summary and all later ones of the worker.
        for _ in 0..1_000 {
            summarizer.release_one();
        }
        running
            .await
            .map(|_| ())
            .map_err(|error| format!("a worker panicked: {error}"))
    }

    /// Ends the leases of running jobs and makes waiting jobs due. Returns the states of the jobs
    /// (0: waiting, 1: running).
    async fn end_leases_and_waits(&mut self) -> Vec<i16> {
        let update = "update ai_job set due_ts = case state when 0 then now() else due_ts end,
                lease_until_ts = case state when 1 then now() - interval '1 s' else lease_until_ts end
            where conversation_id = $1 returning state";
        sqlx::query_scalar(update)
            .bind(self.id.0)
            .fetch_all(&mut *self.db)
            .await
            .expect("runs")
    }

    async fn change_policy(&mut self, number: u8) -> Result<(), Violation> {
        self.policy = number;
        let change = ConversationChange {
            policy: Some(policy(number)),
            ..ConversationChange::default()
        };
        let store = &self.app.store;
        let changed = store
            .update_conversation(CALLER, self.id, None, Digest::default(), &change, None)
            .await;
        changed
            .map(|_| ())
            .map_err(|error| format!("the policy was not changed: {error}"))
    }

    async fn recreate(&mut self) -> Result<(), Violation> {
        let old = self.id;
        self.app
            .store
            .delete_conversation(CALLER, old)
            .await
            .map_err(|error| format!("not deleted: {error}"))?;
        self.messages.clear();
        self.made_changes.clear();
        self.turns.clear();
        self.checkpoints.clear();
        self.requests.clear();
        self.separator_requests.clear();
        self.separators.clear();
        self.create_conversation().await;
        self.record_event("conversations recreated");
        if self.id == old {
            Ok(())
        } else {
            Err("one request id has created two conversation ids".into())
        }
    }

    /// Ends the leases of all workers and runs the jobs on another worker, until no job is left or
    /// for 20 rounds. [`invariants::check_after_all_jobs`] reports the jobs that are left then.
    pub(crate) async fn finish_all_jobs(&mut self) {
        for _ in 0..20 {
            let states = self.end_leases_and_waits().await;
            if states.is_empty() {
                return;
            }
            // A running job must be rescued first.
            if states.contains(&1) {
                self.app.store.rescue_jobs(100).await.expect("rescues");
            }
            self.app.run_jobs_until_idle().await;
        }
    }

    /// Deletes this conversation and the others. Then every worker that still has work resumes.
    pub(crate) async fn delete_and_resume_workers(mut self) -> Result<(), Violation> {
        let deleted = self.app.store.delete_conversation(CALLER, self.id).await;
        deleted.map_err(|error| format!("not deleted: {error}"))?;
        self.delete_all_others().await?;
        while !self.summarizing_workers.is_empty() {
            self.record_event("stalled workers resumed");
            self.finish_summary(0).await?;
        }
        while !self.counting_workers.is_empty() {
            self.record_counts(0, true).await?;
        }
        Ok(())
    }
}
