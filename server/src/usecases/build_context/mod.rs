//! Builds the context of a stored conversation: reads the rows, builds in `assemble.rs`, and
//! records a new version of the prefix that providers cache. If that cache is cold,
//! `cold_checkpoint.rs` may make a checkpoint first. `unstored.rs` builds contexts of messages that
//! are not stored.

mod assemble;
mod cold_checkpoint;
mod unstored;

use std::sync::Arc;

use anneal_core::{
    caller::{Caller, ConversationId, Verb},
    context::{Ask, BudgetTooSmall, Context, Pressure, Segment},
    job::JobKind,
    message::{MessageId, Role},
    policy::{Policy, PolicyOverrides},
    render::Rendered,
    tokens::Tokens,
    turn,
};
use anneal_store::{InputTurns, ManualCompaction, StoreError};
use tracing::debug;

use cold_checkpoint::{IdleAsk, IdleCandidate};
pub(crate) use unstored::{UnstoredMessages, build_from_messages};

use crate::{
    failure::Failure,
    limits::content_budget::{ContentBudget, Reservation},
    state::ServerState,
    usecases::emergency_compaction,
};

/// A context to build.
pub(crate) struct ContextRequest {
    pub(crate) id: ConversationId,
    /// The input of `anneal-core`; the budget is in the model's tokens.
    pub(crate) ask: Ask,
    /// Overrides of the conversation's policy.
    pub(crate) overrides: PolicyOverrides,
    /// If true, nothing is recorded.
    pub(crate) dry_run: bool,
    /// The model's tokens per token counted here, if the caller knows a better ratio than the
    /// stored one.
    pub(crate) ratio: Option<f64>,
}

impl ContextRequest {
    /// Whether a new prefix may be recorded. A caller with the verb read alone must not record a
    /// prefix with its own system prompt, because that would change the prefix of every later
    /// context.
    fn may_record_prefix(&self, caller: Caller) -> bool {
        !self.dry_run && (caller.may(Verb::Append) || self.ask.system_prompt.is_none())
    }

    /// What may be done for a checkpoint if the provider's cache is cold. None: nothing.
    fn idle_ask(&self, state: &ServerState, caller: Caller) -> Option<IdleAsk> {
        let allowed =
            !self.dry_run && caller.may(Verb::Append) && self.ask.pressure == Pressure::None;
        allowed.then(|| IdleAsk {
            extract_tokens: state.settings.get().builtin_checkpoint_tokens,
        })
    }
}

/// A context, and what is known about its model.
pub(crate) struct BuiltContext {
    pub(crate) context: Context,
    /// The rendered request, if a provider's format was asked for.
    pub(crate) rendered: Option<Rendered>,
    /// The policy that the context was built under.
    pub(crate) policy: Policy,
    /// The model's tokens per token counted here; None: unknown.
    pub(crate) ratio: Option<f64>,
    /// The window that the model's provider has named in an error; None: it has named none.
    pub(crate) learnt_window: Option<Tokens>,
    /// The newest change of the conversation when the context was read.
    pub(crate) change_id: i64,
    /// The reservation for the context's content.
    pub(crate) reservation: Arc<Reservation>,
    /// The checkpoint that could shorten the context, because the provider's cache is cold.
    idle: Option<Box<IdleCandidate>>,
}

impl BuiltContext {
    /// Converts tokens counted here to the model's.
    pub(crate) fn model_tokens(&self, tokens: Tokens) -> Tokens {
        Tokens::new((tokens.get() as f64 * self.ratio.unwrap_or(1.0)).ceil() as u64)
    }
}

/// Builds a context, and records its prefix if it is new. `budget` limits the stored content that
/// calls hold in memory.
pub(crate) async fn build(
    state: &ServerState,
    budget: &ContentBudget,
    caller: Caller,
    request: &ContextRequest,
) -> Result<BuiltContext, Failure> {
    build_and_record(state, budget, caller, request)
        .await
        .map_err(|failure| in_requested_tokens(failure, request))
}

