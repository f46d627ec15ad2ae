//! BuildContext.

use anneal_core::{
    caller::Caller,
    context::{self, Ask, Body, Context, Material},
    message::{Role, plain_text_bytes},
    tokens::Tokens,
    turn,
};
use anneal_proto::v1 as pb;
use anneal_store::TurnsAhead;

use crate::{house::House, parse, reply, status::Failure};

/// Boundary, summary and tail of a conversation, and the current input, fitted to a budget.
pub(crate) async fn build_context(
    house: &House,
    caller: Caller,
    ask: pb::BuildContextRequest,
) -> Result<pb::BuildContextResponse, Failure> {
    let id = parse::conversation_id(&ask.conversation_id)?;
    let ask = parse(ask)?;
    let roles = || ask.current_input.iter().map(|message| message.role);
    let ahead =
        TurnsAhead { after_user: turn::after(0, Some(Role::User), roles()), otherwise: turn::after(0, None, roles()) };
    let material = house.store.context_material(caller, id, ahead).await?;
    Ok(reply::context(decide(material, ask).await?))
}

/// Texts of this size are counted or cut on a thread of their own: a hostile one takes seconds for each 10 MB.
const LONG_BYTES: usize = 256 * 1024;

async fn decide(material: Material, ask: Ask) -> Result<Context, Failure> {
    let input: usize = ask.current_input.iter().map(|message| plain_text_bytes(&message.parts)).sum();
    let tail = material.tail.iter().map(|message| match &message.body {
        Body::Original(parts) => plain_text_bytes(parts),
        Body::Summary { .. } => 0,
    });
    if input < LONG_BYTES && (ask.budget.is_none() || tail.sum::<usize>() < LONG_BYTES) {
        return Ok(context::build(material, ask)?);
    }
    let built = tokio::task::spawn_blocking(move || context::build(material, ask)).await;
    Ok(built.map_err(|_| Failure::Panicked)??)
}

fn parse(ask: pb::BuildContextRequest) -> Result<Ask, Failure> {
    if ask.budget_tokens == Some(0) {
        return Err(Failure::invalid("budget_tokens", "must be at least 1"));
    }
    if let Some(prompt) = &ask.system_prompt {
        parse::system_prompt(prompt)?;
    }
    Ok(Ask {
        current_input: parse::messages("current_input", ask.current_input, true)?,
        system_prompt: ask.system_prompt,
        budget: ask.budget_tokens.map(Tokens::new),
    })
}
