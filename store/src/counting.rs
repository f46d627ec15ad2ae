//! What counting reads, and the transaction in which it writes: counts, triggered jobs, the ends of its own. Both are for many
//! conversations at once. Tails are looked at only where a trigger may have been reached. Locks are taken in one order
//! everywhere: conversations, messages, jobs, each kind sorted. A lost lease rolls everything back.

use std::collections::HashMap;

use anneal_core::{
    caller::{ConversationId, TenantId},
    job::JobKind,
    message::{MessageId, Part, Role},
    tokens::{Encoding, Tokens},
    trigger::{self, Quiet},
};
use sqlx::{Connection as _, PgConnection};
use uuid::Uuid;

use crate::{
    Store,
    claims::{ClaimedJob, Committed, Ending, finish_all},
    conversations::locked,
    error::{Entity, StoreError},
    failpoint,
    jobs::enqueue_all,
    quiet::{self, Note},
    rows::{self, column},
    rules::Rules,
    scope::Scope,
    tail::{self, Looked},
};

/// Messages of a conversation that is counted among others: a transaction of many is short while each of them is small.
const MESSAGES_AMONG_OTHERS: i64 = 32;
/// Bytes of their text: the slowest text known takes 22 ms.
const BYTES_AMONG_OTHERS: i64 = 32 * 1024;
/// Messages of a conversation that is counted by itself; more wait for its next run.
const MESSAGES_ALONE: i64 = 500;
/// Bytes of their text beyond the first message.
const BYTES_ALONE: i64 = 8 * 1024 * 1024;

/// The messages of a conversation that are not counted yet, oldest first.
#[derive(Debug, Clone)]
pub struct UncountedMessages {
    /// What the conversation's tokens are counted in.
    pub encoding: Encoding,
    /// Every message up to this one is counted.
    pub counted: MessageId,
    /// The newest message of the conversation.
    pub last_message_id: MessageId,
    /// The messages: ids, roles and parts.
    pub messages: Vec<(MessageId, Role, Vec<Part>)>,
}

/// The counts of a job's messages.
#[derive(Debug, Clone)]
pub struct CountedMessages<'a> {
    /// The job.
    pub job: &'a ClaimedJob,
    /// Every message up to this one was counted before.
    pub counted: MessageId,
    /// The counts of those that follow it.
    pub counts: Vec<(MessageId, Tokens)>,
}

impl CountedMessages<'_> {
    /// The message up to which all are counted now.
    fn last(&self) -> MessageId {
        self.counts.last().map_or(self.counted, |(id, _)| *id)
    }

    /// Tokens of the largest of them.
    fn largest(&self) -> Tokens {
        self.counts.iter().map(|(_, tokens)| *tokens).max().unwrap_or_default()
    }
}

/// A conversation whose row is locked.
struct Head {
    counted: MessageId,
    last: MessageId,
    /// Tokens of all messages.
    total: Tokens,
    /// How long it is quiet.
    quiet: Option<Quiet>,
    /// Whether its row says that it is, if only under other settings.
    noted: bool,
}

struct HeadRow {
    conversation_id: Uuid,
    counted_message_id: i64,
    last_message_id: i64,
    token_total: i64,
    quiet_message_id: Option<i64>,
    quiet_token_total: Option<i64>,
    quiet_large_tokens: Option<i64>,
    is_quiet: bool,
}

impl HeadRow {
    fn head(&self) -> Head {
        Head {
            counted: MessageId(self.counted_message_id),
            last: MessageId(self.last_message_id),
            total: rows::tokens(self.token_total),
            quiet: self.quiet().filter(|_| self.is_quiet),
            noted: self.quiet_message_id.is_some(),
        }
    }

    fn quiet(&self) -> Option<Quiet> {
        Some(Quiet {
            message: MessageId(self.quiet_message_id?),
            total: rows::tokens(self.quiet_token_total?),
            large: rows::tokens(self.quiet_large_tokens?),
        })
    }
}

impl Head {
    /// Whether these counts follow what is counted, and are of messages that are there: a conversation that was deleted and made
    /// again under its id has others.
    fn takes(&self, one: &CountedMessages<'_>) -> bool {
        one.counted == self.counted && one.last() <= self.last
    }

    /// Whether messages are left to count after them.
    fn more_after(&self, one: &CountedMessages<'_>) -> bool {
        self.last > self.counted_after(one)
    }

    /// The message up to which all are counted then.
    fn counted_after(&self, one: &CountedMessages<'_>) -> MessageId {
        if self.takes(one) { one.last() } else { self.counted }
    }

