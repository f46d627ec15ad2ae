//! The checker's look at the rows while everything runs: each conversation in one snapshot, in which its figures must agree;
//! what deleted ones left behind; transactions that somebody left open.

use std::{
    sync::{Arc, atomic::Ordering},
    time::{Duration, UNIX_EPOCH},
};

use sqlx::{AssertSqlSafe, FromRow, PgConnection};
use tokio::time::{MissedTickBehavior, interval};
use uuid::Uuid;

use super::{
    cluster::look,
    crew::Stall,
    findings::{Findings, held},
    history::Talk,
    model::Witness,
    scene::Scene,
};

/// Between two looks.
const PAUSE: Duration = Duration::from_millis(60);
/// Sessions end transactions that nobody goes on with after five seconds.
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

/// Looks until it is enough, through connections of its own. `url` says where the database is now.
pub(super) async fn watch(
    scene: Arc<Scene>,
    witness: &Witness,
    stalls: &std::sync::Mutex<Vec<Stall>>,
    url: impl Fn() -> String,
) {
    let mut ticks = interval(PAUSE);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (mut db, mut at) = (None, String::new());
    let mut place = 0;
    while !scene.is_over() {
        ticks.tick().await;
        // A cluster that was left may still be there.
        if db.is_none() || at != url() {
            at = url();
            db = look(&at).await;
        }
        let Some(open) = db.as_mut() else { continue };
        let all = scene.ledger.all();
        let talk = chosen(&all, place);
        place += 1;
        let stalls = held(stalls).clone();
        let looked = async {
            unawaited(open, &scene.findings).await?;
            if let Some(talk) = talk {
                one(open, talk, &scene.findings).await?;
                summaries(open, talk, witness, &stalls, &scene.findings).await?;
            }
            if place % 16 == 0 {
                leftovers(open, &all, &scene.findings).await?;
                if !scene.clock_jumps.load(Ordering::SeqCst) {
                    left_open(open, &scene.findings).await?;
                }
            }
            Ok::<_, sqlx::Error>(())
        };
        match looked.await {
            Ok(()) => scene.tally.one("audits"),
            // The database is away, or will be; a look that never works is one that counts nothing.
            Err(_) => db = None,
        }
    }
}

/// Every other look is at one that is in use; the newest and all others have their turns too.
fn chosen(all: &[Arc<Talk>], place: usize) -> Option<&Arc<Talk>> {
    let every: Vec<&Arc<Talk>> = all.iter().collect();
    let in_use: Vec<&Arc<Talk>> = every.iter().copied().filter(|talk| talk.is_alive()).collect();
    let (talks, turn) = match place % 4 {
        0 => (&every[..], place / 4),
        2 => (&every[every.len().saturating_sub(8)..], place / 4),
        _ => (&in_use[..], place / 2),
    };
    talks.get(turn % talks.len().max(1)).copied()
}

/// The figures of a conversation in one snapshot.
pub(super) async fn one(db: &mut PgConnection, talk: &Talk, findings: &Findings) -> Result<(), sqlx::Error> {
    let id = uuid(talk);
    let told = talk.newest();
    let figures: Option<Figures> = sqlx::query_as(include_str!("audit.sql")).bind(id).fetch_optional(db).await?;
    let Some(figures) = figures else {
        findings.demand(!talk.is_there(), "durability", || format!("{id} is gone"));
        return Ok(());
    };
    let whole = figures.messages == figures.last && figures.last == figures.last_message_id;
    findings.demand(whole, "order", || {
        format!("{id}: {} messages up to {}, its row says {}", figures.messages, figures.last, figures.last_message_id)
    });
    findings.demand(figures.last >= told || !talk.is_there(), "durability", || {
        format!("{id} ends at {}, and somebody was told of {told}", figures.last)
    });
    findings.demand(figures.tokens == figures.token_total, "counts", || {
        format!("{id}: its messages hold {} tokens, its row says {}", figures.tokens, figures.token_total)
    });
    findings.demand(figures.misplaced == 0, "counts", || {
        format!("{id}: {} counts disagree with the counted mark", figures.misplaced)
    });
    findings.demand(figures.altered + figures.turned == 0, "content", || {
        format!("{id}: {} contents do not match their digests, {} turns are too high", figures.altered, figures.turned)
    });
    findings.demand(figures.unread == 0, "checkpoints", || {
        format!("{id}: {} of {} checkpoints were not made from what they cover", figures.unread, figures.checkpoints)
    });
    findings.demand(figures.torn + figures.siblings == 0, "checkpoints", || {
        format!(
            "{id}: {} checkpoints do not follow their chain, {} follow the same one",
            figures.torn, figures.siblings
        )
    });
    Ok(())
}

