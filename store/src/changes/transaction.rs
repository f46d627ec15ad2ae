//! The transaction that all changes share. A change begins it, moves content, which is the only
//! step in which changes differ, and finishes it: everything that is derived from the messages
//! follows, and what is under way ends.

use std::collections::BTreeSet;

use anneal_core::{
    boundary::Boundary,
    caller::{Caller, ConversationId},
    job::JobKind,
    message::MessageId,
    trigger,
};
use uuid::Uuid;

use super::{
    ChangeAsk, ChangeConditions, MessageChange, MessageChangeKind,
    derived::{self, ContextStart},
    fence,
    selection::{self, IdRange, runs_of},
    targets::{self, Target, Targets},
    title, turns,
};
use crate::{
    connection::{BoundedConnection, Transaction},
    conversations::{ChangeHead, lock_for_change},
    erasures::message_receipt_id,
    error::StoreError,
    failpoint,
    idempotency::{self, EarlierRequest, IdempotentRequest},
    policy_defaults::PolicyDefaults,
    queue::enqueue_jobs,
    rows::tokens,
    triggers::tail_stats,
};

/// A change that has begun.
pub(crate) enum Begun<'a> {
    /// An earlier call with the same request id has made it. Its transaction has ended.
    Replayed(MessageChange),
    /// It is new.
    New(ChangeTransaction<'a>),
}

/// The effect of a change on messages.
pub(crate) struct Moved {
    /// The messages whose content changed, in order; at least one.
    pub(crate) changed: Vec<MessageId>,
    /// By how much the tokens of all messages change.
    pub(crate) token_change: i64,
    /// By how much the number of withdrawn messages changes.
    pub(crate) withdrawn_change: i64,
    /// By how many bytes what the tenant has stored changes. Counting adds the bytes of messages
    /// that are not counted yet, so those count only while they are withdrawn.
    pub(crate) usage_bytes_change: i64,
    /// Whether a user's message changed, from which the title may have been made.
    pub(crate) touches_title: bool,
    /// Whether other messages stand than before, so that turns may differ.
    pub(crate) renumbers: bool,
    /// The new version of an edited message.
    pub(crate) version: Option<i32>,
}

impl Moved {
    /// The effect of this change and of an earlier one in the same transaction, on figures. The
    /// changed messages are those of this one.
    pub(super) fn after(self, earlier: &Self) -> Self {
        Self {
            token_change: self.token_change + earlier.token_change,
            withdrawn_change: self.withdrawn_change + earlier.withdrawn_change,
            usage_bytes_change: self.usage_bytes_change + earlier.usage_bytes_change,
            touches_title: self.touches_title || earlier.touches_title,
            renumbers: self.renumbers || earlier.renumbers,
            ..self
        }
    }
}

/// A change under way. It holds the conversation's row lock.
pub(crate) struct ChangeTransaction<'a> {
    tx: Transaction<'a>,
    caller: Caller,
    id: ConversationId,
    kind: MessageChangeKind,
    request: &'a IdempotentRequest<'a>,
    head: ChangeHead,
    start: ContextStart,
    /// The lease of the turn that makes the change. It goes on.
    spared: Option<Uuid>,
}

