//! Promises that are broken on purpose, each as a naive implementation would break it, so that the
//! tests under faults prove that they notice. Compiled only with the feature `sabotage`, which no
//! release may have; inactive until the variable `ANNEAL_SABOTAGE` names a promise.

use std::sync::OnceLock;

use anneal_core::{
    admission::AdmissionState,
    caller::{Caller, ConversationId, TenantId},
    job::JobKind,
    message::{Message, MessageId, Part},
};
use sqlx::PgConnection;
use uuid::Uuid;

use crate::{error::StoreError, rows, summary_spec::SummarySpec};

#[cfg(not(debug_assertions))]
compile_error!(
    "the feature `sabotage` breaks promises: it is for tests, and no release may hold it"
);

/// Which promise is broken, and how.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sabotage {
    /// Commits are acknowledged before they are on disk.
    AsynchronousCommit,
    /// An append is answered before it is committed (`messages/append/early_answer.rs`).
    EarlyAnswer,
    /// Request ids are ignored.
    NoRequestId,
    /// A repeated request id is recognized, but its messages are not compared.
    AnyBody,
    /// Ids are taken in a transaction of their own, as from a sequence.
    IdsFromSequence,
    /// Ids leave gaps.
    Gaps,
    /// The job is enqueued after the append's commit, in a transaction of its own.
    LateEnqueue,
    /// A claim deletes its job.
    JobGoneAtClaim,
    /// Leases have no token: every worker that works on a job counts as its holder.
    NoLeaseToken,
    /// A checkpoint claims all messages that exist when it is committed.
    UnreadBoundary,
    /// A separator that was inserted while a checkpoint was made is taken for the one with which it
    /// was planned.
    NoSeparator,
    /// A summary is looked up by its kind, not by its message.
    StaleSummary,
    /// Counts are added to the total twice.
    CountedTwice,
    /// The tenant is ignored.
    NoTenant,
    /// A deletion leaves messages behind.
    Leftovers,
    /// The input of tool calls is parsed as JSON and written again.
    RewrittenContent,
    /// One tenant's failures count against the model for all tenants.
    AnybodysBreaker,
}

const ALL: [(&str, Sabotage); 17] = [
    ("asynchronous_commit", Sabotage::AsynchronousCommit),
    ("early_answer", Sabotage::EarlyAnswer),
    ("no_request_id", Sabotage::NoRequestId),
    ("any_body", Sabotage::AnyBody),
    ("ids_from_sequence", Sabotage::IdsFromSequence),
    ("gaps", Sabotage::Gaps),
    ("late_enqueue", Sabotage::LateEnqueue),
    ("job_gone_at_claim", Sabotage::JobGoneAtClaim),
    ("no_lease_token", Sabotage::NoLeaseToken),
    ("unread_boundary", Sabotage::UnreadBoundary),
    ("no_separator", Sabotage::NoSeparator),
    ("stale_summary", Sabotage::StaleSummary),
    ("counted_twice", Sabotage::CountedTwice),
    ("no_tenant", Sabotage::NoTenant),
    ("leftovers", Sabotage::Leftovers),
    ("rewritten_content", Sabotage::RewrittenContent),
    ("anybodys_breaker", Sabotage::AnybodysBreaker),
];

/// Whether this promise is to be broken: `ANNEAL_SABOTAGE` names at most one.
pub(crate) fn breaks(promise: Sabotage) -> bool {
    static CHOSEN: OnceLock<Option<Sabotage>> = OnceLock::new();
    let chosen = CHOSEN.get_or_init(|| {
        let name = std::env::var("ANNEAL_SABOTAGE").ok()?;
        let known = ALL.iter().find(|(known, _)| *known == name);
        let (_, chosen) =
            known.unwrap_or_else(|| panic!("ANNEAL_SABOTAGE is {name}, which breaks nothing"));
        tracing::error!("THIS PROCESS BREAKS A PROMISE ON PURPOSE: {name}");
        Some(*chosen)
    });
    *chosen == Some(promise)
}

/// PostgreSQL parameters for every session.
pub(crate) fn session_options() -> &'static [(&'static str, &'static str)] {
    if breaks(Sabotage::AsynchronousCommit) {
        &[("synchronous_commit", "off")]
    } else {
        &[]
    }
}

