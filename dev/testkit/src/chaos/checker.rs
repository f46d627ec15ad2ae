//! The checks at the end of a campaign. All jobs end. Everything that was acknowledged is stored
//! once and unchanged. All due work is done. No expired lease, open transaction, dead job or row of
//! a deleted conversation is left.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use pb::{
    message_service_client::MessageServiceClient, operator_service_client::OperatorServiceClient,
};
use sqlx::PgConnection;
use tokio::time::interval;
use tonic::transport::Channel;

use super::{
    audit::{check_deletions, check_due_work, check_figures, check_jobs_exist, check_summaries},
    campaign_state::CampaignState,
    cluster::try_connect,
    final_checks,
    history::{RecordedConversation, matches_sent},
    model::RecordingModel,
    processes::Stall,
    recount::check_count,
};
use crate::pb;

/// The name of the promise that no job is given up.
pub(super) const DEAD_JOB: &str = "dead jobs";
/// How long jobs may take to end after the last fault. This is longer than the longest retry delay
/// of five minutes, which a job reaches if all its tries were interrupted.
pub(super) const SETTLES_WITHIN: Duration = Duration::from_mins(6);

/// Waits until only dead jobs are left. Returns how long that took.
pub(super) async fn wait_for_jobs(state: &CampaignState, url: &str) -> Duration {
    let began = Instant::now();
    let mut ticks = interval(Duration::from_millis(100));
    let mut problem = String::from("the database does not answer");
    let mut db = None;
    while began.elapsed() < SETTLES_WITHIN {
        ticks.tick().await;
        if db.is_none() {
            db = try_connect(url).await;
        }
        let Some(connected) = db.as_mut() else {
            continue;
        };
        let jobs = "select format('kind %s, state %s, %s starts, %s', kind, state, attempts, last_error) from ai_job";
        let jobs: Result<Vec<String>, _> = sqlx::query_scalar(jobs).fetch_all(connected).await;
        match jobs.as_deref() {
            Ok([]) => return began.elapsed(),
            Ok(all @ [first, ..]) => {
                problem = format!("{} jobs are left, the first: {first}", all.len());
            }
            Err(error) => {
                problem = format!("the jobs could not be read: {error}");
                db = None;
            }
        }
    }
    state.findings.add(
        "jobs",
        format!(
            "{problem}; {} s after the last fault",
            SETTLES_WITHIN.as_secs()
        ),
    );
    began.elapsed()
}

/// Runs all checks.
pub(super) async fn check(
    state: &CampaignState,
    model: &RecordingModel,
    stalls: &[Stall],
    url: &str,
) {
    let Some(mut db) = try_connect(url).await else {
        return state
            .findings
            .add("availability", "the database does not answer");
    };
    let all = state.history.all();
    for conversation in &all {
        let checks = async {
            check_figures(&mut db, conversation, &state.findings).await?;
            check_summaries(&mut db, conversation, model, stalls, &state.findings).await?;
            final_checks::check_separators(&mut db, conversation, state).await?;
            final_checks::check_tool_pairs(&mut db, conversation, state).await?;
            check_due_work(&mut db, conversation, &state.findings).await
        };
        checks.await.expect("the database answers");
        if conversation.exists() {
            final_checks::check_context(&mut db, conversation, state)
                .await
                .expect("the database answers");
            compare(state, conversation).await;
            verify(state, conversation).await;
        }
    }
    final_checks::check_conversations(&mut db, state)
        .await
        .expect("the database answers");
    check_jobs_exist(&mut db, &state.findings)
        .await
        .expect("the database answers");
    check_deletions(&mut db, &all, &state.findings)
        .await
        .expect("the database answers");
    count_results(&mut db, state)
        .await
        .expect("the database answers");
    check_leftovers(&mut db, state)
        .await
        .expect("the database answers");
}

/// Adds the numbers of checkpoints, summaries and counted messages to the tally.
async fn count_results(db: &mut PgConnection, state: &CampaignState) -> Result<(), sqlx::Error> {
    for (what, count) in [
        (
            "checkpoints by the model",
            "select count(*) from ai_conversation_checkpoint where kind = 1",
        ),
        (
            "checkpoints by extraction",
            "select count(*) from ai_conversation_checkpoint where kind = 2",
        ),
        (
            "summaries by the model",
            "select count(*) from ai_message where summary_kind = 1",
        ),
        (
            "summaries by extraction",
            "select count(*) from ai_message where summary_kind = 2",
        ),
        (
            "messages counted",
            "select count(*) from ai_message where token_count is not null",
        ),
    ] {
        let count: i64 = sqlx::query_scalar(count).fetch_one(&mut *db).await?;
        state.tally.add(what, count.unsigned_abs());
    }
    Ok(())
}