impl<'a> ChangeTransaction<'a> {
    /// Begins the transaction and locks the conversation. Checks the conditions, unless an earlier
    /// call with the same request id has made the change.
    pub(crate) async fn begin(
        db: &'a mut BoundedConnection,
        (caller, id): (Caller, ConversationId),
        (kind, request): (MessageChangeKind, &'a IdempotentRequest<'a>),
        conditions: ChangeConditions,
    ) -> Result<Begun<'a>, StoreError> {
        let mut change = Self::open(db, (caller, id), (kind, request)).await?;
        let earlier = idempotency::find_request(&mut change.tx, caller, id, request).await?;
        if let EarlierRequest::Done(change_id) = earlier {
            let change_id = change_id.unwrap_or(0);
            let earlier = read_earlier(&mut change.tx, caller, id, (kind, change_id)).await?;
            let has_receipt = kind == MessageChangeKind::Erased && change_id > 0;
            let receipt = message_receipt_id(caller, (id, change.head.created), change_id);
            change.tx.commit().await?;
            return Ok(Begun::Replayed(MessageChange {
                erasure: has_receipt.then_some(receipt),
                ..earlier
            }));
        }
        change.check(conditions)?;
        Ok(Begun::New(change))
    }

    /// Begins the transaction and locks the conversation. A request without an id is not recorded
    /// with the change.
    pub(super) async fn open(
        db: &'a mut BoundedConnection,
        (caller, id): (Caller, ConversationId),
        (kind, request): (MessageChangeKind, &'a IdempotentRequest<'a>),
    ) -> Result<Self, StoreError> {
        let mut tx = db.begin().await?;
        let head = lock_for_change(&mut tx, caller, id).await?;
        failpoint!("change.locked");
        let start = ContextStart::read(&mut tx, caller, id).await?;
        Ok(Self {
            tx,
            caller,
            id,
            kind,
            request,
            head,
            start,
            spared: None,
        })
    }

    /// Fails if the conversation is not as the caller expects.
    pub(super) fn check(&self, conditions: ChangeConditions) -> Result<(), StoreError> {
        check(conditions, &self.head)
    }

    /// Makes it a change of this kind. Changes that it has recorded before stay as they are.
    pub(super) const fn set_kind(&mut self, kind: MessageChangeKind) {
        self.kind = kind;
    }

    /// Lets the turn with this lease go on. It makes the change itself, and has read nothing yet.
    /// The change fails with [`StoreError::LeaseLost`] if the turn no longer has the lease.
    pub(super) const fn spare(&mut self, lease: Uuid) {
        self.spared = Some(lease);
    }

    /// The conversation's columns before the change.
    pub(crate) const fn head(&self) -> &ChangeHead {
        &self.head
    }

    /// The connection, for the step that moves content.
    pub(crate) fn db(&mut self) -> &mut BoundedConnection {
        &mut self.tx
    }

    /// The number that this change gets.
    pub(crate) const fn next_change_id(&self) -> i64 {
        self.head.change_id + 1
    }

    /// The messages of the selection that the change is about.
    pub(super) async fn select_targets(
        &mut self,
        ask: &ChangeAsk,
        which: Targets,
    ) -> Result<Vec<Target>, StoreError> {
        let runs = ask.selection.runs(self.head.last)?;
        targets::select_targets(&mut self.tx, self.caller, self.id, &runs, which).await
    }

    /// The targets and, if the caller does not keep them apart, the other halves of their tool
    /// pairs.
    pub(super) async fn with_tool_pairs(
        &mut self,
        ask: &ChangeAsk,
        selected: &[Target],
        which: Targets,
    ) -> Result<BTreeSet<MessageId>, StoreError> {
        let pairs = (ask.pairs, which);
        targets::with_tool_pairs(&mut self.tx, self.caller, self.id, selected, pairs).await
    }

    /// Ends a change for which there was nothing to do. Only its request id is stored.
    pub(super) async fn finish_without_change(mut self) -> Result<MessageChange, StoreError> {
        self.put_request(0).await?;
        let figures = read_figures(&mut self.tx, self.caller, self.id).await?;
        self.tx.commit().await?;
        Ok(figures.change(self.kind, 0, self.start.boundary))
    }

    /// Lets everything follow that is derived from the changed messages, ends what is under way,
    /// enqueues the jobs that are due, and commits.
    pub(crate) async fn finish(
        mut self,
        moved: Moved,
        policy_defaults: &PolicyDefaults,
    ) -> Result<MessageChange, StoreError> {
        let runs = runs_of(moved.changed.iter().copied());
        let change = self.follow(&moved, &runs, policy_defaults).await?;
        self.commit(moved.usage_bytes_change).await?;
        Ok(change)
    }

    /// Ends a change of labels, and commits. Contexts, summaries, totals and titles have no labels:
    /// only watchers and caches of clients are concerned, by the number of the change and the
    /// conversation's revision. What is under way goes on.
    pub(super) async fn finish_labels(
        mut self,
        moved: &Moved,
    ) -> Result<MessageChange, StoreError> {
        let (caller, id, change_id) = (self.caller, self.id, self.next_change_id());
        let (kind, boundary) = (self.kind, self.start.boundary);
        let runs = runs_of(moved.changed.iter().copied());
        sqlx::query!(
            "update ai_conversation set change_id = change_id + 1, revision = revision + 1
             where tenant_id = $1 and conversation_id = $2",
            caller.tenant().0,
            id.0,
        )
        .execute(&mut *self.tx)
        .await?;
        self.insert_change((kind, moved.version), &runs, 0).await?;
        self.put_request(change_id).await?;
        let figures = read_figures(&mut self.tx, caller, id).await?;
        self.commit(moved.usage_bytes_change).await?;
        Ok(MessageChange {
            changed: runs,
            version: moved.version,
            ..figures.change(kind, change_id, boundary)
        })
    }

    /// Everything that [`ChangeTransaction::finish`] does before the commit. `standing`: the
    /// changed messages that stood before the change or stand after it. Nothing is derived from the
    /// others.
    pub(super) async fn follow(
        &mut self,
        moved: &Moved,
        standing: &[IdRange],
        policy_defaults: &PolicyDefaults,
    ) -> Result<MessageChange, StoreError> {
        let (caller, id, change_id) = (self.caller, self.id, self.next_change_id());
        let runs = runs_of(moved.changed.iter().copied());
        if moved.renumbers
            && let (Some(first), Some(last)) = (standing.first(), standing.last())
        {
            turns::renumber(&mut self.tx, caller, id, (first.first, last.last)).await?;
        }
        let void_checkpoints =
            derived::void_checkpoints(&mut self.tx, caller, id, standing, change_id).await?;
        failpoint!("change.voided");
        self.update_conversation(moved).await?;
        self.insert_change((self.kind, moved.version), &runs, void_checkpoints.len())
            .await?;
        let (start, last, changed) = (self.start, self.head.last, (self.kind, standing));
        let boundary =
            derived::mark_contexts(&mut self.tx, caller, id, (start, last), changed).await?;
        failpoint!("change.marked");
        let mut caused = fence::end_work_under_way(&mut self.tx, caller, id, self.spared).await?;
        failpoint!("change.fenced");
        let due = self.enqueue_due_jobs(policy_defaults).await?;
        caused.extend(due);
        caused.sort_unstable_by_key(|kind| kind.code());
        caused.dedup();
        failpoint!("change.enqueued");
        self.put_request(change_id).await?;
        let figures = read_figures(&mut self.tx, caller, id).await?;
        Ok(MessageChange {
            changed: runs,
            void_checkpoints,
            version: moved.version,
            caused,
            ..figures.change(self.kind, change_id, boundary)
        })
    }

    /// Commits, after what the tenant has stored was updated by so many bytes.
    pub(super) async fn commit(mut self, usage_bytes_change: i64) -> Result<(), StoreError> {
        // Last, because other transactions of the tenant (appends, counts, deletions) whose backend
        // has the same part of the usage wait for this row's lock until the commit.
        if usage_bytes_change != 0 {
            sqlx::query_file!(
                "sql/subtract_tenant_usage.sql",
                self.caller.tenant().0,
                0_i64,
                -usage_bytes_change,
            )
            .execute(&mut *self.tx)
            .await?;
        }
        self.tx.commit().await?;
        failpoint!("change.committed");
        Ok(())
    }

    /// Records a withdrawal that precedes this change in the same transaction, as a change of its
    /// own. So every message that no longer stands has a withdrawal, also if it was erased at once.
    pub(super) async fn record_withdrawal(&mut self, runs: &[IdRange]) -> Result<(), StoreError> {
        self.insert_change((MessageChangeKind::Withdrawn, None), runs, 0)
            .await?;
        self.take_number().await?;
        Ok(())
    }

    /// Takes the next number of a change, and returns it.
    pub(super) async fn take_number(&mut self) -> Result<i64, StoreError> {
        sqlx::query!(
            "update ai_conversation set change_id = change_id + 1 where tenant_id = $1 and conversation_id = $2",
            self.caller.tenant().0,
            self.id.0,
        )
        .execute(&mut *self.tx)
        .await?;
        self.head.change_id += 1;
        Ok(self.head.change_id)
    }

    /// Updates the conversation's figures and, if no caller has given one, its title.
    async fn update_conversation(&mut self, moved: &Moved) -> Result<(), StoreError> {
        let title = if moved.touches_title && !self.head.title_given {
            Some(title::of_standing_messages(&mut self.tx, self.caller, self.id).await?)
        } else {
            None
        };
        sqlx::query_file!(
            "sql/change_conversation.sql",
            self.caller.tenant().0,
            self.id.0,
            moved.token_change,
            moved.withdrawn_change,
            title,
        )
        .execute(&mut *self.tx)
        .await?;
        Ok(())
    }

    /// Records a change of this kind; of an edit with the new version.
    async fn insert_change(
        &mut self,
        (kind, version): (MessageChangeKind, Option<i32>),
        runs: &[IdRange],
        void: usize,
    ) -> Result<(), StoreError> {
        let (firsts, lasts) = selection::columns(runs);
        sqlx::query!(
            "insert into ai_message_change (tenant_id, conversation_id, change_id, kind, first_ids, last_ids, version, void_checkpoints)
             values ($1, $2, $3, $4, $5, $6, $7, $8)",
            self.caller.tenant().0,
            self.id.0,
            self.next_change_id(),
            kind.code(),
            &firsts,
            &lasts,
            version,
            i32::try_from(void).unwrap_or(i32::MAX),
        )
        .execute(&mut *self.tx)
        .await?;
        Ok(())
    }

    /// Asks the triggers again and enqueues the jobs that are due. The counting job goes on, if it
    /// has work.
    async fn enqueue_due_jobs(
        &mut self,
        policy_defaults: &PolicyDefaults,
    ) -> Result<Vec<JobKind>, StoreError> {
        let (caller, id) = (self.caller, self.id);
        let state = tail_stats::read_tail_state(&mut self.tx, caller, id, policy_defaults).await?;
        let mut due = trigger::due_jobs(&state);
        if self.head.counted < self.head.last {
            due.push(JobKind::CountTokens);
        }
        let traceparent = anneal_trace::current_traceparent();
        enqueue_jobs(&mut self.tx, caller, id, &due, traceparent.as_deref()).await?;
        Ok(due)
    }

    async fn put_request(&mut self, change_id: i64) -> Result<(), StoreError> {
        let (caller, id, request) = (self.caller, self.id, self.request);
        idempotency::put_request(&mut self.tx, caller, id, request, Some(change_id)).await
    }
}