    /// Whether no trigger can have been reached by what was stored and counted.
    fn is_quiet_after(&self, one: &CountedMessages<'_>) -> bool {
        self.quiet.is_some_and(|quiet| quiet.holds(self.last, self.total, one.largest()))
    }
}

impl Store {
    /// The uncounted messages of jobs' conversations. What takes time is left out, for [`Store::uncounted_page`]: conversations
    /// with more than 32 messages or 32 KiB waiting. So are those that are gone.
    pub async fn uncounted_messages(
        &self,
        jobs: &[&ClaimedJob],
    ) -> Result<HashMap<ConversationId, UncountedMessages>, StoreError> {
        let mut read = self.read_uncounted(jobs, MESSAGES_AMONG_OTHERS, BYTES_AMONG_OTHERS, true).await?;
        read.retain(|_, uncounted| !uncounted.messages.is_empty() || uncounted.counted == uncounted.last_message_id);
        Ok(read)
    }

    /// The next uncounted messages of one job's conversation: at most 500, at most 8 MiB of text beyond the first. None when
    /// the conversation is gone.
    pub async fn uncounted_page(&self, job: &ClaimedJob) -> Result<Option<UncountedMessages>, StoreError> {
        let mut read = self.read_uncounted(&[job], MESSAGES_ALONE, BYTES_ALONE, false).await?;
        Ok(read.remove(&job.conversation))
    }

    async fn read_uncounted(
        &self,
        jobs: &[&ClaimedJob],
        limit: i64,
        bytes: i64,
        whole: bool,
    ) -> Result<HashMap<ConversationId, UncountedMessages>, StoreError> {
        let (tenants, conversations) = places(jobs.iter().copied());
        let mut db = self.jobs.checkout(Scope::of(tenants.iter().copied().map(TenantId))).await?;
        let rows = sqlx::query_file!("sql/uncounted_messages.sql", &tenants, &conversations, limit, bytes, whole)
            .fetch_all(&mut *db)
            .await?;
        db.release().await?;
        failpoint!("counting.read");
        let mut read = HashMap::with_capacity(jobs.len());
        for row in rows {
            let uncounted = read.entry(ConversationId(row.conversation_id)).or_insert(UncountedMessages {
                encoding: rows::encoding(row.encoding)?,
                counted: MessageId(row.counted_message_id),
                last_message_id: MessageId(row.last_message_id),
                messages: Vec::new(),
            });
            if let (Some(message), Some(role), Some(content)) = (row.message_id, row.role, row.content) {
                uncounted.messages.push((MessageId(message), rows::role(role)?, rows::parts(&content)?));
            }
        }
        Ok(read)
    }

