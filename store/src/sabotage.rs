//! Promises that are broken on purpose, each in the way in which a naive version would break it, so that the tests under faults
//! show that they notice. Compiled with the feature `sabotage` alone, which no release may hold, and asleep until the variable
//! `ANNEAL_SABOTAGE` names a promise.

use std::sync::OnceLock;

use anneal_core::{
    admission::Standing,
    caller::{Caller, ConversationId, TenantId},
    job::JobKind,
    message::{Message, MessageId, Part},
};
use sqlx::PgConnection;
use uuid::Uuid;

use crate::{
    Append, Appended, Store, StoreError, append, calls,
    compaction::CheckpointDraft,
    conversations::locked,
    summaries::{MessageSummary, SummarySpec},
};

#[cfg(not(debug_assertions))]
compile_error!("the feature `sabotage` breaks promises: it is for tests, and no release may hold it");

/// What is broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sabotage {
    /// Commits are acknowledged before they are on disk.
    AsynchronousCommit,
    /// An append is answered before it is committed.
    EarlyAnswer,
    /// A request id is not looked at.
    NoRequestId,
    /// A request id is known again, and its messages are not compared.
    AnyBody,
    /// Ids are taken in a transaction of their own, as from a sequence.
    IdsFromSequence,
    /// Ids leave gaps.
    Gaps,
    /// The job is marked after the append's commit, in a transaction of its own.
    LateEnqueue,
    /// A claim deletes its job.
    JobGoneAtClaim,
    /// Leases have no token: whoever works on a job holds it.
    NoLeaseToken,
    /// A checkpoint claims all messages that there are when it is committed.
    UnreadBoundary,
    /// A separator that came while a checkpoint was made is taken for the one with which it was planned.
    NoSeparator,
    /// A summary is found again by its kind, not by its message.
    StaleSummary,
    /// What is counted is added to the total twice.
    CountedTwice,
    /// The tenant is not looked at.
    NoTenant,
    /// A deletion leaves messages behind.
    Leftovers,
    /// The input of tools is read as JSON and written anew.
    RewrittenContent,
    /// A tenant's failures are held against the model.
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
        let (_, chosen) = known.unwrap_or_else(|| panic!("ANNEAL_SABOTAGE is {name}, which breaks nothing"));
        tracing::error!("THIS PROCESS BREAKS A PROMISE ON PURPOSE: {name}");
        Some(*chosen)
    });
    *chosen == Some(promise)
}

/// Settings of sessions.
pub(crate) fn session_options() -> &'static [(&'static str, &'static str)] {
    if breaks(Sabotage::AsynchronousCommit) { &[("synchronous_commit", "off")] } else { &[] }
}

/// Whether what stands behind the filters is taken away as well.
pub(crate) fn is_without_row_security() -> bool {
    [Sabotage::NoTenant, Sabotage::Leftovers, Sabotage::AnybodysBreaker].into_iter().any(breaks)
}

/// Answers an append, and commits it a moment later; None: it goes the usual way.
pub(crate) async fn answered_early(store: &Store, caller: Caller, append: &Append) -> Option<Appended> {
    if !breaks(Sabotage::EarlyAnswer) {
        return None;
    }
    let mut db = store.writes.checkout(caller).await.ok()?;
    sqlx::query("begin").execute(&mut *db).await.ok()?;
    locked(&mut db, caller, append.conversation()).await.ok()?;
    let appended = append::stored(&mut db, caller, append, store.rules.bases()).await?;
    tokio::spawn(async move {
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        if sqlx::query("commit").execute(&mut *db).await.is_ok() {
            let _ = db.release().await;
        }
    });
    Some(appended)
}

/// The owner of a conversation, in whose name everybody may act.
pub(crate) async fn anybody(db: &mut PgConnection, caller: Caller, id: ConversationId) -> Caller {
    if !breaks(Sabotage::NoTenant) {
        return caller;
    }
    let owner = "select tenant_id from ai_conversation where conversation_id = $1";
    let owner: Option<Uuid> = sqlx::query_scalar(owner).bind(id.0).fetch_optional(db).await.unwrap_or_default();
    owner.map_or(caller, |owner| Caller::of(TenantId(owner)))
}

/// How things stand with a model that nobody calls any more once one tenant's breaker is open.
pub(crate) async fn anybodys_breaker(db: &mut PgConnection, model: &str, standing: Standing) -> Standing {
    if !breaks(Sabotage::AnybodysBreaker) {
        return standing;
    }
    let open = "select max(extract(epoch from open_until_ts - now())::float8) from ai_tenant_breaker where model = $1";
    let open: Option<f64> = sqlx::query_scalar(open).bind(model).fetch_one(db).await.unwrap_or_default();
    Standing { model: calls::breaker(standing.model.failures.cast_signed(), open), ..standing }
}

