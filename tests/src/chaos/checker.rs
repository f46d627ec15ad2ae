//! The checker's last look, once nothing disturbs the service any more: everything settles, what was acknowledged is there once
//! and as it was said, what is due is done, and nothing is left of what has ended.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use pb::{message_service_client::MessageServiceClient, operator_service_client::OperatorServiceClient};
use sqlx::PgConnection;
use tokio::time::interval;
use tonic::transport::Channel;

use super::{
    aftermath,
    audit::{leftovers, one, summaries, unawaited, uuid},
    cluster::look,
    crew::Stall,
    history::{Talk, is_as_said},
    model::Witness,
    scene::Scene,
};
use crate::pb;

/// What a dead job breaks, where nothing explains it.
pub(super) const DEAD_JOB: &str = "dead jobs";
/// How long jobs may take to end once nothing disturbs them: longer than the longest pause between two tries, five minutes, which
/// a job comes to whose tries were all interrupted.
pub(super) const SETTLES_WITHIN: Duration = Duration::from_mins(6);

/// Waits until no job is left but dead ones, which are seen; how long that took.
pub(super) async fn settle(scene: &Scene, url: &str) -> Duration {
    let began = Instant::now();
    let mut looks = interval(Duration::from_millis(100));
    let mut left = String::from("the database does not answer");
    let mut db = None;
    while began.elapsed() < SETTLES_WITHIN {
        looks.tick().await;
        if db.is_none() {
            db = look(url).await;
        }
        let Some(open) = db.as_mut() else { continue };
        let jobs = "select format('kind %s, state %s, %s starts, %s', kind, state, attempts, last_error) from ai_job";
        let jobs: Vec<String> = sqlx::query_scalar(jobs).fetch_all(open).await.unwrap_or_else(|_| vec![left.clone()]);
        if jobs.is_empty() {
            return began.elapsed();
        }
        left = format!("{} jobs are left, the first: {}", jobs.len(), jobs[0]);
    }
    scene.findings.add("jobs", format!("{left}; {} s after the last fault", SETTLES_WITHIN.as_secs()));
    began.elapsed()
}

/// Everything that must hold in the end.
pub(super) async fn check(scene: &Scene, witness: &Witness, stalls: &[Stall], url: &str) {
    let Some(mut db) = look(url).await else {
        return scene.findings.add("availability", "the database does not answer");
    };
    let all = scene.ledger.all();
    for talk in &all {
        let looked = async {
            one(&mut db, talk, &scene.findings).await?;
            summaries(&mut db, talk, witness, stalls, &scene.findings).await?;
            aftermath::separators(&mut db, talk, scene).await?;
            aftermath::pairs(&mut db, talk, scene).await?;
            undone(&mut db, talk, scene).await
        };
        looked.await.expect("the database answers");
        if talk.is_there() {
            aftermath::context(&mut db, talk, scene).await.expect("the database answers");
            compare(scene, talk).await;
            verify(scene, talk).await;
        }
    }
    aftermath::conversations(&mut db, scene).await.expect("the database answers");
    unawaited(&mut db, &scene.findings).await.expect("the database answers");
    leftovers(&mut db, &all, &scene.findings).await.expect("the database answers");
    made(&mut db, scene).await.expect("the database answers");
    at_rest(&mut db, scene).await.expect("the database answers");
}

/// What is due is done.
async fn undone(db: &mut PgConnection, talk: &Talk, scene: &Scene) -> Result<(), sqlx::Error> {
    let undone: Option<(bool, bool, bool)> =
        sqlx::query_as(include_str!("undone.sql")).bind(uuid(talk)).fetch_optional(db).await?;
    let (uncounted, uncompacted, unsummarized) = undone.unwrap_or_default();
    for (is_undone, what) in
        [(uncounted, "a count"), (uncompacted, "a checkpoint"), (unsummarized, "a summary of a large message")]
    {
        scene.findings.demand(!is_undone, "jobs", || format!("{} waits for {what}, and nobody is to make it", talk.id));
    }
    Ok(())
}

/// What was derived, and by whom.
async fn made(db: &mut PgConnection, scene: &Scene) -> Result<(), sqlx::Error> {
    for (what, count) in [
        ("checkpoints by the model", "select count(*) from ai_conversation_checkpoint where kind = 1"),
        ("checkpoints by extraction", "select count(*) from ai_conversation_checkpoint where kind = 2"),
        ("summaries by the model", "select count(*) from ai_message where summary_kind = 1"),
        ("summaries by extraction", "select count(*) from ai_message where summary_kind = 2"),
        ("messages counted", "select count(*) from ai_message where token_count is not null"),
    ] {
        let count: i64 = sqlx::query_scalar(count).fetch_one(&mut *db).await?;
        scene.tally.add(what, count.unsigned_abs());
    }
    Ok(())
}

