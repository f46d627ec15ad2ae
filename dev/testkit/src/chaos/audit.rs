//! The checker's audit of the rows during a campaign: each conversation in one snapshot, rows left
//! by deleted conversations, and transactions left open.

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
/// PostgreSQL ends transactions that are idle for five seconds.
const LEFT_OPEN: &str = "select count(*) from pg_stat_activity where application_name = 'anneal'
    and state like 'idle in transaction%' and state_change < clock_timestamp() - interval '8 seconds'";

#[derive(FromRow)]
struct Figures {
    last_message_id: i64,
    token_total: i64,
    messages: i64,
    last: i64,
    tokens: i64,
    misplaced: i64,
    altered: i64,
    turned: i64,
    checkpoints: i64,
    unread: i64,
    torn: i64,
    siblings: i64,
}

#[derive(FromRow)]
struct StoredSummary {
    checkpoint: bool,
    first: i64,
    last: i64,
    summary: String,
    stored_ms: i64,
}

/// Audits until the campaign is over, through connections of its own. `url` returns the database's
/// current URL.
pub(super) async fn watch(
    state: Arc<CampaignState>,
    model: &RecordingModel,
    stalls: &std::sync::Mutex<Vec<Stall>>,
    url: impl Fn() -> String,
) {
    let mut ticks = interval(PAUSE);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (mut db, mut at) = (None, String::new());
    let mut place = 0;
    while !state.is_over() {
        ticks.tick().await;
        // After a takeover the old cluster may still accept connections.
        if db.is_none() || at != url() {
            at = url();
            db = try_connect(&at).await;
        }
        let Some(open) = db.as_mut() else { continue };
        let all = state.history.all();
        let conversation = choose(&all, place);
        place += 1;
        let stalls = lock(stalls).clone();
        let looked = async {
            check_jobs_exist(open, &state.findings).await?;
            if let Some(conversation) = conversation {
                check_figures(open, conversation, &state.findings).await?;
                check_summaries(open, conversation, model, &stalls, &state.findings).await?;
            }
            if place % 16 == 0 {
                check_deletions(open, &all, &state.findings).await?;
                if !state.clock_jumps.load(Ordering::SeqCst) {
                    check_open_transactions(open, &state.findings).await?;
                }
            }
            Ok::<_, sqlx::Error>(())
        };
        match looked.await {
            Ok(()) => state.tally.increment("audits"),
            // The database is down or going down. If no audit ever works, the count of audits stays
            // zero.
            Err(_) => db = None,
        }
    }
}

/// Every other audit takes a conversation in use. The newest and all others get their turns too.
fn choose(all: &[Arc<RecordedConversation>], place: usize) -> Option<&Arc<RecordedConversation>> {
    let every: Vec<&Arc<RecordedConversation>> = all.iter().collect();
    let in_use: Vec<&Arc<RecordedConversation>> = every
        .iter()
        .copied()
        .filter(|conversation| conversation.is_alive())
        .collect();
    let (conversations, turn) = match place % 4 {
        0 => (&every[..], place / 4),
        2 => (&every[every.len().saturating_sub(8)..], place / 4),
        _ => (&in_use[..], place / 2),
    };
    conversations
        .get(turn % conversations.len().max(1))
        .copied()
}

/// Checks that the figures of a conversation agree in one snapshot.
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
    let whole = figures.messages == figures.last && figures.last == figures.last_message_id;
    findings.demand(whole, "order", || {
        format!(
            "{id}: {} messages up to {}, its row says {}",
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
            "{id}: its messages hold {} tokens, its row says {}",
            figures.tokens, figures.token_total
        )
    });
    findings.demand(figures.misplaced == 0, "counts", || {
        format!(
            "{id}: {} counts disagree with the counted mark",
            figures.misplaced
        )
    });
    findings.demand(figures.altered + figures.turned == 0, "content", || {
        format!(
            "{id}: {} contents do not match their digests, {} turns are too high",
            figures.altered, figures.turned
        )
    });
    findings.demand(figures.unread == 0, "checkpoints", || {
        format!(
            "{id}: {} of {} checkpoints were not made from what they cover",
            figures.unread, figures.checkpoints
        )
    });
    findings.demand(figures.torn + figures.siblings == 0, "checkpoints", || {
        format!(
            "{id}: {} checkpoints do not follow their chain, {} follow the same one",
            figures.torn, figures.siblings
        )
    });
    Ok(())
}

/// Checks that every uncounted message has its job.
pub(super) async fn check_jobs_exist(
    db: &mut PgConnection,
    findings: &Findings,
) -> Result<(), sqlx::Error> {
    let unawaited: Vec<Uuid> = sqlx::query_scalar(include_str!("unawaited.sql"))
        .fetch_all(db)
        .await?;
    for id in unawaited {
        findings.add(
            "jobs",
            format!("{id} has uncounted messages, and no job waits for them"),
        );
    }
    Ok(())
}

/// Checks that each summary was written by a model call that was shown what it stands for, for a
/// process that held its lease.
pub(super) async fn check_summaries(
    db: &mut PgConnection,
    conversation: &RecordedConversation,
    model: &RecordingModel,
    stalls: &[Stall],
    findings: &Findings,
) -> Result<(), sqlx::Error> {
    let id = uuid(conversation);
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
    } in stored
    {
        let what = if checkpoint { "checkpoint" } else { "summary" };
        let Some(shown) = model.find_call(&summary) else {
            findings.add(
                "checkpoints",
                format!("{id}: nobody wrote the {what} of {first} to {last}"),
            );
            continue;
        };
        findings.demand(shown.messages == Some((first, last)), "checkpoints", || {
            format!(
                "{id}: the {what} of {first} to {last} was made from {:?}",
                shown.messages
            )
        });
        let stored = UNIX_EPOCH + Duration::from_millis(stored_ms.unsigned_abs());
        let late = |stall: &&Stall| {
            shown.process == stall.process && shown.when < stall.from && stored > stall.lost
        };
        findings.demand(!stalls.iter().any(|stall| late(&stall)), "leases", || {
            format!(
                "{id}: the {what} of {first} to {last} was stored by process {}, whose leases were lost",
                shown.process
            )
        });
    }
    Ok(())
}

/// Checks that nothing is left of conversations whose deletion was acknowledged.
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
    let tables = "select table_name::text from information_schema.columns
        where column_name = 'conversation_id' and table_schema = current_schema() order by table_name";
    let tables: Vec<String> = sqlx::query_scalar(tables).fetch_all(&mut *db).await?;
    for table in tables {
        let left = format!(
            "select distinct conversation_id from {table} where conversation_id = any ($1)"
        );
        let left: Vec<Uuid> = sqlx::query_scalar(AssertSqlSafe(left))
            .bind(&dead)
            .fetch_all(&mut *db)
            .await?;
        for id in left {
            findings.add(
                "deletion",
                format!("{table} has rows of {id}, which was deleted"),
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
    let open: i64 = sqlx::query_scalar(LEFT_OPEN).fetch_one(db).await?;
    findings.demand(open == 0, "transactions", || {
        format!("{open} transactions were left open")
    });
    Ok(())
}

pub(super) fn uuid(conversation: &RecordedConversation) -> Uuid {
    conversation.id.parse().expect("the server generates UUIDs")
}