/// Whether row-level security is disabled as well.
pub(crate) fn is_without_row_security() -> bool {
    [
        Sabotage::NoTenant,
        Sabotage::Leftovers,
        Sabotage::AnybodysBreaker,
    ]
    .into_iter()
    .any(breaks)
}

/// The owner of a conversation, as whom every caller may act.
pub(crate) async fn owner_of(db: &mut PgConnection, caller: Caller, id: ConversationId) -> Caller {
    if !breaks(Sabotage::NoTenant) {
        return caller;
    }
    let owner = "select tenant_id from ai_conversation where conversation_id = $1";
    let owner: Option<Uuid> = sqlx::query_scalar(owner)
        .bind(id.0)
        .fetch_optional(db)
        .await
        .unwrap_or_default();
    owner.map_or(caller, |owner| Caller::of(TenantId(owner)))
}

/// An admission state in which one tenant's open breaker stops calls of all tenants.
pub(crate) async fn anybodys_breaker(
    db: &mut PgConnection,
    model: &str,
    state: AdmissionState,
) -> AdmissionState {
    if !breaks(Sabotage::AnybodysBreaker) {
        return state;
    }
    let open = "select max(extract(epoch from open_until_ts - now())::float8) from ai_tenant_breaker where model = $1";
    let open: Option<f64> = sqlx::query_scalar(open)
        .bind(model)
        .fetch_one(db)
        .await
        .unwrap_or_default();
    AdmissionState {
        model: rows::breaker(state.model.failures.cast_signed(), open),
        ..state
    }
}

/// The present leases of jobs, of whichever worker.
pub(crate) async fn current_leases(
    db: &mut PgConnection,
    kind: JobKind,
    conversations: &[Uuid],
    leases: Vec<Uuid>,
) -> Vec<Uuid> {
    if !breaks(Sabotage::NoLeaseToken) {
        return leases;
    }
    let mut present = Vec::new();
    for (conversation, lease) in conversations.iter().zip(leases) {
        let held =
            "select lease from ai_job where kind = $1 and conversation_id = $2 and state = 1";
        let held = sqlx::query_scalar(held)
            .bind(kind.code())
            .bind(conversation)
            .fetch_optional(&mut *db)
            .await;
        present.push(held.ok().flatten().unwrap_or(lease));
    }
    present
}

/// Deletes jobs when they are claimed.
pub(crate) async fn delete_claimed_jobs(
    db: &mut PgConnection,
    lease: Uuid,
) -> Result<(), StoreError> {
    if breaks(Sabotage::JobGoneAtClaim) {
        sqlx::query("delete from ai_job where lease = $1")
            .bind(lease)
            .execute(db)
            .await?;
    }
    Ok(())
}

/// Changes the separator, the previous checkpoint and the boundary of a checkpoint's draft.
pub(crate) async fn redraft(
    db: &mut PgConnection,
    id: ConversationId,
    separator: &mut Option<MessageId>,
    previous: &mut Option<MessageId>,
    last: &mut MessageId,
) -> Result<(), StoreError> {
    if breaks(Sabotage::UnreadBoundary) {
        let newest = "select last_message_id from ai_conversation where conversation_id = $1";
        *last = MessageId(
            sqlx::query_scalar(newest)
                .bind(id.0)
                .fetch_one(&mut *db)
                .await?,
        );
    }
    if breaks(Sabotage::NoSeparator) {
        let newest = "select max(after_message_id) from ai_separator where conversation_id = $1";
        let newest: Option<i64> = sqlx::query_scalar(newest)
            .bind(id.0)
            .fetch_one(&mut *db)
            .await?;
        let covered = "select max(last_message_id) from ai_conversation_checkpoint
            where conversation_id = $1 and first_message_id = $2";
        let first = newest.unwrap_or(0) + 1;
        let covered: Option<i64> = sqlx::query_scalar(covered)
            .bind(id.0)
            .bind(first)
            .fetch_one(db)
            .await?;
        *separator = newest.map(MessageId);
        *previous = covered.map(MessageId);
        *last = (*last).max(MessageId(first));
    }
    Ok(())
}

/// Replaces every summary by the first one that this process has made.
pub(crate) fn stale_summary(summary: Option<SummarySpec>) -> Option<SummarySpec> {
    static FIRST: OnceLock<SummarySpec> = OnceLock::new();
    if !breaks(Sabotage::StaleSummary) {
        return summary;
    }
    summary.map(|summary| FIRST.get_or_init(|| summary).clone())
}

