//! Reads uncounted messages. Stores their token counts in a transaction that also enqueues the jobs
//! that are then due, and ends the counting jobs. The transaction handles many conversations at
//! once, and reads only those tails in which a trigger may have been reached. It takes locks in the
//! order of all transactions: conversations, messages, jobs, each kind sorted. If one lease is
//! lost, everything is rolled back.

use std::collections::HashMap;

use anneal_core::{
    caller::{ConversationId, TenantId},
    job::JobKind,
    message::{MessageId, Part, Role},
    tokens::{Encoding, Tokens},
    trigger::{self, TriggerBounds},
};
use uuid::Uuid;

use crate::{
    Store,
    connection::{BoundedConnection, row_security::Scope},
    conversations::lock_conversation,
    error::{Entity, StoreError},
    failpoint,
    policy_defaults::PolicyDefaults,
    queue::{ClaimedJob, DueJob, JobCommit, JobEnd, enqueue_jobs_of_many, finish_jobs},
    rows::{self, column},
    triggers::{
        tail_stats::{self, TailAndWindow},
        trigger_bounds::{self, ConversationBounds},
    },
};

/// A conversation with more uncounted messages is not counted in a batch, whose transaction must be
/// short.
const MESSAGES_IN_BATCH: i64 = 32;

/// A conversation with more bytes of uncounted content is not counted in a batch. The slowest known
/// text of this length takes 22 ms to count.
const BYTES_IN_BATCH: i64 = 32 * 1024;

/// Most messages that one run counts if the conversation is counted by itself. The others wait for
/// the next run.
const MESSAGES_OF_ONE: i64 = 500;

/// Most bytes of content that such a run counts, unless the first message alone has more.
const BYTES_OF_ONE: i64 = 8 * 1024 * 1024;

/// The messages of a conversation that are not counted yet, oldest first.
#[derive(Debug, Clone)]
pub struct UncountedMessages {
    /// The encoding that the conversation's tokens are counted in.
    pub encoding: Encoding,
    /// Every message up to this one is counted.
    pub counted: MessageId,
    /// The newest message of the conversation.
    pub last_message_id: MessageId,
    /// Ids, roles and parts of the messages.
    pub messages: Vec<(MessageId, Role, Vec<Part>)>,
}

/// The counts of one job's messages.
#[derive(Debug, Clone)]
pub struct CountedMessages<'a> {
    /// The counting job.
    pub job: &'a ClaimedJob,
    /// Every message up to this one was counted before.
    pub counted: MessageId,
    /// The counts of the messages after `counted`.
    pub counts: Vec<(MessageId, Tokens)>,
}

impl CountedMessages<'_> {
    /// The last message that these counts cover.
    fn last(&self) -> MessageId {
        self.counts.last().map_or(self.counted, |(id, _)| *id)
    }

    /// Tokens of the largest message that was counted.
    fn largest(&self) -> Tokens {
        self.counts
            .iter()
            .map(|(_, tokens)| *tokens)
            .max()
            .unwrap_or_default()
    }
}

/// A conversation whose row is locked.
struct LockedConversation {
    counted: MessageId,
    last: MessageId,
    /// Tokens of all messages.
    total: Tokens,
    /// The trigger bounds, if they were computed under the present settings and window.
    bounds: Option<TriggerBounds>,
    /// Whether its row has trigger bounds, perhaps computed under other settings or another window.
    has_stored_bounds: bool,
}

/// The columns of a locked conversation. Those that begin with `quiet` are the trigger bounds.
struct LockedRow {
    conversation_id: Uuid,
    counted_message_id: i64,
    last_message_id: i64,
    token_total: i64,
    quiet_message_id: Option<i64>,
    quiet_token_total: Option<i64>,
    quiet_large_tokens: Option<i64>,
    /// Whether the bounds were computed under the present settings and window.
    bounds_are_current: bool,
}

impl LockedRow {
    fn conversation(&self) -> LockedConversation {
        LockedConversation {
            counted: MessageId(self.counted_message_id),
            last: MessageId(self.last_message_id),
            total: rows::tokens(self.token_total),
            bounds: self.bounds().filter(|_| self.bounds_are_current),
            has_stored_bounds: self.quiet_message_id.is_some(),
        }
    }

