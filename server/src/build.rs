//! A context decided and rendered, away from the async threads where there is much of it.

use std::sync::Arc;

use anneal_core::{
    caller::Caller,
    context::{self, Ask, Pressure},
    message::part_bytes,
    render::{self, Format},
};
use anneal_store::{ContextRows, ROW_BYTES};
use tokio::runtime::Handle;

use crate::{
    content::{Holding, Reservation},
    context::{Built, own_tokens},
    cpu,
    house::House,
    pressure,
    status::Failure,
};

/// Builds the context; under [`Pressure::Compact`] the older half of the tail gives way to a summary first. `ratio`: the
/// model's tokens for each counted here, where the caller knows better than what is stored.
pub(crate) async fn decide(
    house: &House,
    caller: Caller,
    rows: Holding<ContextRows>,
    ask: Ask,
    ratio: Option<f64>,
) -> Result<Built, Failure> {
    let Holding { answer: rows, reservation } = rows;
    let input: usize = ask.current_input.iter().flat_map(|message| &message.parts).map(part_bytes).sum();
    let bytes = input + rows.bytes() + ask.system_prompt.as_ref().map_or(0, String::len);
    let messages = rows.messages() + ask.current_input.iter().map(|message| message.parts.len()).sum::<usize>();
    let is_long = ask.pressure == Pressure::Compact || cpu::is_long_count(rows.encoding()?, bytes, messages);
    let runtime = Handle::current();
    // The reservation goes along: the work goes on when its call has ended, and so does what it holds.
    house.cpu.run_if(is_long, caller.tenant(), move || build(rows, ask, ratio, reservation, &runtime)).await?
}

fn build(
    rows: ContextRows,
    mut ask: Ask,
    ratio: Option<f64>,
    reservation: Arc<Reservation>,
    runtime: &Handle,
) -> Result<Built, Failure> {
    let mut material = rows.read()?;
    let (policy, learnt_window) = (material.policy, material.learnt_window);
    let ratio = ratio.or(material.tokens_ratio);
    ask.budget = ask.budget.map(|budget| own_tokens(budget, ratio));
    if ask.pressure == Pressure::Compact {
        material = runtime.block_on(pressure::compact(material));
    }
    let format = ask.format;
    let context = context::build(material, ask)?;
    let rendered = (format != Format::Neutral).then(|| render::render(&context, format));
    // What was read and left out is gone.
    let kept: usize = context.messages.iter().flat_map(|message| &message.parts).map(part_bytes).sum();
    let entries = (context.messages.len() + context.manifest.len()) as u64 * ROW_BYTES;
    reservation.shrink(entries + (kept + rendered.as_ref().map_or(0, String::len)) as u64);
    Ok(Built { context, rendered, policy, ratio, learnt_window, reservation })
}