/// Adds the counts a second time.
pub(crate) async fn count_again(
    db: &mut PgConnection,
    conversations: &[Uuid],
) -> Result<(), StoreError> {
    if breaks(Sabotage::CountedTwice) {
        let again = "update ai_conversation as c set token_total = c.token_total + (
                select m.token_count from ai_message as m
                where m.conversation_id = c.conversation_id and m.message_id = c.counted_message_id)
            where conversation_id = any ($1)";
        sqlx::query(again).bind(conversations).execute(db).await?;
    }
    Ok(())
}

/// Hides messages from a deletion.
pub(crate) async fn hide_messages(
    db: &mut PgConnection,
    id: ConversationId,
) -> Result<(), StoreError> {
    if breaks(Sabotage::Leftovers) {
        let hide = "update ai_message set tenant_id = gen_random_uuid() where conversation_id = $1";
        sqlx::query(hide).bind(id.0).execute(db).await?;
    }
    Ok(())
}

/// Text of the statement that appends: where it advances the newest message's id, and where it
/// returns the previous one.
const NEXT: &str = "last_message_id = c.last_message_id + ask.messages,";
const BEFORE: &str = "c.last_message_id - ask.messages as before_id";

/// The statement that appends, broken. None: it is not broken.
pub(crate) fn append_statement() -> Option<String> {
    let sound = include_str!("../sql/append.sql");
    let broken = |changes: &[(&str, &str)]| {
        let mut text = sound.to_owned();
        for (from, to) in changes {
            assert!(
                text.contains(from),
                "append.sql does not hold {from} any more"
            );
            text = text.replace(from, to);
        }
        Some(text)
    };
    if breaks(Sabotage::Gaps) {
        return broken(&[(
            NEXT,
            "last_message_id = c.last_message_id + ask.messages + 1,",
        )]);
    }
    if breaks(Sabotage::IdsFromSequence) {
        return broken(&[
            (NEXT, ""),
            (BEFORE, "($30::bigint[])[ask.place] as before_id"),
        ]);
    }
    if breaks(Sabotage::LateEnqueue) {
        let mark = "conversation_id from moved\n    order by";
        return broken(&[(mark, "conversation_id from moved where false\n    order by")]);
    }
    None
}

/// Messages whose tool inputs were parsed as JSON and written again.
pub(crate) fn rewritten(messages: &[Message]) -> Vec<Message> {
    let mut messages = messages.to_vec();
    if breaks(Sabotage::RewrittenContent) {
        for part in messages.iter_mut().flat_map(|message| &mut message.parts) {
            if let Part::ToolUse { input, .. } = part
                && let Ok(read) = serde_json::from_str::<serde_json::Value>(input)
            {
                *input = read.to_string();
            }
        }
    }
    messages
}

/// Takes ids for appends before they are stored.
pub(crate) async fn take_ids(
    db: &mut PgConnection,
    conversations: &[Uuid],
    counts: &[i64],
) -> Result<Vec<i64>, sqlx::Error> {
    let mut before = Vec::new();
    if breaks(Sabotage::IdsFromSequence) {
        for (conversation, count) in conversations.iter().zip(counts) {
            let take = "update ai_conversation set last_message_id = last_message_id + $2 where conversation_id = $1
                returning last_message_id - $2";
            let taken = sqlx::query_scalar(take)
                .bind(conversation)
                .bind(count)
                .fetch_optional(&mut *db)
                .await?;
            before.push(taken.unwrap_or_default());
        }
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    Ok(before)
}

/// Enqueues the jobs of stored appends.
pub(crate) async fn mark_late(
    db: &mut PgConnection,
    tenants: &[Uuid],
    conversations: &[Uuid],
) -> Result<(), sqlx::Error> {
    if breaks(Sabotage::LateEnqueue) {
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        let mark = "insert into ai_job as j (tenant_id, kind, conversation_id)
            select tenant_id, 1, conversation_id from unnest($1::uuid[], $2::uuid[]) as new (tenant_id, conversation_id)
            on conflict (kind, conversation_id) do update set generation = j.generation + 1";
        sqlx::query(mark)
            .bind(tenants)
            .bind(conversations)
            .execute(db)
            .await?;
    }
    Ok(())
}