    /// Stores the counts of many conversations, looks at their triggers, and ends their jobs. None: somebody else holds the
    /// conversation, or it is gone; nothing of it was written, nor waited for. An error means that nothing was written at all:
    /// each job has its own with [`Store::record_counts_alone`].
    pub async fn record_counts(&self, batch: &[CountedMessages<'_>]) -> Result<Vec<Option<Committed>>, StoreError> {
        let mut db = self.jobs.checkout(Scope::of(batch.iter().map(|one| one.job.tenant))).await?;
        let mut tx = db.begin().await?;
        match self.record(&mut tx, batch).await {
            Ok(recorded) => {
                tx.commit().await?;
                failpoint!("counting.committed");
                db.release().await?;
                Ok(recorded)
            }
            Err(lost) if lost.is_refusal() => {
                // The same conversations are locked again at once: they must be free by then.
                tx.rollback().await?;
                db.release().await?;
                Err(lost)
            }
            Err(error) => Err(error),
        }
    }

    /// The same for one job, whose conversation is waited for.
    pub async fn record_counts_alone(&self, counted: &CountedMessages<'_>) -> Result<Committed, StoreError> {
        let mut db = self.jobs.checkout(counted.job.caller()).await?;
        let mut tx = db.begin().await?;
        locked(&mut tx, counted.job.caller(), counted.job.conversation).await?;
        failpoint!("counting.alone.locked");
        let committed = self.record(&mut tx, std::slice::from_ref(counted)).await?.pop().flatten();
        tx.commit().await?;
        failpoint!("counting.alone.committed");
        db.release().await?;
        committed.ok_or(StoreError::NotFound(Entity::Conversation))
    }

    async fn record(
        &self,
        db: &mut PgConnection,
        batch: &[CountedMessages<'_>],
    ) -> Result<Vec<Option<Committed>>, StoreError> {
        let mut heads = lock(db, batch, &self.rules).await?;
        failpoint!("counting.locked");
        let taken = batch.iter().filter(|one| heads.get(&one.job.conversation).is_some_and(|head| head.takes(one)));
        for (conversation, total) in write(db, taken).await? {
            heads.entry(conversation).and_modify(|head| head.total = total);
        }
        failpoint!("counting.written");
        let held = || batch.iter().filter_map(|one| heads.get(&one.job.conversation).map(|head| (one, head)));
        let looked = self.look(db, held().filter(|(one, head)| !head.is_quiet_after(one))).await?;
        failpoint!("counting.looked");
        let endings: Vec<Ending<'_>> =
            held().map(|(one, head)| Ending { job: one.job, more: head.more_after(one) }).collect();
        let mut finished = finish_all(db, JobKind::CountTokens, &endings).await?;
        let caused = |job: &ClaimedJob| {
            looked.get(&job.conversation).map(|looked| trigger::jobs(&looked.state)).unwrap_or_default()
        };
        let dirty: Vec<_> = endings
            .iter()
            .flat_map(|end| caused(end.job).into_iter().map(|kind| (end.job.tenant, end.job.conversation, kind)))
            .collect();
        enqueue_all(db, &dirty).await?;
        failpoint!("counting.enqueued");
        let committed = batch.iter().map(|one| {
            let finished = finished.remove(&one.job.conversation)?;
            Some(Committed { finished, caused: caused(one.job), kept: true })
        });
        Ok(committed.collect())
    }

    /// Looks at tails, and notes how long their conversations are quiet from here on.
    async fn look<'a>(
        &self,
        db: &mut PgConnection,
        held: impl Iterator<Item = (&'a CountedMessages<'a>, &'a Head)>,
    ) -> Result<HashMap<ConversationId, Looked>, StoreError> {
        let held: Vec<_> = held.collect();
        if held.is_empty() {
            return Ok(HashMap::new());
        }
        let (tenants, conversations) = places(held.iter().map(|(one, _)| one.job));
        let looked = tail::look(db, &tenants, &conversations, &self.rules).await?;
        let notes = held.iter().filter_map(|(one, head)| {
            let Looked { state, model, window } = looked.get(&one.job.conversation)?;
            let quiet = state.quiet(head.counted_after(one), head.total);
            let (tenant, conversation) = (one.job.tenant.0, one.job.conversation);
            let by_window = state.policy.goes_by_window();
            let (model, window) = (model.clone().filter(|_| by_window), window.filter(|_| by_window));
            (quiet.is_some() || head.noted).then_some(Note { tenant, conversation, quiet, model, window })
        });
        quiet::put(db, &notes.collect::<Vec<_>>(), &self.rules).await?;
        Ok(looked)
    }
}

/// Tenants and conversations of jobs, side by side.
fn places<'a>(jobs: impl Iterator<Item = &'a ClaimedJob>) -> (Vec<Uuid>, Vec<Uuid>) {
    jobs.map(|job| (job.tenant.0, job.conversation.0)).unzip()
}

/// Locks the conversations that nobody else holds.
async fn lock(
    db: &mut PgConnection,
    batch: &[CountedMessages<'_>],
    rules: &Rules,
) -> Result<HashMap<ConversationId, Head>, StoreError> {
    let (tenants, conversations) = places(batch.iter().map(|one| one.job));
    let rows =
        sqlx::query_file_as!(HeadRow, "sql/lock_conversations.sql", &tenants, &conversations, rules.fingerprint(),)
            .fetch_all(db)
            .await?;
    Ok(rows.into_iter().map(|row| (ConversationId(row.conversation_id), row.head())).collect())
}

/// Writes the counts of locked conversations. Returns the tokens of all their messages.
async fn write<'a>(
    db: &mut PgConnection,
    counted: impl Iterator<Item = &'a CountedMessages<'a>>,
) -> Result<Vec<(ConversationId, Tokens)>, StoreError> {
    let (mut message_tenants, mut message_conversations) = (Vec::new(), Vec::new());
    let (mut messages, mut tokens) = (Vec::new(), Vec::new());
    let (mut tenants, mut conversations, mut marks) = (Vec::new(), Vec::new(), Vec::new());
    for one in counted.filter(|one| !one.counts.is_empty()) {
        let (tenant, conversation) = (one.job.tenant.0, one.job.conversation.0);
        for (id, count) in &one.counts {
            message_tenants.push(tenant);
            message_conversations.push(conversation);
            messages.push(id.0);
            tokens.push(column(*count));
        }
        tenants.push(tenant);
        conversations.push(conversation);
        marks.push(one.last().0);
    }
    if marks.is_empty() {
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
        &marks,
    )
    .fetch_all(&mut *db)
    .await?;
    #[cfg(feature = "sabotage")]
    crate::sabotage::count_again(db, &conversations).await?;
    Ok(rows.into_iter().map(|row| (ConversationId(row.conversation_id), rows::tokens(row.token_total))).collect())
}
