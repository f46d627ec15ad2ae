//! The checks at the end of a campaign. All jobs end. Everything that was acknowledged is stored
//! once and unchanged. All due work is done. No expired lease, open transaction, dead job or row of
//! a deleted conversation is left.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use pb::operator_service_client::OperatorServiceClient;
use sqlx::PgConnection;
use tokio::time::interval;
use tonic::transport::Channel;

use super::{
    audit::{
        check_deletions, check_due_work, check_erased_marks, check_figures, check_jobs_exist,
        check_summaries,
    },
    campaign_state::CampaignState,
    cluster::try_connect,
    final_checks,
    history::RecordedConversation,
    message_lists::list_messages,
    message_states::{Comparison, MessageState, Moment},
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
            check_summaries(&mut db, conversation, model, stalls, &state.findings).await?;
            check_figures(&mut db, conversation, &state.findings).await?;
            check_erased_marks(&mut db, conversation, &state.findings).await?;
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

/// Compares the stored messages with the history: every acknowledged message is stored once, stands
/// or not, as the last change says, and has its exact count. No other is stored, except messages of
/// appends without an acknowledgement.
async fn compare(state: &CampaignState, conversation: &RecordedConversation) {
    let since = conversation.states.now();
    let ask = pb::ListMessagesRequest {
        include_withdrawn: true,
        ..Default::default()
    };
    let Some(stored) = list_messages(state, conversation, ask).await else {
        return;
    };
    let appends = conversation.appends();
    let mut expected: HashMap<i64, &str> = HashMap::new();
    // Number of messages of appends that were never acknowledged.
    let mut unacknowledged = 0;
    for append in &appends {
        unacknowledged += if append.ids.is_empty() {
            append.messages.len()
        } else {
            0
        };
        for id in &append.ids {
            if let Some(other) = expected.insert(*id, &append.request_id) {
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
        let id = message.message_id;
        match expected.remove(&id) {
            Some(request) => compare_message(state, conversation, (message, request), &since),
            // A message of a fork, whose content was not taken over.
            None if message.erased
                && conversation.states.confirmed(id) == Some(MessageState::Erased) => {}
            // An append without an acknowledgement may be stored completely or not at all.
            None if unacknowledged > 0 => unacknowledged -= 1,
            None => state.findings.add(
                "one effect",
                format!(
                    "{}: message {id} was acknowledged to no client: it is stored twice, or no client sent it",
                    conversation.id
                ),
            ),
        }
    }
    for (id, request) in expected {
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

/// Compares a stored message of this request with what clients know of it.
fn compare_message(
    state: &CampaignState,
    conversation: &RecordedConversation,
    (message, request): (&pb::Message, &str),
    since: &Moment,
) {
    let (states, id) = (&conversation.states, message.message_id);
    let name = || format!("{}: message {id} of {request}", conversation.id);
    if message.withdrawn_time.is_none() {
        match states.compare(message, since) {
            Comparison::Stands => {
                check_count(state, message.tokens, &message.parts, name);
            }
            Comparison::StoodBefore => state.findings.add(
                "withdrawn",
                format!("{} stands as it was before the last change", name()),
            ),
            Comparison::Differs | Comparison::Unknown => state
                .findings
                .add("content", format!("{} is not what was sent", name())),
        }
        return;
    }
    let expected = if message.erased {
        MessageState::Erased
    } else {
        MessageState::Withdrawn
    };
    state
        .findings
        .demand(states.may_be(id, expected, since), "durability", || {
            format!("{} is {expected:?}, but no client has asked for it", name())
        });
    let is_kept = message.erased || states.is_newest_version(message);
    state.findings.demand(is_kept, "content", || {
        format!("{} was withdrawn, and is not what it was before", name())
    });
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
