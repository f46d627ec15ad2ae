//! A context decided and rendered, away from the async threads where there is much of it.

use anneal_core::{
    caller::Caller,
    context::{self, Ask, Pressure},
    message::part_bytes,
    render::{self, Format},
};
use anneal_store::ContextRows;
use tokio::runtime::Handle;

use crate::{
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
    rows: ContextRows,
    ask: Ask,
    ratio: Option<f64>,
) -> Result<Built, Failure> {
    let input: usize = ask.current_input.iter().flat_map(|message| &message.parts).map(part_bytes).sum();
    let bytes = input + rows.bytes() + ask.system_prompt.as_ref().map_or(0, String::len);
    let messages = rows.messages() + ask.current_input.len();
    let is_long = ask.pressure == Pressure::Compact || cpu::is_long(bytes, messages);
    let runtime = Handle::current();
    house.cpu.run_if(is_long, caller.tenant(), move || build(rows, ask, ratio, &runtime)).await?
}

fn build(rows: ContextRows, mut ask: Ask, ratio: Option<f64>, runtime: &Handle) -> Result<Built, Failure> {
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
    Ok(Built { context, rendered, policy, ratio, learnt_window })
}
