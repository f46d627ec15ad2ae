//! Builds and renders a context from its rows, on the CPU pool if that takes long.

use std::sync::Arc;

use anneal_core::{
    cache::CacheRules,
    caller::Caller,
    context::{self, Ask, Material, Pressure},
    message::part_bytes,
    policy::Policy,
    render::{self, Format},
};
use anneal_store::{ContextRows, ROW_BYTES};

use crate::{
    failure::Failure,
    limits::{
        content_budget::{Reservation, WithReservation},
        cpu_pool,
    },
    state::ServerState,
    usecases::{
        build_context::{
            BuiltContext, budget_in_own_tokens,
            cold_checkpoint::{IdleAsk, IdleCandidate},
        },
        emergency_compaction,
    },
};

/// Builds the context. Under [`Pressure::Compact`] the older half of the tail is first replaced by
/// an extract. `ratio`: the model's tokens per token counted here, if the caller knows a better
/// ratio than the stored one. `idle`: what may be done for a checkpoint if the provider's cache is
/// cold.
pub(crate) async fn assemble(
    state: &ServerState,
    caller: Caller,
    rows: WithReservation<ContextRows>,
    ask: Ask,
    ratio: Option<f64>,
    idle: Option<IdleAsk>,
) -> Result<BuiltContext, Failure> {
    let WithReservation {
        answer: rows,
        reservation,
    } = rows;
    let input_bytes: usize = ask
        .current_input
        .iter()
        .flat_map(|message| &message.parts)
        .map(part_bytes)
        .sum();
    let bytes = input_bytes + rows.bytes() + ask.system_prompt.as_ref().map_or(0, String::len);
    let items = rows.messages()
        + ask
            .current_input
            .iter()
            .map(|message| message.parts.len())
            .sum::<usize>();
    // `Pressure::Compact` writes an extract, which takes long.
    let is_long = ask.pressure == Pressure::Compact
        || cpu_pool::is_long_count(rows.encoding()?, bytes, items);
    // The work outlives a call that ends early, so it takes the reservation with it.
    state
        .cpu
        .run_if(is_long, caller.tenant(), move || {
            assemble_here(rows, ask, ratio, idle, reservation)
        })
        .await?
}

/// Builds the context of rows on this thread.
fn assemble_here(
    rows: ContextRows,
    ask: Ask,
    ratio: Option<f64>,
    idle: Option<IdleAsk>,
    reservation: Arc<Reservation>,
) -> Result<BuiltContext, Failure> {
    let cached_model = if ask.cache.is_some() {
        let model = rows.model()?;
        let rules = rows.cache_rules(ask.format, model.as_deref().unwrap_or_default());
        Some((model, rules))
    } else {
        None
    };
    let mut material = rows.into_material()?;
    material.tokens_ratio = ratio.or(material.tokens_ratio);
    build_here(material, ask, cached_model, idle, reservation)
}

/// Builds the context on this thread, and reduces the reservation to the content that is kept.
/// `cached_model`: the model that the policy names, and the rules of its cache; None: they are not
/// asked for, or the caller of the build names its model.
pub(super) fn build_here(
    mut material: Material,
    mut ask: Ask,
    cached_model: Option<(Option<String>, CacheRules)>,
    idle: Option<IdleAsk>,
    reservation: Arc<Reservation>,
) -> Result<BuiltContext, Failure> {
    let (policy, learnt_window) = (material.policy, material.learnt_window);
    let change_id = material.change_id;
    let ratio = material.tokens_ratio;
    apply_policy(&mut ask, &policy, cached_model);
    ask.budget = ask.budget.map(|budget| budget_in_own_tokens(budget, ratio));
    if ask.pressure == Pressure::Compact {
        material = emergency_compaction::shorten_tail(material);
    }
    let idle = idle.and_then(|idle| IdleCandidate::find(&material, idle));
    let format = ask.format;
    let context = context::build(material, ask)?;
    let idle = idle
        .filter(|candidate| candidate.may_pay(&context))
        .map(Box::new);
    let rendered = (format != Format::Neutral).then(|| render::render(&context, format));
    // Content that is not part of the context has been dropped.
    let kept_bytes: usize = context
        .messages
        .iter()
        .flat_map(|message| &message.parts)
        .map(part_bytes)
        .sum();
    let entry_bytes = (context.messages.len() + context.manifest.len()) as u64 * ROW_BYTES;
    let rendered_bytes = rendered.as_ref().map_or(0, |rendered| rendered.json.len());
    let idle_bytes = idle.as_ref().map_or(0, |idle| idle.bytes());
    reservation.shrink(entry_bytes + (kept_bytes + rendered_bytes + idle_bytes) as u64);
    Ok(BuiltContext {
        context,
        rendered,
        policy,
        ratio,
        learnt_window,
        change_id,
        reservation,
        idle,
    })
}

/// Completes what is asked of the provider's cache with what only the conversation's policy says. A
/// turn names its model, and marks only if the policy does; any other caller has asked for marks.
/// `cached_model`: the model that the policy names, and the rules of its cache.
fn apply_policy(
    ask: &mut Ask,
    policy: &Policy,
    cached_model: Option<(Option<String>, CacheRules)>,
) {
    let Some(cache) = ask.cache.as_mut() else {
        return;
    };
    cache.retention = policy.cache_retention;
    if cache.identity.model.is_some() {
        cache.marks &= policy.cache_marks;
    } else if let Some((model, rules)) = cached_model {
        cache.rules = rules;
        cache.identity.model = model;
    }
}
