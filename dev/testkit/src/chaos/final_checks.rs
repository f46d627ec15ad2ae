//! Checks at the end of a campaign: conversations, separators, ends of checkpoints, contents of
//! contexts. `checker` runs them and has the others.

use std::collections::{BTreeSet, HashSet};

use pb::{Representation, context_service_client::ContextServiceClient};
use sqlx::PgConnection;
use tonic::transport::Channel;
use uuid::Uuid;

use super::{
    audit::uuid,
    campaign_state::CampaignState,
    history::RecordedConversation,
    message_states::{Moment, marks_in, text_of},
};
use crate::pb;

/// Checks that every stored conversation of the tenant was returned to a client. A creation that
/// was retried must have created only one.
pub(super) async fn check_conversations(
    db: &mut PgConnection,
    state: &CampaignState,
) -> Result<(), sqlx::Error> {
    let known: HashSet<String> = state
        .history
        .all()
        .iter()
        .map(|conversation| conversation.id.clone())
        .collect();
    let stored: Vec<Uuid> = sqlx::query_scalar("select conversation_id from ai_conversation")
        .fetch_all(&mut *db)
        .await?;
    for id in stored
        .iter()
        .map(Uuid::to_string)
        .filter(|id| *id != state.foreign)
    {
        state
            .findings
            .demand(known.contains(&id), "one effect", || {
                format!("no client knows conversation {id}")
            });
    }
    Ok(())
}

/// Checks that the stored separators are those that were inserted and not deleted.
pub(super) async fn check_separators(
    db: &mut PgConnection,
    conversation: &RecordedConversation,
    state: &CampaignState,
) -> Result<(), sqlx::Error> {
    let separators = conversation.separators.lock().await;
    if separators.is_unknown || !conversation.exists() {
        return Ok(());
    }
    let stored = "select after_message_id from ai_separator where conversation_id = $1";
    let stored: Vec<i64> = sqlx::query_scalar(stored)
        .bind(uuid(conversation))
        .fetch_all(&mut *db)
        .await?;
    let stored: BTreeSet<i64> = stored.into_iter().collect();
    state
        .findings
        .demand(stored == separators.after, "separators", || {
            format!(
                "{}: separators are stored after {stored:?}, but clients know of {:?}",
                conversation.id, separators.after
            )
        });
    Ok(())
}

/// Checks that no checkpoint ends between a tool call and its result.
pub(super) async fn check_tool_pairs(
    db: &mut PgConnection,
    conversation: &RecordedConversation,
    state: &CampaignState,
) -> Result<(), sqlx::Error> {
    let is_pair = |messages: &[pb::NewMessage]| {
        messages
            .get(1)
            .is_some_and(|second| second.role() == pb::Role::Tool)
    };
    let calls: Vec<i64> = conversation
        .appends()
        .iter()
        .filter(|append| is_pair(&append.messages))
        .filter_map(|append| append.ids.first().copied())
        .collect();
    state
        .tally
        .add("calls with their results", calls.len() as u64);
    let between = "select last_message_id from ai_conversation_checkpoint
        where conversation_id = $1 and last_message_id = any ($2)";
    let between: Vec<i64> = sqlx::query_scalar(between)
        .bind(uuid(conversation))
        .bind(&calls)
        .fetch_all(&mut *db)
        .await?;
    state.findings.demand(between.is_empty(), "pairs", || {
        format!(
            "{}: checkpoints end at {between:?}, between a call and its result",
            conversation.id
        )
    });
    Ok(())
}

/// Checks that a context starts after the newest separator or checkpoint, and that it contains
/// exactly those later messages that its manifest says, each once.
pub(super) async fn check_context(
    db: &mut PgConnection,
    conversation: &RecordedConversation,
    state: &CampaignState,
) -> Result<(), sqlx::Error> {
    let before = conversation.states.now();
    let boundary: i64 = sqlx::query_scalar(include_str!("boundary.sql"))
        .bind(uuid(conversation))
        .fetch_one(&mut *db)
        .await?;
    let ask = pb::BuildContextRequest {
        conversation_id: conversation.id.clone(),
        // Else the context after a separator that nothing follows would be refused.
        dry_run: true,
        ..Default::default()
    };
    let build = |channel: Channel| {
        let ask = ask.clone();
        async move {
            ContextServiceClient::new(channel)
                .build_context(ask)
                .await
                .map(tonic::Response::into_inner)
        }
    };
    let context = match state.call_with_retries("BuildContext", 0, build).await {
        Some(Ok(context)) => context,
        Some(Err(status)) => {
            state.findings.add(
                "coverage",
                format!("the context of {} is refused: {status:?}", conversation.id),
            );
            return Ok(());
        }
        None => return Ok(()),
    };
    state
        .findings
        .demand(context.boundary_message_id == boundary, "coverage", || {
            format!(
                "a context of {} starts after {} instead of {boundary}",
                conversation.id, context.boundary_message_id
            )
        });
    check_marks(conversation, &before, &context, state);
    let left_out = [
        Representation::Dropped,
        Representation::Repaired,
        Representation::Withdrawn,
    ];
    let tail = context
        .manifest
        .iter()
        .filter(|entry| entry.last_message_id > boundary);
    let listed: BTreeSet<i64> = tail
        .filter(|entry| !left_out.contains(&entry.representation()))
        .flat_map(|entry| entry.first_message_id..=entry.last_message_id)
        .collect();
    let sent: Vec<i64> = context
        .messages
        .iter()
        .flat_map(|message| &message.message_ids)
        .copied()
        .collect();
    let distinct: BTreeSet<i64> = sent.iter().copied().collect();
    state.findings.demand(
        distinct == listed && distinct.len() == sent.len(),
        "coverage",
        || {
            format!(
                "the manifest of a context of {} lists {listed:?}, but the context has {sent:?}",
                conversation.id
            )
        },
    );
    Ok(())
}

/// Checks that a context that began at this moment contains nothing of messages that no longer
/// stood then.
pub(super) fn check_marks(
    conversation: &RecordedConversation,
    since: &Moment,
    context: &pb::BuildContextResponse,
    state: &CampaignState,
) {
    for message in &context.messages {
        let marks = marks_in(&text_of(&message.parts));
        let promise = if message.segment() == pb::Segment::CheckpointSummary {
            "derived"
        } else {
            "withdrawn"
        };
        if let Some(mark) = conversation.states.find_stale_mark(&marks, since) {
            state.findings.add(
                promise,
                format!(
                    "a context of {} contains {mark}, which no longer stood when it was asked for",
                    conversation.id
                ),
            );
        }
    }
}
