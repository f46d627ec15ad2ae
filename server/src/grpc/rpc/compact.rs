//! Compact.

use std::time::Duration;

use anneal_core::{
    caller::{Caller, ConversationId, Verb},
    cut::{self, Trigger},
    job::JobKind,
    limits::{COMPACT_WAIT_SECONDS, FOCUS_BYTES},
    message::MessageId,
    policy::TailFigures,
    tokens::Tokens,
};
use anneal_proto::{
    convert::{parse, policy},
    v1 as pb,
};
use anneal_store::{CheckpointMaterial, CompactionStart, CompactionStatus, ManualCompaction};
use tokio::time::{Instant, sleep};

use crate::{failure::Failure, reply, state::ServerState};

/// Time between two queries of the job's state. A checkpoint takes tens of milliseconds without a
/// model, seconds with one.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Requests a checkpoint regardless of the thresholds, and waits for it if the caller asks to.
/// With `dry_run` it makes none, and returns a preview of the checkpoint.
pub(crate) async fn compact(
    state: &ServerState,
    caller: Caller,
    ask: pb::CompactRequest,
) -> Result<pb::CompactResponse, Failure> {
    let id = parse::conversation_id(&ask.conversation_id)?;
    let request_id = parse::request_id(&ask.request_id)?.map(str::to_owned);
    parse::bounded_text("focus", &ask.focus, FOCUS_BYTES)?;
    let wait = wait(ask.wait)?;
    if ask.policy.is_some() && !ask.dry_run {
        return Err(Failure::invalid(
            "policy",
            "needs dry_run; UpdateConversation changes a conversation's policy",
        ));
    }
    if ask.dry_run {
        let overrides = policy::parse(ask.policy, &state.store.session(), Tokens::ZERO)?;
        // On the CPU pool: the tail may have hundreds of thousands of messages.
        let thread = state.cpu.reserve(caller.tenant()).await?;
        let material = state
            .store
            .read_checkpoint_preview(caller, id, &overrides)
            .await?;
        return thread.run(move || dry_run(&material)).await;
    }
    let request_id = request_id.unwrap_or_else(|| uuid::Uuid::new_v4().to_string());
    let manual = ManualCompaction {
        focus: ask.focus,
        request_id,
        keep: None,
    };
    match state.store.request_compaction(caller, id, &manual).await? {
        CompactionStart::MadeEarlier(checkpoint) => Ok(created_reply(caller, id, *checkpoint)),
        CompactionStart::Queued { boundary } => {
            state.job_notifier.notify(&[JobKind::Checkpoint]);
            wait_for_outcome(state, caller, id, boundary, wait).await
        }
    }
}

fn dry_run(material: &CheckpointMaterial) -> pb::CompactResponse {
    match preview(material, Trigger::Manual) {
        Some(preview) => pb::CompactResponse {
            preview: Some(preview),
            ..outcome_only(pb::CompactOutcome::WouldCreate)
        },
        None => outcome_only(pb::CompactOutcome::NoProgress),
    }
}

/// The figures that the thresholds are compared with.
pub(super) fn figures(material: &CheckpointMaterial) -> TailFigures {
    cut::tail_figures(&material.tail, material.head_tokens())
}

/// The checkpoint that this trigger would make; None if nothing can be cut.
pub(super) fn preview(
    material: &CheckpointMaterial,
    trigger: Trigger,
) -> Option<pb::CompactPreview> {
    let cut = cut::plan(
        &material.tail,
        &material.policy,
        trigger,
        material.head_tokens(),
    )?;
    let kept_messages = material
        .tail
        .iter()
        .filter(|item| item.id > cut.last)
        .count();
    let summary = material
        .previous
        .as_ref()
        .map_or(Tokens::ZERO, |previous| previous.tokens);
    Some(pb::CompactPreview {
        last_message_id: cut.last.0,
        trigger: pb::CheckpointTrigger::from(trigger).into(),
        tokens_before: (figures(material).tail + summary).get(),
        kept_tokens: cut.kept.get(),
        summarized_messages: (material.tail.len() - kept_messages) as i64,
        kept_messages: kept_messages as i64,
        quoted_message_ids: cut.quoted.iter().map(|id| id.0).collect(),
    })
}

fn outcome_only(outcome: pb::CompactOutcome) -> pb::CompactResponse {
    pb::CompactResponse {
        outcome: outcome.into(),
        ..Default::default()
    }
}

/// Polls until the compaction has ended or the wait is over. `previous_boundary` is that of the
/// newest valid checkpoint before the compaction.
async fn wait_for_outcome(
    state: &ServerState,
    caller: Caller,
    id: ConversationId,
    previous_boundary: MessageId,
    wait: Duration,
) -> Result<pb::CompactResponse, Failure> {
    let until = Instant::now() + wait;
    loop {
        if Instant::now() >= until {
            return Ok(outcome_only(pb::CompactOutcome::Pending));
        }
        sleep(POLL_INTERVAL).await;
        match state
            .store
            .read_compaction_status(caller, id, previous_boundary)
            .await?
        {
            CompactionStatus::Created(checkpoint) => {
                return Ok(created_reply(caller, id, *checkpoint));
            }
            CompactionStatus::NoProgress => {
                return Ok(outcome_only(pb::CompactOutcome::NoProgress));
            }
            CompactionStatus::Failed => return Ok(outcome_only(pb::CompactOutcome::Failed)),
            CompactionStatus::Pending => {}
        }
    }
}

fn created_reply(
    caller: Caller,
    id: ConversationId,
    checkpoint: anneal_store::Checkpoint,
) -> pb::CompactResponse {
    let mut checkpoint = reply::checkpoint(id, checkpoint);
    // A caller who may not read conversations gets no content.
    if !caller.may(Verb::Read) {
        checkpoint.summary.clear();
    }
    pb::CompactResponse {
        checkpoint: Some(checkpoint),
        ..outcome_only(pb::CompactOutcome::Created)
    }
}

/// How long the caller wants to wait; zero for a value that [`compact`] refuses later.
pub(crate) fn requested_wait(ask: &pb::CompactRequest) -> Duration {
    wait(ask.wait).unwrap_or_default()
}

fn wait(requested: Option<prost_types::Duration>) -> Result<Duration, Failure> {
    let Some(requested) = requested else {
        return Ok(Duration::ZERO);
    };
    let negative = || Failure::invalid("wait", "must not be negative");
    // Signs are checked first, because prost's conversion overflows on the most negative values.
    if requested.seconds < 0 || requested.nanos < 0 {
        return Err(negative());
    }
    let wait = Duration::try_from(requested).map_err(|_| negative())?;
    if wait > Duration::from_secs(COMPACT_WAIT_SECONDS) {
        return Err(Failure::limit(
            "wait",
            COMPACT_WAIT_SECONDS as usize,
            "seconds",
        ));
    }
    Ok(wait)
}
