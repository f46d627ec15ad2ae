//! The audit: checks of stored rows during a campaign. It checks the rows, the due work and the
//! summaries of one conversation at a time, and whether uncounted messages have a job, deleted
//! conversations have left rows, and transactions are left open.

use std::{
    sync::{Arc, atomic::Ordering},
    time::{Duration, UNIX_EPOCH},
};

use sqlx::{AssertSqlSafe, FromRow, PgConnection};
use tokio::time::{MissedTickBehavior, interval};
use uuid::Uuid;

use super::{
    campaign_state::CampaignState,
    cluster::try_connect,
    findings::{Findings, lock},
    history::RecordedConversation,
    model::RecordingModel,
    processes::Stall,
};

/// The interval between two audits.
const PAUSE: Duration = Duration::from_millis(60);
/// SQL that counts the transactions of anneal that have been idle for 8 s. anneal has PostgreSQL
/// end them after 5 s.
const OPEN_TRANSACTIONS: &str = "select count(*) from pg_stat_activity where application_name = 'anneal'
    and state like 'idle in transaction%' and state_change < clock_timestamp() - interval '8 seconds'";

/// The columns of `audit.sql`.
#[derive(FromRow)]
struct Figures {
    /// `last_message_id` of the conversation's row.
    last_message_id: i64,
    /// `token_total` of the conversation's row.
    token_total: i64,
    /// `withdrawn_messages` of the conversation's row.
    withdrawn_messages: i64,
    /// Number of messages.
    messages: i64,
    /// The highest message id.
    last: i64,
    /// The sum of the messages' token counts, or estimates where they are not counted.
    tokens: i64,
    /// Counted messages after `counted_message_id`, and uncounted ones up to it.
    misplaced: i64,
    /// Messages whose content does not match its digest.
    wrong_digests: i64,
    /// Messages that stand and have a higher turn than the conversation's.
    high_turns: i64,
    /// Messages that are withdrawn or erased.
    withdrawn: i64,
    /// Of these, rows that have content.
    full_tombstones: i64,
    /// Summaries of messages that do not stand, or that were changed since.
    late_summaries: i64,
    /// Number of checkpoints.
    checkpoints: i64,
    /// Checkpoints that are older than a change of a message in their range.
    late_checkpoints: i64,
    /// Other checkpoints whose digest is not that of the messages they cover.
    wrong_source_digests: i64,
    /// Checkpoints that do not begin where their predecessor ends, or that end after the newest
    /// message.
    wrong_ranges: i64,
    /// Checkpoints beyond the first that follow the same predecessor.
    siblings: i64,
}

/// The columns of `summaries.sql`.
#[derive(FromRow)]
struct StoredSummary {
    /// Whether it is a checkpoint's summary. Otherwise it is the summary of one message.
    checkpoint: bool,
    /// The first message that it summarizes.
    first: i64,
    /// The last message that it summarizes.
    last: i64,
    summary: String,
    /// When it was stored, in milliseconds since 1970.
    stored_ms: i64,
    /// Those of the summarized messages that stand.
    standing: Vec<i64>,
}

