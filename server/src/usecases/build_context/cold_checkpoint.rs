//! Makes a checkpoint when a context is built while the provider's cache is cold. The provider has
//! to read the whole context anew then, so a checkpoint costs no cache, and each later call is
//! shorter. No model is called: the summary was prepared, or the built-in summarizer extracts it.

use anneal_core::{
    caller::{Caller, ConversationId},
    context::{Context, Material, checkpoint_overhead_tokens},
    cut::{self, Cut, MAX_GENERATIONS, TailItem, Trigger},
    message::MessageId,
    policy::{IdleCheckpoints, Policy},
    tokens::{Encoding, FRAMING_PER_MESSAGE, Tokens},
};
use anneal_store::{CheckpointDraft, IdleCheckpoint, SummarySpec};
use tracing::{debug, info};

use crate::{
    failure::Failure,
    state::ServerState,
    usecases::tail_extract::{TailExtract, body_bytes, messages_before, tail_item},
};

/// Most bytes of messages that are extracted while a caller waits: 4 MiB take about a tenth of a
/// second.
const EXTRACT_BYTES: usize = 4 * 1024 * 1024;
/// A checkpoint is made if the context with it has at most this many percent of the tokens without
/// it.
const MOST_PERCENT: u64 = 75;

/// What the server may do for a checkpoint.
#[derive(Debug, Clone, Copy)]
pub(super) struct IdleAsk {
    /// Most tokens of an extract. None: a model writes summaries, so only a prepared one is used.
    pub(super) extract_tokens: Option<Tokens>,
}

/// A context whose cache is cold, and the checkpoint that could shorten it.
pub(super) struct IdleCandidate {
    change_id: i64,
    policy: Policy,
    encoding: Encoding,
    /// Tokens of what a context sends before the tail.
    head: Tokens,
    separator: Option<MessageId>,
    /// The last message of the checkpoint that holds.
    previous: Option<MessageId>,
    tail: Vec<TailItem>,
    /// Tokens of the previous summary and the tail.
    tokens_before: Tokens,
    cut: Cut,
    extract: Option<Extract>,
}

/// What an extract is made of.
struct Extract {
    material: TailExtract,
    bytes: usize,
    most_tokens: Tokens,
}

impl IdleCandidate {
    /// Finds the checkpoint that could be made of these rows. None: the cache is not cold, the
    /// policy forbids it, nothing can be cut off, or too little is cut off to save a quarter.
    pub(super) fn find(material: &Material, ask: IdleAsk) -> Option<Self> {
        let policy = material.policy;
        if policy.idle_checkpoints == IdleCheckpoints::Off
            || !material.is_cold()
            || !material.omitted.is_empty()
        {
            return None;
        }
        let previous_tokens = material
            .checkpoint
            .as_ref()
            .map_or(Tokens::ZERO, |checkpoint| checkpoint.tokens);
        let head = material.system_prompt_tokens + previous_tokens;
        let tail: Vec<TailItem> = material.tail.iter().map(tail_item).collect();
        let cut = cut::plan(&tail, &policy, Trigger::Idle, head)?;
        let tail_tokens = cut::tail_figures(&tail, head).tail;
        // The messages that are cut off must make the quarter. A summary that only becomes shorter
        // loses more each time that a context is built.
        if !is_short_enough(cut.kept + head, head + tail_tokens) {
            return None;
        }
        let tokens_before = tail_tokens + previous_tokens;
        let replaced = tokens_before.less(cut.kept);
        let cut_messages = &material.tail[..messages_before(material, &cut)];
        let bytes: usize = cut_messages.iter().map(body_bytes).sum();
        let extract = ask
            .extract_tokens
            .filter(|_| bytes <= EXTRACT_BYTES)
            .map(|most_tokens| Extract {
                material: TailExtract::of(material, &cut, replaced),
                bytes,
                most_tokens,
            });
        Some(Self {
            change_id: material.change_id,
            policy,
            encoding: material.encoding,
            head,
            separator: material.separator,
            previous: material
                .checkpoint
                .as_ref()
                .map(|checkpoint| checkpoint.last),
            tail,
            tokens_before,
            cut,
            extract,
        })
    }

    /// Bytes of content that the candidate holds.
    pub(super) fn bytes(&self) -> usize {
        self.extract.as_ref().map_or(0, |extract| extract.bytes)
    }

    /// Whether a checkpoint with an empty summary would shorten the context enough. Loads the
    /// vocabulary.
    pub(super) fn may_pay(&self, context: &Context) -> bool {
        self.pays(context, self.cut.last, Tokens::ZERO)
    }