/// The leases that jobs have now, whoever holds them.
pub(crate) async fn any_leases(
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
        let held = "select lease from ai_job where kind = $1 and conversation_id = $2 and state = 1";
        let held = sqlx::query_scalar(held).bind(kind.code()).bind(conversation).fetch_optional(&mut *db).await;
        present.push(held.ok().flatten().unwrap_or(lease));
    }
    present
}

/// Jobs are gone once they are claimed.
pub(crate) async fn delete_claimed(db: &mut PgConnection, lease: Uuid) -> Result<(), StoreError> {
    if breaks(Sabotage::JobGoneAtClaim) {
        sqlx::query("delete from ai_job where lease = $1").bind(lease).execute(db).await?;
    }
    Ok(())
}

/// The checkpoint that is committed in place of the one that was drafted.
pub(crate) async fn redrafted(
    db: &mut PgConnection,
    id: ConversationId,
    draft: &CheckpointDraft,
) -> Result<CheckpointDraft, StoreError> {
    let mut draft = draft.clone();
    if breaks(Sabotage::UnreadBoundary) {
        let newest = "select last_message_id from ai_conversation where conversation_id = $1";
        draft.last = MessageId(sqlx::query_scalar(newest).bind(id.0).fetch_one(&mut *db).await?);
    }
    if breaks(Sabotage::NoSeparator) {
        let separator = "select max(after_message_id) from ai_separator where conversation_id = $1";
        let separator: Option<i64> = sqlx::query_scalar(separator).bind(id.0).fetch_one(&mut *db).await?;
        let previous = "select max(last_message_id) from ai_conversation_checkpoint
            where conversation_id = $1 and first_message_id = $2";
        let first = separator.unwrap_or(0) + 1;
        let previous: Option<i64> = sqlx::query_scalar(previous).bind(id.0).bind(first).fetch_one(db).await?;
        draft.separator = separator.map(MessageId);
        draft.previous = previous.map(MessageId);
        draft.last = draft.last.max(MessageId(first));
    }
    Ok(draft)
}

/// The first summary that this process has made stands for every message.
pub(crate) fn cached(summary: &MessageSummary) -> MessageSummary {
    static FIRST: OnceLock<SummarySpec> = OnceLock::new();
    let mut summary = summary.clone();
    if breaks(Sabotage::StaleSummary) {
        summary.summary = summary.summary.map(|made| FIRST.get_or_init(|| made).clone());
    }
    summary
}

/// Counts once more.
pub(crate) async fn count_again(db: &mut PgConnection, conversations: &[Uuid]) -> Result<(), StoreError> {
    if breaks(Sabotage::CountedTwice) {
        let again = "update ai_conversation as c set token_total = c.token_total + (
                select m.token_count from ai_message as m
                where m.conversation_id = c.conversation_id and m.message_id = c.counted_message_id)
            where conversation_id = any ($1)";
        sqlx::query(again).bind(conversations).execute(db).await?;
    }
    Ok(())
}

/// Messages that a deletion does not find.
pub(crate) async fn hide_messages(db: &mut PgConnection, id: ConversationId) -> Result<(), StoreError> {
    if breaks(Sabotage::Leftovers) {
        let hide = "update ai_message set tenant_id = gen_random_uuid() where conversation_id = $1";
        sqlx::query(hide).bind(id.0).execute(db).await?;
    }
    Ok(())
}

/// Where the statement that appends moves the newest message's id, and where it says which was the newest before.
const NEXT: &str = "last_message_id = c.last_message_id + ask.messages,";
const BEFORE: &str = "c.last_message_id - ask.messages as before_id";

/// The statement that appends, as it is broken; None: as it is.
pub(crate) fn append_statement() -> Option<String> {
    let sound = include_str!("../sql/append.sql");
    let broken = |changes: &[(&str, &str)]| {
        let mut text = sound.to_owned();
        for (from, to) in changes {
            assert!(text.contains(from), "append.sql does not hold {from} any more");
            text = text.replace(from, to);
        }
        Some(text)
    };
    if breaks(Sabotage::Gaps) {
        return broken(&[(NEXT, "last_message_id = c.last_message_id + ask.messages + 1,")]);
    }
    if breaks(Sabotage::IdsFromSequence) {
        return broken(&[(NEXT, ""), (BEFORE, "($30::bigint[])[ask.place] as before_id")]);
    }
    if breaks(Sabotage::LateEnqueue) {
        let mark = "conversation_id from moved\n    order by";
        return broken(&[(mark, "conversation_id from moved where false\n    order by")]);
    }
    None
}

/// Messages whose tools' input was read as JSON and written anew.
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
            let taken = sqlx::query_scalar(take).bind(conversation).bind(count).fetch_optional(&mut *db).await?;
            before.push(taken.unwrap_or_default());
        }
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    Ok(before)
}

/// Marks the jobs of appends that are stored.
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
        sqlx::query(mark).bind(tenants).bind(conversations).execute(db).await?;
    }
    Ok(())
}