/// Checks that no expired lease, no open or prepared transaction and no dead job is left.
async fn check_leftovers(db: &mut PgConnection, state: &CampaignState) -> Result<(), sqlx::Error> {
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
        state.findings.demand(count == 0, "rest", || format!("{count} {what}"));
    }
    let dead = "select format('kind %s of %s after %s starts: %s', kind, conversation_id, attempts, last_error)
        from ai_job_dead";
    let dead: Vec<String> = sqlx::query_scalar(dead).fetch_all(&mut *db).await?;
    for dead in dead {
        state.findings.add(DEAD_JOB, dead);
    }
    Ok(())
}

/// Compares the stored messages with the history: every acknowledged message is stored once and
/// unchanged, with its exact count, and no other is stored, except messages of appends without an
/// acknowledgement.
async fn compare(state: &CampaignState, conversation: &RecordedConversation) {
    let Some(stored) = read_messages(state, conversation).await else {
        return;
    };
    let appends = conversation.appends();
    let mut expected: HashMap<i64, (&str, &pb::NewMessage)> = HashMap::new();
    // Number of messages of appends that were never acknowledged.
    let mut unacknowledged = 0;
    for append in &appends {
        unacknowledged += if append.ids.is_empty() {
            append.messages.len()
        } else {
            0
        };
        for (id, message) in append.ids.iter().zip(&append.messages) {
            if let Some((other, _)) = expected.insert(*id, (&append.request_id, message)) {
                let request = &append.request_id;
                state.findings.add(
                    "order",
                    format!(
                        "{}: {request} and {other} were both given the id {id}",
                        conversation.id
                    ),
                );
            }
        }
    }
    for message in &stored {
        match expected.remove(&message.message_id) {
            Some((request, sent)) => {
                let name = || format!("{}: message {}", conversation.id, message.message_id);
                state
                    .findings
                    .demand(matches_sent(message, sent), "content", || {
                        format!("{} is not what {request} sent", name())
                    });
                check_count(state, message.tokens, &sent.parts, name);
            }
            // An append without an acknowledgement may be stored completely or not at all.
            None if unacknowledged > 0 => unacknowledged -= 1,
            None => state.findings.add(
                "one effect",
                format!(
                    "{}: message {} was acknowledged to no client: it is stored twice, or no client sent it",
                    conversation.id, message.message_id
                ),
            ),
        }
    }
    for (id, (request, _)) in expected {
        state.findings.add(
            "durability",
            format!(
                "{}: message {id} of {request} was acknowledged, but is not stored",
                conversation.id
            ),
        );
    }
    state.tally.add("messages compared", stored.len() as u64);
}

async fn read_messages(
    state: &CampaignState,
    conversation: &RecordedConversation,
) -> Option<Vec<pb::Message>> {
    let mut stored: Vec<pb::Message> = Vec::new();
    loop {
        let ask = pb::ListMessagesRequest {
            conversation_id: conversation.id.clone(),
            page_size: 500,
            after_message_id: stored.last().map_or(0, |message| message.message_id),
            ..Default::default()
        };
        let list = |channel: Channel| {
            let ask = ask.clone();
            async move {
                MessageServiceClient::new(channel)
                    .list_messages(ask)
                    .await
                    .map(tonic::Response::into_inner)
            }
        };
        match state.call_with_retries("ListMessages", 0, list).await? {
            Ok(page) if page.messages.is_empty() => return Some(stored),
            Ok(page) => stored.extend(page.messages),
            Err(status) => {
                state.findings.add(
                    "durability",
                    format!("{} cannot be read: {status:?}", conversation.id),
                );
                return None;
            }
        }
    }
}

/// Runs VerifyConversation and reports its violations.
async fn verify(state: &CampaignState, conversation: &RecordedConversation) {
    let ask = pb::VerifyConversationRequest {
        conversation_id: conversation.id.clone(),
    };
    let verify = |channel: Channel| {
        let ask = ask.clone();
        async move {
            OperatorServiceClient::new(channel)
                .verify_conversation(ask)
                .await
                .map(tonic::Response::into_inner)
        }
    };
    match state
        .call_with_retries("VerifyConversation", 0, verify)
        .await
    {
        Some(Ok(verified)) => {
            for violation in verified.violations {
                state.findings.add(
                    "verification",
                    format!("{}: {}", conversation.id, violation.description),
                );
            }
        }
        Some(Err(status)) => state
            .findings
            .add("verification", format!("{}: {status:?}", conversation.id)),
        None => {}
    }
}