/// Builds the context and records its prefix if it is new. If another call has recorded a new
/// prefix first, or if messages were changed since the context was read, builds the context again;
/// also if a checkpoint was made because the provider's cache is cold.
async fn build_and_record(
    state: &ServerState,
    budget: &ContentBudget,
    caller: Caller,
    request: &ContextRequest,
) -> Result<BuiltContext, Failure> {
    let roles = || request.ask.current_input.iter().map(|message| message.role);
    // How many turns the current input starts. Which number applies depends on the newest stored
    // message.
    let input_turns = InputTurns {
        after_user: turn::after(0, Some(Role::User), roles()),
        otherwise: turn::after(0, None, roles()),
    };
    let mut builds_left = MAX_BUILDS;
    let mut idle_ask = request.idle_ask(state, caller);
    loop {
        let expected = state.context_memory.expected(caller, request.id);
        let read = |read_budget| {
            let (store, id) = (state.store.clone(), request.id);
            let (overrides, policy) = (request.overrides.clone(), expected.policy.clone());
            async move {
                store
                    .read_context_material(
                        caller,
                        id,
                        input_turns,
                        &overrides,
                        &policy,
                        &read_budget,
                    )
                    .await
            }
        };
        let rows = budget
            .read_expecting(caller.tenant(), expected.bytes, read)
            .await?;
        let (bytes, policy) = (rows.reservation.bytes(), rows.answer.policy());
        state
            .context_memory
            .record(caller, request.id, bytes, policy);
        let ask = request.ask.clone();
        let mut built =
            assemble::assemble(state, caller, rows, ask, request.ratio, idle_ask.take()).await?;
        builds_left -= 1;
        if let Some(idle) = built.idle.take()
            && cold_checkpoint::make_if_due(state, caller, request.id, *idle, &built.context).await
        {
            continue;
        }
        if !request.dry_run && !has_message(&built.context) {
            return Err(Failure::ContextEmpty);
        }
        let new = built
            .context
            .prefix
            .new_version
            .as_ref()
            .filter(|_| request.may_record_prefix(caller) && builds_left > 0);
        let recorded = match new {
            Some(new) => state.store.record_prefix(caller, request.id, new).await,
            None => Ok(true),
        };
        match recorded {
            Ok(true) => return Ok(built),
            // Another call has recorded a prefix first, or messages were changed: build again.
            Ok(false) => {}
            Err(error) => {
                // Not fatal: the next call records it.
                debug!("could not record a version of the prefix: {error}");
                return Ok(built);
            }
        }
    }
}

/// Whether the context has a stored message or one of the caller's. A system prompt, a checkpoint's
/// summary and what a format adds are nothing that a model could answer.
fn has_message(context: &Context) -> bool {
    let mut messages = context.messages.iter();
    messages.any(|message| match message.segment {
        Segment::SystemPrompt | Segment::CheckpointSummary => false,
        Segment::Tail => !message.message_ids.is_empty(),
        Segment::CurrentInput => true,
    })
}

/// Names the budget in the refusal as the caller gave it, in the model's tokens.
fn in_requested_tokens(failure: Failure, request: &ContextRequest) -> Failure {
    match failure {
        Failure::Budget(sizes) => Failure::Budget(BudgetTooSmall {
            budget: request.ask.budget.unwrap_or(sizes.budget),
            ..sizes
        }),
        failure => failure,
    }
}

/// Most builds for one answer while other calls record prefixes or change messages. The prefix of
/// the last build is not recorded.
const MAX_BUILDS: usize = 4;

/// Converts a budget from the model's tokens to tokens counted here. Never increases the budget: a
/// ratio below 1 is not relied on.
pub(crate) fn budget_in_own_tokens(budget: Tokens, ratio: Option<f64>) -> Tokens {
    Tokens::new((budget.get() as f64 / ratio.unwrap_or(1.0).max(1.0)) as u64)
}

/// Queues the checkpoint that makes an emergency compaction permanent.
pub(crate) async fn queue_compaction(
    state: &ServerState,
    caller: Caller,
    id: ConversationId,
    last: MessageId,
) -> Result<(), StoreError> {
    let request_id = emergency_compaction::request_id(last);
    let manual = ManualCompaction {
        focus: String::new(),
        request_id,
        keep: Some(emergency_compaction::KEPT_TAIL),
    };
    if state
        .store
        .request_emergency_compaction(caller, id, &manual)
        .await?
    {
        state.job_notifier.notify(&[JobKind::Checkpoint]);
    }
    Ok(())
}