/// Makes the checks until the campaign is over, through connections of its own. `url` returns the
/// database's current URL.
pub(super) async fn run(
    state: Arc<CampaignState>,
    model: &RecordingModel,
    stalls: &std::sync::Mutex<Vec<Stall>>,
    url: impl Fn() -> String,
) {
    let mut ticks = interval(PAUSE);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (mut db, mut db_url) = (None, String::new());
    let mut number = 0;
    while !state.is_over() {
        ticks.tick().await;
        // After a takeover the old cluster may still accept connections.
        if db.is_none() || db_url != url() {
            db_url = url();
            db = try_connect(&db_url).await;
        }
        let Some(connected) = db.as_mut() else {
            continue;
        };
        let all = state.history.all();
        let conversation = choose(&all, number);
        number += 1;
        let stalls = lock(stalls).clone();
        let checks = async {
            check_jobs_exist(connected, &state.findings).await?;
            if let Some(conversation) = conversation {
                // Summaries first: they tell why a checkpoint does not match its messages.
                check_summaries(connected, conversation, model, &stalls, &state.findings).await?;
                check_figures(connected, conversation, &state.findings).await?;
                check_due_work(connected, conversation, &state.findings).await?;
            }
            if number % 16 == 0 {
                check_deletions(connected, &all, &state.findings).await?;
                if !state.clock_jumps.load(Ordering::SeqCst) {
                    check_open_transactions(connected, &state.findings).await?;
                }
            }
            Ok::<_, sqlx::Error>(())
        };
        match checks.await {
            Ok(()) => state.tally.increment("audits"),
            // The database is down or going down. If no audit ever succeeds, the test fails because
            // `audits` is zero.
            Err(_) => db = None,
        }
    }
}

/// The conversation that the audit with this number checks. Of four audits, two check a
/// conversation in use, one checks one of the eight newest, and one checks any.
fn choose(all: &[Arc<RecordedConversation>], number: usize) -> Option<&Arc<RecordedConversation>> {
    let every: Vec<&Arc<RecordedConversation>> = all.iter().collect();
    let in_use: Vec<&Arc<RecordedConversation>> = every
        .iter()
        .copied()
        .filter(|conversation| conversation.is_alive())
        .collect();
    // The index counts the earlier audits of the same kind.
    let (conversations, index) = match number % 4 {
        0 => (&every[..], number / 4),
        2 => (&every[every.len().saturating_sub(8)..], number / 4),
        _ => (&in_use[..], number / 2),
    };
    conversations
        .get(index % conversations.len().max(1))
        .copied()
}

/// Checks that the rows of a conversation agree with each other in one snapshot, and with the
/// acknowledged messages.
pub(super) async fn check_figures(
    db: &mut PgConnection,
    conversation: &RecordedConversation,
    findings: &Findings,
) -> Result<(), sqlx::Error> {
    let id = uuid(conversation);
    let newest = conversation.newest();
    let figures: Option<Figures> = sqlx::query_as(include_str!("audit.sql"))
        .bind(id)
        .fetch_optional(db)
        .await?;
    let Some(figures) = figures else {
        findings.demand(!conversation.exists(), "durability", || {
            format!("{id} is gone")
        });
        return Ok(());
    };
    check_changes(id, &figures, findings);
    let whole = figures.messages == figures.last && figures.last == figures.last_message_id;
    findings.demand(whole, "order", || {
        format!(
            "{id}: {} messages up to {}, but the conversation's row says {}",
            figures.messages, figures.last, figures.last_message_id
        )
    });
    findings.demand(
        figures.last >= newest || !conversation.exists(),
        "durability",
        || {
            format!(
                "{id} ends at {}, but {newest} was acknowledged",
                figures.last
            )
        },
    );
    findings.demand(figures.tokens == figures.token_total, "counts", || {
        format!(
            "{id}: the messages have {} tokens, but the conversation's row says {}",
            figures.tokens, figures.token_total
        )
    });
    findings.demand(figures.misplaced == 0, "counts", || {
        format!(
            "{id}: {} messages are counted after counted_message_id, or not counted before it",
            figures.misplaced
        )
    });
    findings.demand(
        figures.wrong_digests + figures.high_turns == 0,
        "content",
        || {
            format!(
                "{id}: {} contents do not match their digests, {} turns are too high",
                figures.wrong_digests, figures.high_turns
            )
        },
    );
    findings.demand(figures.wrong_source_digests == 0, "checkpoints", || {
        format!(
            "{id}: {} of {} checkpoints were not made from the messages that they cover",
            figures.wrong_source_digests, figures.checkpoints
        )
    });
    findings.demand(figures.wrong_ranges + figures.siblings == 0, "checkpoints", || {
        format!(
            "{id}: {} checkpoints do not begin where their predecessor ends or end after the newest message, {} share a predecessor",
            figures.wrong_ranges, figures.siblings
        )
    });
    Ok(())
}