    fn bounds(&self) -> Option<TriggerBounds> {
        Some(TriggerBounds {
            message: MessageId(self.quiet_message_id?),
            total: rows::tokens(self.quiet_token_total?),
            large: rows::tokens(self.quiet_large_tokens?),
        })
    }
}

impl LockedConversation {
    /// Whether these counts follow the messages that are counted already, and their messages exist.
    /// If not, another worker has counted the conversation after this one lost its lease, or the
    /// conversation was deleted and created again under the same id.
    fn accepts(&self, one: &CountedMessages<'_>) -> bool {
        one.counted == self.counted && one.last() <= self.last
    }

    /// Whether uncounted messages are left after these counts.
    fn more_after(&self, one: &CountedMessages<'_>) -> bool {
        self.last > self.counted_after(one)
    }

    /// The message up to which all messages are counted once these counts are stored.
    fn counted_after(&self, one: &CountedMessages<'_>) -> MessageId {
        if self.accepts(one) {
            one.last()
        } else {
            self.counted
        }
    }

    /// Whether no trigger can have been reached by the messages stored and counted so far.
    fn is_within_bounds_after(&self, one: &CountedMessages<'_>) -> bool {
        self.bounds
            .is_some_and(|bounds| bounds.holds(self.last, self.total, one.largest()))
    }
}

impl Store {
    /// Reads the uncounted messages of these jobs' conversations. Conversations with more than 32
    /// uncounted messages or 32 KiB of uncounted content are left out;
    /// [`Store::read_uncounted_page`] reads them. Deleted conversations are missing as well.
    pub async fn read_uncounted_messages(
        &self,
        jobs: &[&ClaimedJob],
    ) -> Result<HashMap<ConversationId, UncountedMessages>, StoreError> {
        let mut read = self
            .read_uncounted_rows(jobs, MESSAGES_IN_BATCH, BYTES_IN_BATCH, true)
            .await?;
        read.retain(|_, uncounted| {
            !uncounted.messages.is_empty() || uncounted.counted == uncounted.last_message_id
        });
        Ok(read)
    }

    /// Reads the next uncounted messages of one job's conversation: at most 500 with at most 8 MiB,
    /// or the first one alone if it has more. None if the conversation has been deleted.
    pub async fn read_uncounted_page(
        &self,
        job: &ClaimedJob,
    ) -> Result<Option<UncountedMessages>, StoreError> {
        let mut read = self
            .read_uncounted_rows(&[job], MESSAGES_OF_ONE, BYTES_OF_ONE, false)
            .await?;
        Ok(read.remove(&job.conversation))
    }

    /// Reads the next uncounted messages of the jobs' conversations: of each at most `limit`
    /// messages and `bytes` of content. `whole`: only of conversations that have no more than that.
    async fn read_uncounted_rows(
        &self,
        jobs: &[&ClaimedJob],
        limit: i64,
        bytes: i64,
        whole: bool,
    ) -> Result<HashMap<ConversationId, UncountedMessages>, StoreError> {
        let (tenants, conversations) = tenant_and_conversation_ids(jobs.iter().copied());
        let mut db = self
            .jobs
            .checkout(Scope::of(tenants.iter().copied().map(TenantId)))
            .await?;
        let rows = sqlx::query_file!(
            "sql/uncounted_messages.sql",
            &tenants,
            &conversations,
            limit,
            bytes,
            whole
        )
        .fetch_all(&mut *db)
        .await?;
        db.release().await?;
        failpoint!("counting.read");
        let mut read = HashMap::with_capacity(jobs.len());
        for row in rows {
            let uncounted =
                read.entry(ConversationId(row.conversation_id))
                    .or_insert(UncountedMessages {
                        encoding: rows::encoding(row.encoding)?,
                        counted: MessageId(row.counted_message_id),
                        last_message_id: MessageId(row.last_message_id),
                        messages: Vec::new(),
                    });
            if let (Some(message), Some(role), Some(content)) =
                (row.message_id, row.role, row.content)
            {
                uncounted.messages.push((
                    MessageId(message),
                    rows::role(role)?,
                    rows::parts(&content)?,
                ));
            }
        }
        Ok(read)
    }

