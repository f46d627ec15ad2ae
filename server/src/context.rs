//! Contexts of stored conversations: read, decided, and remembered as the beginning that providers cache.

use std::sync::Arc;

use anneal_core::{
    caller::{Caller, ConversationId, Verb},
    context::{Ask, BudgetTooSmall, Context},
    job::JobKind,
    message::{MessageId, Role},
    policy::{Policy, PolicyOverrides},
    tokens::Tokens,
    turn,
};
use anneal_store::{ManualCompaction, TurnsAhead};
use tracing::debug;

use crate::{
    build,
    content::{ContentBudget, Reservation},
    house::House,
    pressure,
    status::Failure,
};

/// A context that somebody wants.
pub(crate) struct Wanted {
    /// Of this conversation.
    pub(crate) id: ConversationId,
    /// Made so; its budget in the model's tokens.
    pub(crate) ask: Ask,
    /// Under these settings over the conversation's own.
    pub(crate) overrides: PolicyOverrides,
    /// Only to be looked at: nothing is recorded.
    pub(crate) dry_run: bool,
    /// The model's tokens for each token counted here, where the caller knows better than what is stored.
    pub(crate) ratio: Option<f64>,
}

impl Wanted {
    /// Whether a new version of its beginning is the conversation's from then on. Not from who may only read and sends a
    /// system prompt of its own: everything that others are sent next would be another beginning than that.
    fn may_be_recorded(&self, caller: Caller) -> bool {
        !self.dry_run && (caller.may(Verb::Append) || self.ask.system_prompt.is_none())
    }
}

/// A context, and what is known of the model that it is for.
pub(crate) struct Built {
    pub(crate) context: Context,
    /// The request that it is rendered to, if it has a provider's format.
    pub(crate) rendered: Option<String>,
    /// The settings that it was built under.
    pub(crate) policy: Policy,
    /// The model's tokens for each token counted here; None: not known.
    pub(crate) ratio: Option<f64>,
    /// The window that the model's provider has named.
    pub(crate) learnt_window: Option<Tokens>,
    /// The room for what it was made of.
    pub(crate) reservation: Arc<Reservation>,
}

impl Built {
    /// Tokens counted here, in the model's.
    pub(crate) fn model_tokens(&self, tokens: Tokens) -> Tokens {
        Tokens::new((tokens.get() as f64 * self.ratio.unwrap_or(1.0)).ceil() as u64)
    }
}

/// Builds a context within this budget of content.
pub(crate) async fn built(
    house: &House,
    budget: &ContentBudget,
    caller: Caller,
    wanted: &Wanted,
) -> Result<Built, Failure> {
    recorded(house, budget, caller, wanted).await.map_err(|failure| in_asked_tokens(failure, wanted))
}

/// Builds the context, and records the version of its beginning when that is new. Another call may record one first: then
/// its version holds, and the context is built again on it.
async fn recorded(house: &House, budget: &ContentBudget, caller: Caller, wanted: &Wanted) -> Result<Built, Failure> {
    let roles = || wanted.ask.current_input.iter().map(|message| message.role);
    let ahead =
        TurnsAhead { after_user: turn::after(0, Some(Role::User), roles()), otherwise: turn::after(0, None, roles()) };
    let mut tries = TRIES;
    loop {
        let read = |room| {
            let (store, id, overrides) = (house.store.clone(), wanted.id, wanted.overrides.clone());
            async move { store.context_material(caller, id, ahead, &overrides, &room).await }
        };
        let rows = budget.read(caller.tenant(), read).await?;
        let built = build::decide(house, caller, rows, wanted.ask.clone(), wanted.ratio).await?;
        tries -= 1;
        let new = built.context.prefix.new.as_ref().filter(|_| wanted.may_be_recorded(caller) && tries > 0);
        let recorded = match new {
            Some(new) => house.store.record_prefix(caller, wanted.id, new).await,
            None => Ok(true),
        };
        match recorded {
            Ok(true) => return Ok(built),
            Ok(false) => {}
            Err(error) => {
                // The next call decides again; this one's answer is as good.
                debug!("could not record a version of the prefix: {error}");
                return Ok(built);
            }
        }
    }
}

/// A refusal names the budget that was asked for, not what it is in the tokens counted here.
fn in_asked_tokens(failure: Failure, wanted: &Wanted) -> Failure {
    match failure {
        Failure::Budget(sizes) => {
            Failure::Budget(BudgetTooSmall { budget: wanted.ask.budget.unwrap_or(sizes.budget), ..sizes })
        }
        failure => failure,
    }
}

/// Contexts built for one answer at most, when other calls record versions at the same time; the last one is answered
/// unrecorded.
const TRIES: usize = 4;

/// A budget in the model's tokens, in those counted here. Never more than it: a provider that counts less is not relied on.
pub(crate) fn own_tokens(budget: Tokens, ratio: Option<f64>) -> Tokens {
    Tokens::new((budget.get() as f64 / ratio.unwrap_or(1.0).max(1.0)) as u64)
}

/// Queues the checkpoint that makes a compaction under pressure last.
pub(crate) async fn compact_for_good(
    house: &House,
    caller: Caller,
    id: ConversationId,
    last: MessageId,
) -> Result<(), Failure> {
    let request_id = pressure::request_id(last);
    let manual = ManualCompaction { focus: String::new(), request_id, keep: Some(pressure::KEEP) };
    if house.store.compact_under_pressure(caller, id, &manual).await? {
        house.bell.ring(&[JobKind::Checkpoint]);
    }
    Ok(())
}