/// Checks what is left of messages that no longer stand.
fn check_changes(id: Uuid, figures: &Figures, findings: &Findings) {
    findings.demand(figures.full_tombstones == 0, "withdrawn", || {
        format!(
            "{id}: {} of {} withdrawn messages still have content",
            figures.full_tombstones, figures.withdrawn
        )
    });
    let late = (figures.late_checkpoints, figures.late_summaries);
    findings.demand(late == (0, 0), "derived", || {
        let (checkpoints, summaries) = late;
        format!(
            "{id}: {checkpoints} checkpoints and {summaries} summaries hold what no longer stands"
        )
    });
    let counted = figures.withdrawn_messages;
    findings.demand(figures.withdrawn == counted, "counts", || {
        format!(
            "{id}: {} messages are withdrawn, but the conversation's row says {counted}",
            figures.withdrawn
        )
    });
}

/// Checks that every conversation with uncounted messages has a counting job.
pub(super) async fn check_jobs_exist(
    db: &mut PgConnection,
    findings: &Findings,
) -> Result<(), sqlx::Error> {
    let without_job: Vec<Uuid> = sqlx::query_scalar(include_str!("uncounted_without_job.sql"))
        .fetch_all(db)
        .await?;
    for id in without_job {
        findings.add(
            "jobs",
            format!("{id} has uncounted messages, but no counting job"),
        );
    }
    Ok(())
}

/// Checks that no count, checkpoint or summary of a message is due without a job. The transaction
/// in which one becomes due must enqueue its job, or the one that evaluates the triggers.
pub(super) async fn check_due_work(
    db: &mut PgConnection,
    conversation: &RecordedConversation,
    findings: &Findings,
) -> Result<(), sqlx::Error> {
    let undone: Option<(bool, bool, bool)> = sqlx::query_as(include_str!("undone.sql"))
        .bind(uuid(conversation))
        .fetch_optional(db)
        .await?;
    let (uncounted, uncompacted, unsummarized) = undone.unwrap_or_default();
    for (is_undone, promise, what) in [
        (uncounted, "jobs", "a count"),
        (uncompacted, "triggers", "a checkpoint"),
        (unsummarized, "triggers", "a summary of a large message"),
    ] {
        findings.demand(!is_undone, promise, || {
            format!("{} needs {what}, but has no job", conversation.id)
        });
    }
    Ok(())
}

/// Checks each summary: a model call wrote it, this call was given exactly those messages that the
/// summary replaces and that stand, as they stand, and the process that stored it had not lost its
/// lease before.
pub(super) async fn check_summaries(
    db: &mut PgConnection,
    conversation: &RecordedConversation,
    model: &RecordingModel,
    stalls: &[Stall],
    findings: &Findings,
) -> Result<(), sqlx::Error> {
    let id = uuid(conversation);
    let now = conversation.states.now();
    let stored: Vec<StoredSummary> = sqlx::query_as(include_str!("summaries.sql"))
        .bind(id)
        .fetch_all(db)
        .await?;
    for StoredSummary {
        checkpoint,
        first,
        last,
        summary,
        stored_ms,
        standing,
    } in stored
    {
        let what = if checkpoint { "checkpoint" } else { "summary" };
        let Some(call) = model.find_call(&summary) else {
            findings.add(
                "checkpoints",
                format!("{id}: no model call wrote the {what} of messages {first} to {last}"),
            );
            continue;
        };
        let fallen = call.messages.find_fallen((first, last), &standing);
        let stale_mark = conversation.states.find_stale_mark(&call.marks, &now);
        findings.demand(
            fallen.is_none() && stale_mark.is_none(),
            "derived",
            || {
                format!(
                    "{id}: the {what} of messages {first} to {last} was made from what no longer stands: message {fallen:?}, mark {stale_mark:?}"
                )
            },
        );
        let covers = call.messages.cover((first, last), &standing);
        findings.demand(covers, "checkpoints", || {
            format!(
                "{id}: the {what} of messages {first} to {last}, of which {standing:?} stand, was made from {:?}",
                call.messages
            )
        });
        let stored_at = UNIX_EPOCH + Duration::from_millis(stored_ms.unsigned_abs());
        let is_stored_after = |stall: &&Stall| {
            call.worker_number == stall.worker_number
                && call.when < stall.from
                && stored_at > stall.lost_leases_by
        };
        findings.demand(!stalls.iter().any(|stall| is_stored_after(&stall)), "leases", || {
            format!(
                "{id}: the {what} of messages {first} to {last} was stored by worker {} after it had lost its lease",
                call.worker_number
            )
        });
    }
    Ok(())
}