/// No lease has run out unseen, no transaction is open or prepared.
async fn at_rest(db: &mut PgConnection, scene: &Scene) -> Result<(), sqlx::Error> {
    for (what, count) in [
        ("leases have run out", "select count(*) from ai_job where state = 1 and lease_until_ts < now()"),
        (
            "transactions are open",
            "select count(*) from pg_stat_activity where application_name = 'anneal'
             and state like 'idle in transaction%' and state_change < clock_timestamp() - interval '1 second'",
        ),
        ("transactions are prepared", "select count(*) from pg_prepared_xacts"),
    ] {
        let count: i64 = sqlx::query_scalar(count).fetch_one(&mut *db).await?;
        scene.findings.demand(count == 0, "rest", || format!("{count} {what}"));
    }
    let dead = "select format('kind %s of %s after %s starts: %s', kind, conversation_id, attempts, last_error)
        from ai_job_dead";
    let dead: Vec<String> = sqlx::query_scalar(dead).fetch_all(&mut *db).await?;
    for dead in dead {
        scene.findings.add(DEAD_JOB, dead);
    }
    Ok(())
}

/// What is stored is what was said: everything acknowledged once, as it was, and nothing else.
async fn compare(scene: &Scene, talk: &Talk) {
    let Some(stored) = stored(scene, talk).await else { return };
    let said = talk.said();
    let mut expected: HashMap<i64, (&str, &pb::NewMessage)> = HashMap::new();
    let mut unknown = 0;
    for append in &said {
        unknown += if append.ids.is_empty() { append.messages.len() } else { 0 };
        for (id, message) in append.ids.iter().zip(&append.messages) {
            if let Some((other, _)) = expected.insert(*id, (&append.request_id, message)) {
                let request = &append.request_id;
                scene.findings.add("order", format!("{}: {request} and {other} were both told {id}", talk.id));
            }
        }
    }
    for message in &stored {
        match expected.remove(&message.message_id) {
            Some((request, said)) => {
                scene.findings.demand(is_as_said(message, said), "content", || {
                    format!("{}: message {} is not what {request} said", talk.id, message.message_id)
                });
            }
            // Of what nobody was told, everything may be there or nothing.
            None if unknown > 0 => unknown -= 1,
            None => scene.findings.add(
                "one effect",
                format!(
                    "{}: message {} was acknowledged to nobody: stored twice, or out of nothing",
                    talk.id, message.message_id
                ),
            ),
        }
    }
    for (id, (request, _)) in expected {
        scene
            .findings
            .add("durability", format!("{}: message {id} of {request} was acknowledged, and is gone", talk.id));
    }
    scene.tally.add("messages compared", stored.len() as u64);
}

async fn stored(scene: &Scene, talk: &Talk) -> Option<Vec<pb::Message>> {
    let mut stored: Vec<pb::Message> = Vec::new();
    loop {
        let ask = pb::ListMessagesRequest {
            conversation_id: talk.id.clone(),
            page_size: 500,
            after_message_id: stored.last().map_or(0, |message| message.message_id),
            ..Default::default()
        };
        let list = |channel: Channel| {
            let ask = ask.clone();
            async move { MessageServiceClient::new(channel).list_messages(ask).await.map(tonic::Response::into_inner) }
        };
        match scene.answered("ListMessages", 0, list).await? {
            Ok(page) if page.messages.is_empty() => return Some(stored),
            Ok(page) => stored.extend(page.messages),
            Err(status) => {
                scene.findings.add("durability", format!("{} cannot be read: {status:?}", talk.id));
                return None;
            }
        }
    }
}

/// What anneal says of its own rows.
async fn verify(scene: &Scene, talk: &Talk) {
    let ask = pb::VerifyConversationRequest { conversation_id: talk.id.clone() };
    let verify = |channel: Channel| {
        let ask = ask.clone();
        async move { OperatorServiceClient::new(channel).verify_conversation(ask).await.map(tonic::Response::into_inner) }
    };
    match scene.answered("VerifyConversation", 0, verify).await {
        Some(Ok(verified)) => {
            for violation in verified.violations {
                scene.findings.add("verification", format!("{}: {}", talk.id, violation.description));
            }
        }
        Some(Err(status)) => scene.findings.add("verification", format!("{}: {status:?}", talk.id)),
        None => {}
    }
}
