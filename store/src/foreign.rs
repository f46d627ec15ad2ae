//! Checkpoints with the summaries of other systems.

use anneal_core::{
    adoption::{Adoption, adopt},
    boundary::Boundary,
    caller::{Caller, ConversationId},
    digest::{self, Digest},
    message::MessageId,
    policy::PolicyOverrides,
    tokens::Tokens,
};
use sqlx::{Connection as _, PgConnection};

use crate::{
    Store,
    checkpoints::{self, Checkpoint},
    compaction::{self, CheckpointDraft, CheckpointMaterial},
    conversations::locked,
    error::{Entity, StoreError},
    requests::{self, Earlier, Request},
    rules::Rules,
    summaries::{ModelSpend, SummaryKind, SummarySpec},
};

/// A summary that another system has made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForeignSummary {
    /// The last message that it stands for.
    pub last: MessageId,
    /// What it says.
    pub text: String,
    /// Its tokens, in the conversation's encoding.
    pub tokens: Tokens,
    /// The same, estimated as those of messages are that are not counted yet.
    pub estimate: Tokens,
    /// Who made it.
    pub model: String,
    /// Tokens of what it replaced, as its maker counted.
    pub tokens_before: Option<Tokens>,
    /// Tokens of what was left then, likewise.
    pub tokens_after: Option<Tokens>,
}

impl Store {
    /// Stores a summary from elsewhere as the newest checkpoint of the chain, once per request id. Refused unless it is sound
    /// under the conversation's lock.
    pub async fn import_checkpoint(
        &self,
        caller: Caller,
        id: ConversationId,
        request_id: Option<&str>,
        foreign: &ForeignSummary,
    ) -> Result<Checkpoint, StoreError> {
        let last = foreign.last.0.to_be_bytes();
        let said = [last.as_slice(), foreign.text.as_bytes(), foreign.model.as_bytes()];
        let counts =
            [foreign.tokens_before, foreign.tokens_after].map(|count| count.map(|tokens| tokens.get().to_be_bytes()));
        let counts = counts.iter().map(|count| count.as_ref().map_or([].as_slice(), |count| count.as_slice()));
        let digest = digest::of_fields(said.into_iter().chain(counts));
        let request = Request { method: "import_checkpoint", id: request_id, digest };
        let mut db = self.writes.checkout(caller).await?;
        let imported = import(&mut db, caller, id, &request, foreign, &self.rules).await;
        db.settle(imported).await
    }
}

async fn import(
    db: &mut PgConnection,
    caller: Caller,
    id: ConversationId,
    request: &Request<'_>,
    foreign: &ForeignSummary,
    rules: &Rules,
) -> Result<Checkpoint, StoreError> {
    let mut tx = db.begin().await?;
    locked(&mut tx, caller, id).await?;
    let first = match requests::find(&mut tx, caller, id, request).await? {
        Earlier::Done(first) => first.unwrap_or(0),
        Earlier::None => {
            let draft = draft(&mut tx, caller, id, foreign, rules).await?;
            compaction::insert(&mut tx, caller, id, &draft, None).await?;
            let first = draft.separator.unwrap_or_default().next().0;
            requests::put(&mut tx, caller, id, request, Some(first)).await?;
            first
        }
    };
    let above = Some((foreign.last, MessageId(first).next()));
    let stored = checkpoints::select(&mut tx, caller, id, above, None, 1).await?.pop();
    tx.commit().await?;
    stored.ok_or(StoreError::NotFound(Entity::Conversation))
}

/// The checkpoint that comes of it, under the conversation's lock.
async fn draft(
    db: &mut PgConnection,
    caller: Caller,
    id: ConversationId,
    foreign: &ForeignSummary,
    rules: &Rules,
) -> Result<CheckpointDraft, StoreError> {
    let material = compaction::material(db, rules, caller, id, &PolicyOverrides::default()).await?;
    let CheckpointMaterial { separator, previous, tail, .. } =
        material.ok_or(StoreError::NotFound(Entity::Conversation))?;
    let boundary = Boundary::newest(separator, previous.as_ref().map(|previous| previous.last)).after();
    let fed = previous.as_ref().map_or(Tokens::ZERO, |previous| previous.tokens);
    let sources = sources(db, caller, id, boundary, foreign.last).await?;
    // Estimates are above counts; a count is not compared with them.
    let summary = if sources.estimated { foreign.estimate.max(foreign.tokens) } else { foreign.tokens };
    let ask = Adoption { last: foreign.last, summary, boundary, previous: fed };
    let adopted = adopt(&tail, ask)?;
    Ok(CheckpointDraft {
        separator,
        previous: previous.as_ref().map(|previous| previous.last),
        last: foreign.last,
        summary: spec(foreign),
        source_first: boundary.next(),
        source_digest: sources.digest,
        tokens_before: foreign.tokens_before.unwrap_or(adopted.before),
        tokens_after: foreign.tokens_after.unwrap_or(adopted.stays + foreign.tokens),
        generation: previous.map_or(0, |previous| previous.generation) + 1,
        trigger: None,
    })
}

fn spec(foreign: &ForeignSummary) -> SummarySpec {
    SummarySpec {
        text: foreign.text.clone(),
        tokens: foreign.tokens,
        kind: SummaryKind::Imported,
        model: foreign.model.clone(),
        prompt_version: 0,
        spent: ModelSpend::default(),
        duration_ms: 0,
    }
}

/// What a summary stands for.
struct Sources {
    /// As a summariser's that has read them.
    digest: Digest,
    /// Whether any of them is not counted yet.
    estimated: bool,
}

/// The messages after `after` up to `last`.
async fn sources(
    db: &mut PgConnection,
    caller: Caller,
    id: ConversationId,
    after: MessageId,
    last: MessageId,
) -> Result<Sources, StoreError> {
    let rows = sqlx::query!(
        r#"select message_id, content_digest, token_count is null as "estimated!" from ai_message
           where tenant_id = $1 and conversation_id = $2 and message_id > $3 and message_id <= $4
           order by message_id"#,
        caller.tenant().0,
        id.0,
        after.0,
        last.0,
    )
    .fetch_all(db)
    .await?;
    let read = rows.iter().map(|row| (MessageId(row.message_id), row.content_digest.as_slice()));
    Ok(Sources { digest: digest::of_sources(read), estimated: rows.iter().any(|row| row.estimated) })
}