/// Checks that no table has rows of conversations whose deletion was acknowledged.
pub(super) async fn check_deletions(
    db: &mut PgConnection,
    conversations: &[Arc<RecordedConversation>],
    findings: &Findings,
) -> Result<(), sqlx::Error> {
    let dead: Vec<Uuid> = conversations
        .iter()
        .filter(|conversation| conversation.is_dead())
        .map(|conversation| uuid(conversation))
        .collect();
    if dead.is_empty() {
        return Ok(());
    }
    let tables = tables_of_conversations(&mut *db).await?;
    for table in tables {
        let rows = format!(
            "select distinct conversation_id from {table} where conversation_id = any ($1)"
        );
        let ids: Vec<Uuid> = sqlx::query_scalar(AssertSqlSafe(rows))
            .bind(&dead)
            .fetch_all(&mut *db)
            .await?;
        for id in ids {
            findings.add(
                "deletion",
                format!("{table} has rows of {id}, which was deleted"),
            );
        }
    }
    Ok(())
}

/// The tables with rows of conversations.
async fn tables_of_conversations(db: &mut PgConnection) -> Result<Vec<String>, sqlx::Error> {
    let tables = "select table_name::text from information_schema.columns
        where column_name = 'conversation_id' and table_schema = current_schema() order by table_name";
    sqlx::query_scalar(tables).fetch_all(db).await
}

/// Checks that no row of a conversation contains a mark of an erased message.
pub(super) async fn check_erased_marks(
    db: &mut PgConnection,
    conversation: &RecordedConversation,
    findings: &Findings,
) -> Result<(), sqlx::Error> {
    let marks = conversation.states.erased_marks();
    if marks.is_empty() {
        return Ok(());
    }
    for table in tables_of_conversations(&mut *db).await? {
        let found = format!(
            "select distinct mark from {table} as stored cross join unnest($2::text[]) as mark
             where stored.conversation_id = $1 and position(mark in stored::text) > 0"
        );
        let found: Vec<String> = sqlx::query_scalar(AssertSqlSafe(found))
            .bind(uuid(conversation))
            .bind(&marks)
            .fetch_all(&mut *db)
            .await?;
        for mark in found {
            findings.add(
                "withdrawn",
                format!(
                    "{}: {table} contains {mark}, which was erased",
                    conversation.id
                ),
            );
        }
    }
    Ok(())
}

/// Checks that no transaction was left open.
async fn check_open_transactions(
    db: &mut PgConnection,
    findings: &Findings,
) -> Result<(), sqlx::Error> {
    let open: i64 = sqlx::query_scalar(OPEN_TRANSACTIONS).fetch_one(db).await?;
    findings.demand(open == 0, "transactions", || {
        format!("{open} transactions were left open")
    });
    Ok(())
}

pub(super) fn uuid(conversation: &RecordedConversation) -> Uuid {
    conversation.id.parse().expect("the server generates UUIDs")
}