/// Fails if the conversation is not as the caller expects.
fn check(conditions: ChangeConditions, head: &ChangeHead) -> Result<(), StoreError> {
    if conditions
        .revision
        .is_some_and(|expected| expected != head.revision)
    {
        return Err(StoreError::EtagMismatch);
    }
    match conditions.expected_last {
        Some(expected) if expected != head.last => Err(StoreError::NotTheNewest {
            expected,
            actual: head.last,
        }),
        _ => Ok(()),
    }
}

/// The change that an earlier call with the same request id has made, with the figures of now.
async fn read_earlier(
    db: &mut BoundedConnection,
    caller: Caller,
    id: ConversationId,
    (kind, change_id): (MessageChangeKind, i64),
) -> Result<MessageChange, StoreError> {
    let row = sqlx::query!(
        "select first_ids, last_ids, version from ai_message_change
         where tenant_id = $1 and conversation_id = $2 and change_id = $3",
        caller.tenant().0,
        id.0,
        change_id,
    )
    .fetch_optional(&mut *db)
    .await?;
    let void = sqlx::query!(
        "select first_message_id, last_message_id from ai_void_checkpoint
         where tenant_id = $1 and conversation_id = $2 and void_change_id = $3
         order by first_message_id, last_message_id",
        caller.tenant().0,
        id.0,
        change_id,
    )
    .fetch_all(&mut *db)
    .await?;
    let void_checkpoints = void.iter().map(|row| IdRange {
        first: MessageId(row.first_message_id),
        last: MessageId(row.last_message_id),
    });
    let boundary = tail_stats::read_boundary(&mut *db, caller, id).await?;
    let figures = read_figures(db, caller, id).await?;
    Ok(MessageChange {
        changed: row.as_ref().map_or_else(Vec::new, |row| {
            selection::from_columns(&row.first_ids, &row.last_ids)
        }),
        void_checkpoints: void_checkpoints.collect(),
        version: row.and_then(|row| row.version),
        replayed: true,
        ..figures.change(kind, change_id, boundary)
    })
}

/// The conversation's figures that an answer has.
struct Figures {
    revision: i64,
    token_total: i64,
    uncounted: i64,
    withdrawn: i64,
}

impl Figures {
    /// The answer with these figures, without what the change has changed.
    fn change(&self, kind: MessageChangeKind, id: i64, boundary: Boundary) -> MessageChange {
        MessageChange {
            id,
            kind,
            changed: Vec::new(),
            void_checkpoints: Vec::new(),
            boundary,
            token_total: tokens(self.token_total),
            uncounted: self.uncounted,
            withdrawn: self.withdrawn,
            revision: self.revision,
            version: None,
            erasure: None,
            replayed: false,
            caused: Vec::new(),
        }
    }
}

async fn read_figures(
    db: &mut BoundedConnection,
    caller: Caller,
    id: ConversationId,
) -> Result<Figures, StoreError> {
    let figures = sqlx::query_as!(
        Figures,
        r#"select revision, token_total, last_message_id - counted_message_id as "uncounted!",
               coalesce(withdrawn_messages, 0) as "withdrawn!"
           from ai_conversation where tenant_id = $1 and conversation_id = $2"#,
        caller.tenant().0,
        id.0,
    )
    .fetch_one(db)
    .await?;
    Ok(figures)
}
