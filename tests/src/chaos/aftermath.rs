//! What stands in the end beside the messages, held against what clients were told: conversations, separators, where checkpoints
//! end, and what a context is made of.

use std::collections::{BTreeSet, HashSet};

use pb::{Representation, context_service_client::ContextServiceClient};
use sqlx::PgConnection;
use tonic::transport::Channel;
use uuid::Uuid;

use super::{audit::uuid, history::Talk, scene::Scene};
use crate::pb;

/// No conversation is there that nobody was told of: a repeated creation makes one.
pub(super) async fn conversations(db: &mut PgConnection, scene: &Scene) -> Result<(), sqlx::Error> {
    let known: HashSet<String> = scene.ledger.all().iter().map(|talk| talk.id.clone()).collect();
    let stored: Vec<Uuid> =
        sqlx::query_scalar("select conversation_id from ai_conversation").fetch_all(&mut *db).await?;
    for id in stored.iter().map(Uuid::to_string).filter(|id| *id != scene.foreign) {
        scene.findings.demand(known.contains(&id), "one effect", || format!("nobody was told of conversation {id}"));
    }
    Ok(())
}

/// The separators that stand are those that were put and not taken away.
pub(super) async fn separators(db: &mut PgConnection, talk: &Talk, scene: &Scene) -> Result<(), sqlx::Error> {
    let marks = talk.marks.lock().await;
    if marks.unsure || !talk.is_there() {
        return Ok(());
    }
    let stand = "select after_message_id from ai_separator where conversation_id = $1";
    let stand: Vec<i64> = sqlx::query_scalar(stand).bind(uuid(talk)).fetch_all(&mut *db).await?;
    let stand: BTreeSet<i64> = stand.into_iter().collect();
    scene.findings.demand(stand == marks.after, "separators", || {
        format!("{}: separators stand after {stand:?}, put were {:?}", talk.id, marks.after)
    });
    Ok(())
}

/// No checkpoint ends between a call and its result.
pub(super) async fn pairs(db: &mut PgConnection, talk: &Talk, scene: &Scene) -> Result<(), sqlx::Error> {
    let is_pair = |messages: &[pb::NewMessage]| messages.get(1).is_some_and(|second| second.role() == pb::Role::Tool);
    let calls: Vec<i64> = talk
        .said()
        .iter()
        .filter(|said| is_pair(&said.messages))
        .filter_map(|said| said.ids.first().copied())
        .collect();
    scene.tally.add("calls with their results", calls.len() as u64);
    let torn = "select last_message_id from ai_conversation_checkpoint
        where conversation_id = $1 and last_message_id = any ($2)";
    let torn: Vec<i64> = sqlx::query_scalar(torn).bind(uuid(talk)).bind(&calls).fetch_all(&mut *db).await?;
    scene.findings.demand(torn.is_empty(), "pairs", || {
        format!("{}: checkpoints end at {torn:?}, between a call and its result", talk.id)
    });
    Ok(())
}

/// A context starts where the newest separator and its newest checkpoint say, and holds what comes after, whole.
pub(super) async fn context(db: &mut PgConnection, talk: &Talk, scene: &Scene) -> Result<(), sqlx::Error> {
    let boundary: i64 = sqlx::query_scalar(include_str!("boundary.sql")).bind(uuid(talk)).fetch_one(&mut *db).await?;
    let ask = pb::BuildContextRequest { conversation_id: talk.id.clone(), ..Default::default() };
    let build = |channel: Channel| {
        let ask = ask.clone();
        async move { ContextServiceClient::new(channel).build_context(ask).await.map(tonic::Response::into_inner) }
    };
    let context = match scene.answered("BuildContext", 0, build).await {
        Some(Ok(context)) => context,
        Some(Err(status)) => {
            scene.findings.add("coverage", format!("no context of {}: {status:?}", talk.id));
            return Ok(());
        }
        None => return Ok(()),
    };
    scene.findings.demand(context.boundary_message_id == boundary, "coverage", || {
        format!("a context of {} starts after {}, and not after {boundary}", talk.id, context.boundary_message_id)
    });
    let left_out = [Representation::Dropped, Representation::Repaired];
    let tail = context.manifest.iter().filter(|entry| entry.last_message_id > boundary);
    let told: BTreeSet<i64> = tail
        .filter(|entry| !left_out.contains(&entry.representation()))
        .flat_map(|entry| entry.first_message_id..=entry.last_message_id)
        .collect();
    let sent: Vec<i64> = context.messages.iter().flat_map(|message| &message.message_ids).copied().collect();
    let once: BTreeSet<i64> = sent.iter().copied().collect();
    scene.findings.demand(once == told && once.len() == sent.len(), "coverage", || {
        format!("a context of {} says that it holds {told:?}, and holds {sent:?}", talk.id)
    });
    Ok(())
}