/// A message and the job that it causes are stored together.
pub(super) async fn unawaited(db: &mut PgConnection, findings: &Findings) -> Result<(), sqlx::Error> {
    let unawaited: Vec<Uuid> = sqlx::query_scalar(include_str!("unawaited.sql")).fetch_all(db).await?;
    for id in unawaited {
        findings.add("jobs", format!("{id} has uncounted messages, and no job waits for them"));
    }
    Ok(())
}

/// Each summary was written by a model that was shown what it stands for, and for a process that had its lease.
pub(super) async fn summaries(
    db: &mut PgConnection,
    talk: &Talk,
    witness: &Witness,
    stalls: &[Stall],
    findings: &Findings,
) -> Result<(), sqlx::Error> {
    let id = uuid(talk);
    let stored: Vec<StoredSummary> = sqlx::query_as(include_str!("summaries.sql")).bind(id).fetch_all(db).await?;
    for StoredSummary { checkpoint, first, last, summary, stored_ms } in stored {
        let what = if checkpoint { "checkpoint" } else { "summary" };
        let Some(shown) = witness.wrote(&summary) else {
            findings.add("checkpoints", format!("{id}: nobody wrote the {what} of {first} to {last}"));
            continue;
        };
        findings.demand(shown.messages == Some((first, last)), "checkpoints", || {
            format!("{id}: the {what} of {first} to {last} was made from {:?}", shown.messages)
        });
        let stored = UNIX_EPOCH + Duration::from_millis(stored_ms.unsigned_abs());
        let late = |stall: &&Stall| shown.process == stall.process && shown.when < stall.from && stored > stall.lost;
        findings.demand(!stalls.iter().any(|stall| late(&stall)), "leases", || {
            format!(
                "{id}: the {what} of {first} to {last} was stored by process {}, whose leases were lost",
                shown.process
            )
        });
    }
    Ok(())
}

/// Nothing is left of conversations whose deletion was acknowledged.
pub(super) async fn leftovers(
    db: &mut PgConnection,
    talks: &[Arc<Talk>],
    findings: &Findings,
) -> Result<(), sqlx::Error> {
    let dead: Vec<Uuid> = talks.iter().filter(|talk| talk.is_dead()).map(|talk| uuid(talk)).collect();
    if dead.is_empty() {
        return Ok(());
    }
    let tables = "select table_name::text from information_schema.columns
        where column_name = 'conversation_id' and table_schema = current_schema() order by table_name";
    let tables: Vec<String> = sqlx::query_scalar(tables).fetch_all(&mut *db).await?;
    for table in tables {
        let left = format!("select distinct conversation_id from {table} where conversation_id = any ($1)");
        let left: Vec<Uuid> = sqlx::query_scalar(AssertSqlSafe(left)).bind(&dead).fetch_all(&mut *db).await?;
        for id in left {
            findings.add("deletion", format!("{table} has rows of {id}, which was deleted"));
        }
    }
    Ok(())
}

/// No transaction is left open.
async fn left_open(db: &mut PgConnection, findings: &Findings) -> Result<(), sqlx::Error> {
    let open: i64 = sqlx::query_scalar(LEFT_OPEN).fetch_one(db).await?;
    findings.demand(open == 0, "transactions", || format!("{open} transactions were left open"));
    Ok(())
}

pub(super) fn uuid(talk: &Talk) -> Uuid {
    talk.id.parse().expect("the server gives UUIDs")
}