    /// Stores the counts of many conversations, checks their triggers, and ends their jobs. Returns
    /// an entry for each job. It is None if the conversation was skipped, because another
    /// transaction holds it or because it has been deleted. After an error nothing is stored; then
    /// call [`Store::record_counts_of_one`] for each job.
    pub async fn record_counts(
        &self,
        batch: &[CountedMessages<'_>],
    ) -> Result<Vec<Option<JobCommit>>, StoreError> {
        let mut db = self
            .jobs
            .checkout(Scope::of(batch.iter().map(|one| one.job.tenant)))
            .await?;
        let mut tx = db.begin().await?;
        match self.write_and_finish(&mut tx, batch).await {
            Ok(recorded) => {
                tx.commit().await?;
                failpoint!("counting.committed");
                db.release().await?;
                Ok(recorded)
            }
            Err(refusal) if refusal.is_refusal() => {
                // Waits for the rollback, because the caller locks the same conversations again at
                // once.
                tx.rollback().await?;
                db.release().await?;
                Err(refusal)
            }
            Err(error) => Err(error),
        }
    }

    /// Records the counts of one job. Waits for the conversation's lock.
    pub async fn record_counts_of_one(
        &self,
        one: &CountedMessages<'_>,
    ) -> Result<JobCommit, StoreError> {
        let mut db = self.jobs.checkout(one.job.caller()).await?;
        let mut tx = db.begin().await?;
        lock_conversation(&mut tx, one.job.caller(), one.job.conversation).await?;
        failpoint!("counting.alone.locked");
        let committed = self
            .write_and_finish(&mut tx, std::slice::from_ref(one))
            .await?
            .pop()
            .flatten();
        tx.commit().await?;
        failpoint!("counting.alone.committed");
        db.release().await?;
        committed.ok_or(StoreError::NotFound(Entity::Conversation))
    }

    /// Stores the counts, checks the triggers, ends the jobs and enqueues those that are due.
    async fn write_and_finish(
        &self,
        db: &mut BoundedConnection,
        batch: &[CountedMessages<'_>],
    ) -> Result<Vec<Option<JobCommit>>, StoreError> {
        let policy_defaults = self.policy_defaults.get();
        let mut locked_rows = lock_available_conversations(db, batch, &policy_defaults).await?;
        failpoint!("counting.locked");
        let accepted = batch.iter().filter(|one| {
            locked_rows
                .get(&one.job.conversation)
                .is_some_and(|row| row.accepts(one))
        });
        for (conversation, total) in write_counts(db, accepted).await? {
            locked_rows
                .entry(conversation)
                .and_modify(|row| row.total = total);
        }
        failpoint!("counting.written");
        let locked = || {
            batch
                .iter()
                .filter_map(|one| locked_rows.get(&one.job.conversation).map(|row| (one, row)))
        };
        let tails = read_tails_and_store_bounds(
            db,
            &policy_defaults,
            locked().filter(|(one, row)| !row.is_within_bounds_after(one)),
        )
        .await?;
        failpoint!("counting.looked");
        let endings: Vec<JobEnd<'_>> = locked()
            .map(|(one, row)| JobEnd {
                job: one.job,
                more: row.more_after(one),
            })
            .collect();
        let mut finished = finish_jobs(db, JobKind::CountTokens, &endings).await?;
        let caused = |job: &ClaimedJob| {
            tails
                .get(&job.conversation)
                .map(|tail| trigger::due_jobs(&tail.state))
                .unwrap_or_default()
        };
        let due: Vec<_> = endings
            .iter()
            .flat_map(|end| {
                caused(end.job).into_iter().map(|kind| DueJob {
                    tenant: end.job.tenant,
                    conversation: end.job.conversation,
                    kind,
                    trace_context: end.job.trace_context.as_deref(),
                })
            })
            .collect();
        enqueue_jobs_of_many(db, &due).await?;
        failpoint!("counting.enqueued");
        let committed = batch.iter().map(|one| {
            let finished = finished.remove(&one.job.conversation)?;
            Some(JobCommit {
                finished,
                caused: caused(one.job),
                results_kept: true,
            })
        });
        Ok(committed.collect())
    }
}

/// Reads the tails of conversations, and stores the trigger bounds that follow from them.
async fn read_tails_and_store_bounds<'a>(
    db: &mut BoundedConnection,
    policy_defaults: &PolicyDefaults,
    locked: impl Iterator<Item = (&'a CountedMessages<'a>, &'a LockedConversation)>,
) -> Result<HashMap<ConversationId, TailAndWindow>, StoreError> {
    let locked: Vec<_> = locked.collect();
    if locked.is_empty() {
        return Ok(HashMap::new());
    }
    let (tenants, conversations) =
        tenant_and_conversation_ids(locked.iter().map(|(one, _)| one.job));
    let tails = tail_stats::read_tails(db, &tenants, &conversations, policy_defaults).await?;
    let bounds = locked.iter().filter_map(|(one, row)| {
        let TailAndWindow {
            state,
            model,
            window,
        } = tails.get(&one.job.conversation)?;
        let bounds = state.trigger_bounds(row.counted_after(one), row.total);
        let (tenant, conversation) = (one.job.tenant.0, one.job.conversation);
        let depends_on_window = state.policy.depends_on_window();
        let (model, window) = (
            model.clone().filter(|_| depends_on_window),
            window.filter(|_| depends_on_window),
        );
        (bounds.is_some() || row.has_stored_bounds).then_some(ConversationBounds {
            tenant,
            conversation,
            bounds,
            model,
            window,
        })
    });
    trigger_bounds::put_trigger_bounds(db, &bounds.collect::<Vec<_>>(), policy_defaults).await?;
    Ok(tails)
}

/// Tenant ids and conversation ids of jobs, as two columns.
fn tenant_and_conversation_ids<'a>(
    jobs: impl Iterator<Item = &'a ClaimedJob>,
) -> (Vec<Uuid>, Vec<Uuid>) {
    jobs.map(|job| (job.tenant.0, job.conversation.0)).unzip()
}

/// Locks those conversations of the batch that no other transaction holds.
async fn lock_available_conversations(
    db: &mut BoundedConnection,
    batch: &[CountedMessages<'_>],
    policy_defaults: &PolicyDefaults,
) -> Result<HashMap<ConversationId, LockedConversation>, StoreError> {
    let (tenants, conversations) = tenant_and_conversation_ids(batch.iter().map(|one| one.job));
    let rows = sqlx::query_file_as!(
        LockedRow,
        "sql/lock_conversations.sql",
        &tenants,
        &conversations,
        policy_defaults.fingerprint(),
    )
    .fetch_all(db)
    .await?;
    Ok(rows
        .into_iter()
        .map(|row| (ConversationId(row.conversation_id), row.conversation()))
        .collect())
}

/// Writes the counts of locked conversations. Returns each conversation's new total of tokens.
async fn write_counts<'a>(
    db: &mut BoundedConnection,
    accepted: impl Iterator<Item = &'a CountedMessages<'a>>,
) -> Result<Vec<(ConversationId, Tokens)>, StoreError> {
    let (mut message_tenants, mut message_conversations) = (Vec::new(), Vec::new());
    let (mut messages, mut tokens) = (Vec::new(), Vec::new());
    let (mut tenants, mut conversations, mut counted_up_to) = (Vec::new(), Vec::new(), Vec::new());
    for one in accepted.filter(|one| !one.counts.is_empty()) {
        let (tenant, conversation) = (one.job.tenant.0, one.job.conversation.0);
        for (id, count) in &one.counts {
            message_tenants.push(tenant);
            message_conversations.push(conversation);
            messages.push(id.0);
            tokens.push(column(*count));
        }
        tenants.push(tenant);
        conversations.push(conversation);
        counted_up_to.push(one.last().0);
    }
    if counted_up_to.is_empty() {
        return Ok(Vec::new());
    }
    let rows = sqlx::query_file!(
        "sql/record_counts.sql",
        &message_tenants,
        &message_conversations,
        &messages,
        &tokens,
        &tenants,
        &conversations,
        &counted_up_to,
    )
    .fetch_all(&mut *db)
    .await?;
    Ok(rows
        .into_iter()
        .map(|row| {
            (
                ConversationId(row.conversation_id),
                rows::tokens(row.token_total),
            )
        })
        .collect())
}
