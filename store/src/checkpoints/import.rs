//! Imports checkpoints whose summaries were made by other systems.

use anneal_core::{
    boundary::Boundary,
    caller::{Caller, ConversationId},
    checkpoint_import::{CheckpointImport, InvalidCheckpoint, plan_import},
    digest::{self, Digest},
    message::MessageId,
    policy::PolicyOverrides,
    tokens::Tokens,
    trigger,
};

use super::{
    commit::{CheckpointDraft, insert_checkpoint},
    material::{CheckpointMaterial, read_material},
    read::{Checkpoint, CheckpointPosition, select_checkpoints},
};
use crate::{
    Store,
    connection::BoundedConnection,
    conversations::lock_conversation,
    error::{Entity, StoreError},
    idempotency::{self, EarlierRequest, IdempotentRequest},
    policy_defaults::PolicyDefaults,
    queue::enqueue_jobs,
    summary_spec::{ModelSpend, SummaryKind, SummarySpec},
    triggers::tail_stats,
};

/// A summary that another system made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImportedSummary {
    /// The last message that it covers.
    pub last: MessageId,
    /// The text of the summary.
    pub text: String,
    /// Tokens of the summary, in the conversation's encoding.
    pub tokens: Tokens,
    /// Estimated tokens of the summary. Estimates are usually higher than counts, so this is what
    /// estimates of messages are compared with.
    pub estimate: Tokens,
    /// Name of the model that made it.
    pub model: String,
    /// Tokens of the context before the summary, as the other system counted them.
    pub tokens_before: Option<Tokens>,
    /// Tokens of the context after the summary, as the other system counted them.
    pub tokens_after: Option<Tokens>,
}

impl Store {
    /// Stores an imported summary as the newest checkpoint, once per request id. Checks under the
    /// conversation's row lock that the summary is valid for it, and fails otherwise. A repetition
    /// fails if the checkpoint no longer holds.
    pub async fn import_checkpoint(
        &self,
        caller: Caller,
        id: ConversationId,
        request_id: Option<&str>,
        imported: &ImportedSummary,
    ) -> Result<Checkpoint, StoreError> {
        let last = imported.last.0.to_be_bytes();
        let fields = [
            last.as_slice(),
            imported.text.as_bytes(),
            imported.model.as_bytes(),
        ];
        let counts = [imported.tokens_before, imported.tokens_after]
            .map(|count| count.map(|tokens| tokens.get().to_be_bytes()));
        let counts = counts.iter().map(|count| {
            count
                .as_ref()
                .map_or([].as_slice(), |count| count.as_slice())
        });
        let digest = digest::of_fields(fields.into_iter().chain(counts));
        let request = IdempotentRequest {
            method: "import_checkpoint",
            id: request_id,
            digest,
        };
        let mut db = self.writes.checkout(caller).await?;
        let checkpoint = import_once(
            &mut db,
            caller,
            id,
            &request,
            imported,
            &self.policy_defaults.get(),
        )
        .await;
        db.settle(checkpoint).await
    }
}

