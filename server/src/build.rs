//! A context decided and rendered, on a thread of its own where texts are long.

use std::sync::Arc;

use anneal_core::{
    context::{self, Ask, Body, Context, Material, Pressure},
    message::plain_text_bytes,
    render::{self, Format},
};
use tokio::runtime::Handle;

use crate::{content::Reservation, pressure, status::Failure};

/// A context, and the request that it is rendered to if it has a provider's format.
pub(crate) struct Decided {
    pub(crate) context: Context,
    pub(crate) rendered: Option<String>,
}

/// Texts of this size are counted or cut on a thread of their own: a hostile one takes seconds for each 10 MB.
const LONG_BYTES: usize = 256 * 1024;

/// Builds the context of material that this room is reserved for; under [`Pressure::Compact`] the older half of the tail gives way to a summary first.
pub(crate) async fn decide(material: Material, ask: Ask, reservation: Arc<Reservation>) -> Result<Decided, Failure> {
    let input: usize = ask.current_input.iter().map(|message| plain_text_bytes(&message.parts)).sum();
    let tail = material.tail.iter().map(|message| match &message.body {
        Body::Original(parts) => plain_text_bytes(parts),
        Body::Summary { .. } => 0,
    });
    let reads_tail = ask.budget.is_some() || ask.format != Format::Neutral || ask.pressure != Pressure::None;
    if ask.pressure != Pressure::Compact && input < LONG_BYTES && (!reads_tail || tail.sum::<usize>() < LONG_BYTES) {
        return build(material, ask);
    }
    let runtime = Handle::current();
    let built = tokio::task::spawn_blocking(move || {
        // The work goes on when its call has ended, and so does what it holds.
        let _reservation = reservation;
        let material = match ask.pressure {
            Pressure::Compact => runtime.block_on(pressure::compact(material)),
            Pressure::None | Pressure::TruncateToolResults => material,
        };
        build(material, ask)
    });
    built.await.map_err(|_| Failure::Panicked)?
}

fn build(material: Material, ask: Ask) -> Result<Decided, Failure> {
    let format = ask.format;
    let context = context::build(material, ask)?;
    let rendered = (format != Format::Neutral).then(|| render::render(&context, format));
    Ok(Decided { context, rendered })
}
