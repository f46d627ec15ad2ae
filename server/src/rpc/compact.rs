//! Compact.

use std::time::Duration;

use anneal_core::{
    caller::{Caller, ConversationId, Verb},
    cut::{self, Trigger},
    job::JobKind,
    limits::{COMPACT_WAIT_SECONDS, FOCUS_BYTES},
    message::MessageId,
    policy::ThresholdContext,
    tokens::Tokens,
};
use anneal_proto::v1 as pb;
use anneal_store::{CheckpointMaterial, Compaction, ManualCompaction};
use tokio::{
    runtime::Handle,
    time::{Instant, sleep},
};

use crate::{house::House, parse, policy, reply, status::Failure};

/// Time between two looks at the job: a checkpoint takes tens of milliseconds without a model, seconds with one.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Makes a checkpoint now, whatever the thresholds say.
pub(crate) async fn compact(
    house: &House,
    caller: Caller,
    ask: pb::CompactRequest,
) -> Result<pb::CompactResponse, Failure> {
    let id = parse::conversation_id(&ask.conversation_id)?;
    let request_id = parse::request_id(&ask.request_id)?.map(str::to_owned);
    parse::label("focus", &ask.focus, FOCUS_BYTES)?;
    let wait = wait(ask.wait)?;
    if ask.policy.is_some() && !ask.dry_run {
        return Err(Failure::invalid("policy", "needs dry_run; UpdateConversation changes a conversation's policy"));
    }
    if ask.dry_run {
        let overrides = policy::parse(ask.policy, house.store.session(), Tokens::ZERO)?;
        // The tail may have hundreds of thousands of messages.
        let (store, runtime) = (house.store.clone(), Handle::current());
        let preview = move || {
            let material = runtime.block_on(store.checkpoint_preview(caller, id, &overrides))?;
            Ok(dry_run(&material))
        };
        return house.cpu.run(caller.tenant(), preview).await?;
    }
    let request_id = request_id.unwrap_or_else(|| uuid::Uuid::new_v4().to_string());
    let manual = ManualCompaction { focus: ask.focus, request_id, keep: None };
    match house.store.request_compaction(caller, id, &manual).await? {
        Ok(done) => Ok(created(caller, id, done)),
        Err(before) => {
            house.bell.ring(&[JobKind::Checkpoint]);
            outcome(house, caller, id, before, wait).await
        }
    }
}

fn dry_run(material: &CheckpointMaterial) -> pb::CompactResponse {
    match preview(material, Trigger::Manual) {
        Some(preview) => pb::CompactResponse { preview: Some(preview), ..plain(pb::CompactOutcome::WouldCreate) },
        None => plain(pb::CompactOutcome::NoProgress),
    }
}

/// The figures that thresholds look at.
pub(super) fn figures(material: &CheckpointMaterial) -> ThresholdContext {
    cut::figures(&material.tail, material.head())
}

/// The checkpoint that this trigger would make; None when there is nothing to cut.
pub(super) fn preview(material: &CheckpointMaterial, trigger: Trigger) -> Option<pb::CompactPreview> {
    let cut = cut::plan(&material.tail, &material.policy, trigger, material.head())?;
    let kept = material.tail.iter().filter(|item| item.id > cut.last).count();
    let summary = material.previous.as_ref().map_or(Tokens::ZERO, |previous| previous.tokens);
    Some(pb::CompactPreview {
        last_message_id: cut.last.0,
        trigger: reply::trigger(trigger).into(),
        tokens_before: (figures(material).tail + summary).get(),
        kept_tokens: cut.kept.get(),
        summarized_messages: (material.tail.len() - kept) as i64,
        kept_messages: kept as i64,
        quoted_message_ids: cut.quoted.iter().map(|id| id.0).collect(),
    })
}

fn plain(outcome: pb::CompactOutcome) -> pb::CompactResponse {
    pb::CompactResponse { outcome: outcome.into(), ..Default::default() }
}

/// Looks until the compaction has ended or the wait is over.
async fn outcome(
    house: &House,
    caller: Caller,
    id: ConversationId,
    before: MessageId,
    wait: Duration,
) -> Result<pb::CompactResponse, Failure> {
    let until = Instant::now() + wait;
    loop {
        if Instant::now() >= until {
            return Ok(plain(pb::CompactOutcome::Pending));
        }
        sleep(LOOK_EVERY).await;
        match house.store.compaction(caller, id, before).await? {
            Compaction::Created(checkpoint) => return Ok(created(caller, id, *checkpoint)),
            Compaction::NoProgress => return Ok(plain(pb::CompactOutcome::NoProgress)),
            Compaction::Failed => return Ok(plain(pb::CompactOutcome::Failed)),
            Compaction::Pending => {}
        }
    }
}

fn created(caller: Caller, id: ConversationId, checkpoint: anneal_store::Checkpoint) -> pb::CompactResponse {
    let mut checkpoint = reply::checkpoint(id, checkpoint);
    if !caller.may(Verb::Read) {
        checkpoint.summary.clear();
    }
    pb::CompactResponse { checkpoint: Some(checkpoint), ..plain(pb::CompactOutcome::Created) }
}

/// How long the caller wants to wait; nothing when that is refused later.
pub(crate) fn asked_wait(ask: &pb::CompactRequest) -> Duration {
    wait(ask.wait).unwrap_or_default()
}

fn wait(asked: Option<prost_types::Duration>) -> Result<Duration, Failure> {
    let Some(asked) = asked else { return Ok(Duration::ZERO) };
    let negative = || Failure::invalid("wait", "must not be negative");
    // prost's conversion overflows on the most negative values, so signs are looked at first.
    if asked.seconds < 0 || asked.nanos < 0 {
        return Err(negative());
    }
    let wait = Duration::try_from(asked).map_err(|_| negative())?;
    if wait > Duration::from_secs(COMPACT_WAIT_SECONDS) {
        return Err(Failure::limit("wait", COMPACT_WAIT_SECONDS as usize, "seconds"));
    }
    Ok(wait)
}