async fn import_once(
    db: &mut BoundedConnection,
    caller: Caller,
    id: ConversationId,
    request: &IdempotentRequest<'_>,
    imported: &ImportedSummary,
    policy_defaults: &PolicyDefaults,
) -> Result<Checkpoint, StoreError> {
    let mut tx = db.begin().await?;
    lock_conversation(&mut tx, caller, id).await?;
    // The recorded answer is the id of the first message that the checkpoint covers.
    let first = match idempotency::find_request(&mut tx, caller, id, request).await? {
        EarlierRequest::Done(first) => first.unwrap_or(0),
        EarlierRequest::None => {
            let draft = draft_checkpoint(&mut tx, caller, id, imported, policy_defaults).await?;
            insert_checkpoint(&mut tx, caller, id, &draft, None).await?;
            // What is left of the tail may call for a summary that is prepared ahead.
            let state = tail_stats::read_tail_state(&mut tx, caller, id, policy_defaults).await?;
            let caused = trigger::due_jobs(&state);
            let traceparent = anneal_trace::current_traceparent();
            enqueue_jobs(&mut tx, caller, id, &caused, traceparent.as_deref()).await?;
            let first = draft.separator.unwrap_or_default().next().0;
            idempotency::put_request(&mut tx, caller, id, request, Some(first)).await?;
            first
        }
    };
    // The list is in descending order. The stored checkpoint is the first one after this position.
    let start = CheckpointPosition {
        last: imported.last,
        first: MessageId(first).next(),
        void_change: None,
    };
    let stored = select_checkpoints(&mut tx, caller, id, Some(start), None, 1)
        .await?
        .pop();
    tx.commit().await?;
    // Another one, or none: a message in the checkpoint's range was changed since.
    let holds = |stored: &Checkpoint| (stored.first.0, stored.last) == (first, imported.last);
    let no_longer_holds = InvalidCheckpoint::NoLongerHolds {
        last: imported.last,
    };
    stored
        .filter(holds)
        .ok_or(StoreError::InvalidCheckpoint(no_longer_holds))
}

/// Reads the conversation, checks that the summary is valid for it and drafts the checkpoint. The
/// caller holds the conversation's row lock.
async fn draft_checkpoint(
    db: &mut BoundedConnection,
    caller: Caller,
    id: ConversationId,
    imported: &ImportedSummary,
    policy_defaults: &PolicyDefaults,
) -> Result<CheckpointDraft, StoreError> {
    let material =
        read_material(db, policy_defaults, caller, id, &PolicyOverrides::default()).await?;
    let CheckpointMaterial {
        separator,
        previous,
        tail,
        ..
    } = material.ok_or(StoreError::NotFound(Entity::Conversation))?;
    let boundary =
        Boundary::newest(separator, previous.as_ref().map(|previous| previous.last)).after();
    let previous_tokens = previous
        .as_ref()
        .map_or(Tokens::ZERO, |previous| previous.tokens);
    let sources = read_sources(db, caller, id, boundary, imported.last).await?;
    // Estimates are usually higher than counts. If a message has only an estimate, the messages
    // are compared with the summary's estimate, or with its count if that is higher.
    let summary_tokens = if sources.estimated {
        imported.estimate.max(imported.tokens)
    } else {
        imported.tokens
    };
    let ask = CheckpointImport {
        last: imported.last,
        summary: summary_tokens,
        boundary,
        previous: previous_tokens,
    };
    let plan = plan_import(&tail, ask)?;
    Ok(CheckpointDraft {
        separator,
        previous: previous.as_ref().map(|previous| previous.last),
        last: imported.last,
        summary: spec(imported),
        source_first: boundary.next(),
        source_digest: sources.digest,
        tokens_before: imported.tokens_before.unwrap_or(plan.tokens_before),
        tokens_after: imported
            .tokens_after
            .unwrap_or(plan.tokens_kept + imported.tokens),
        generation: previous.map_or(0, |previous| previous.generation) + 1,
        trigger: None,
    })
}

fn spec(imported: &ImportedSummary) -> SummarySpec {
    SummarySpec {
        text: imported.text.clone(),
        tokens: imported.tokens,
        kind: SummaryKind::Imported,
        model: imported.model.clone(),
        prompt_version: 0,
        spent: ModelSpend::default(),
        duration_ms: 0,
    }
}

/// The messages that a summary covers.
pub(super) struct Sources {
    /// Digest of the messages, as if our summarizer had read them.
    pub(super) digest: Digest,
    /// Whether at least one message is not counted yet.
    estimated: bool,
}

/// Reads the messages after `after` up to `last`, without content.
pub(super) async fn read_sources(
    db: &mut BoundedConnection,
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
    let read = rows
        .iter()
        .map(|row| (MessageId(row.message_id), row.content_digest.as_slice()));
    Ok(Sources {
        digest: digest::of_sources(read),
        estimated: rows.iter().any(|row| row.estimated),
    })
}