    /// Whether the checkpoint would shorten the context enough. `context` was built without it.
    fn pays(&self, context: &Context, last: MessageId, summary: Tokens) -> bool {
        let with_mark = |last: MessageId, tokens: Tokens| {
            tokens + checkpoint_overhead_tokens(last, self.encoding) + FRAMING_PER_MESSAGE
        };
        let replaced = context
            .manifest
            .iter()
            .filter(|entry| entry.last <= last)
            .map(|entry| entry.tokens)
            .sum::<Tokens>();
        let messages = self.tail.partition_point(|item| item.id <= last) as u64;
        let framing = Tokens::new(FRAMING_PER_MESSAGE.get() * messages);
        let mark = self
            .previous
            .map_or(Tokens::ZERO, |previous| with_mark(previous, Tokens::ZERO));
        let kept = context.total.less(replaced + framing + mark);
        is_short_enough(kept + with_mark(last, summary), context.total)
    }

    /// A prepared checkpoint as it would be committed now. None: it was prepared for another
    /// boundary, its cut is not allowed any more, or what it keeps does not fit.
    fn with_prepared(&self, prepared: CheckpointDraft) -> Option<CheckpointDraft> {
        if (prepared.separator, prepared.previous) != (self.separator, self.previous) {
            return None;
        }
        let cut = cut::plan_after(
            &self.tail,
            &self.policy,
            Trigger::Idle,
            self.head,
            prepared.last,
        )?;
        Some(CheckpointDraft {
            tokens_before: self.tokens_before,
            tokens_after: cut.kept + prepared.summary.tokens,
            trigger: Some(Trigger::Idle),
            ..prepared
        })
    }

    /// The checkpoint with an extract, which is built on `generation` summaries.
    fn with_extract(&self, summary: SummarySpec, generation: i32) -> CheckpointDraft {
        let boundary = self.previous.or(self.separator).unwrap_or_default();
        CheckpointDraft {
            separator: self.separator,
            previous: self.previous,
            last: self.cut.last,
            tokens_before: self.tokens_before,
            tokens_after: self.cut.kept + summary.tokens,
            summary,
            source_first: boundary.next(),
            // The store computes it when it commits.
            source_digest: [0; 32],
            generation: generation + 1,
            trigger: Some(Trigger::Idle),
        }
    }
}

/// Whether a context of `with` tokens is short enough compared with one of `without` tokens.
fn is_short_enough(with: Tokens, without: Tokens) -> bool {
    with.get().saturating_mul(100) <= without.get().saturating_mul(MOST_PERCENT)
}

/// Makes the checkpoint, if it shortens the context by a quarter. Returns whether the rows must be
/// read again: a checkpoint was committed, or something else has changed since they were read. If
/// the checkpoint cannot be made, the context is sent as it was built.
pub(super) async fn make_if_due(
    state: &ServerState,
    caller: Caller,
    id: ConversationId,
    candidate: IdleCandidate,
    context: &Context,
) -> bool {
    match try_make(state, caller, id, candidate, context).await {
        Ok(is_to_read_again) => is_to_read_again,
        Err(failure) => {
            debug!(conversation = %id, "no checkpoint was made of {id} while its cache is cold: {failure}");
            false
        }
    }
}

async fn try_make(
    state: &ServerState,
    caller: Caller,
    id: ConversationId,
    mut candidate: IdleCandidate,
    context: &Context,
) -> Result<bool, Failure> {
    let base = state.store.find_checkpoint_base(caller, id).await?;
    let prepared = base
        .prepared
        .and_then(|prepared| candidate.with_prepared(prepared))
        .filter(|draft| candidate.pays(context, draft.last, draft.summary.tokens));
    let extract = candidate.extract.take();
    let draft = match (prepared, extract) {
        (Some(draft), _) => draft,
        (None, Some(extract)) if base.generation < MAX_GENERATIONS => {
            let write = move || extract.material.write(extract.most_tokens);
            let Some(summary) = state.cpu.run(caller.tenant(), write).await? else {
                return Ok(false);
            };
            let draft = candidate.with_extract(summary, base.generation);
            if !candidate.pays(context, draft.last, draft.summary.tokens) {
                return Ok(false);
            }
            draft
        }
        // A worker builds the next summary from the messages again.
        (None, _) => return Ok(false),
    };
    let idle = IdleCheckpoint {
        draft,
        change_id: candidate.change_id,
    };
    let committed = state
        .store
        .commit_idle_checkpoint(caller, id, &idle)
        .await?;
    if let Some(caused) = committed {
        metrics::counter!("anneal_checkpoints_total", "trigger" => "idle").increment(1);
        let draft = &idle.draft;
        info!(
            conversation = %id, last_message_id = draft.last.0, tokens_before = draft.tokens_before.get(),
            tokens_after = draft.tokens_after.get(), duration_ms = draft.summary.duration_ms,
            "checkpoint of {id} at message {}, because the provider's cache is cold: {} tokens became {}",
            draft.last, draft.tokens_before, draft.tokens_after
        );
        state.job_notifier.notify(&caused);
        state.watch_registry.hint(caller, id);
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_context_is_short_enough_at_three_quarters_and_not_one_token_above() {
        let short_enough = |with, without| is_short_enough(Tokens::new(with), Tokens::new(without));
        assert!(short_enough(7_500, 10_000));
        assert!(!short_enough(7_501, 10_000));
        assert!(!short_enough(1, 0));
    }
}
