//! BuildContext.

use anneal_core::{
    caller::{Caller, Verb},
    context::{Ask, Pressure},
    cut,
    render::Format,
    tokens::Tokens,
};
use anneal_proto::v1 as pb;

use crate::{
    context::{self, Wanted},
    cpu,
    house::House,
    parse, policy, reply,
    rpc::compact,
    status::Failure,
};

/// Boundary, summary and tail of a conversation, and the current input, fitted to a budget and shaped for a provider.
pub(crate) async fn build_context(
    house: &House,
    caller: Caller,
    ask: pb::BuildContextRequest,
) -> Result<pb::BuildContextResponse, Failure> {
    let wanted = parse(house, ask)?;
    let makes_checkpoint = wanted.ask.pressure == Pressure::Compact && !wanted.dry_run;
    if makes_checkpoint && !caller.may(Verb::Append) {
        return Err(Failure::VerbMissing(Verb::Append));
    }
    let built = context::built(house, caller, &wanted).await?;
    if makes_checkpoint {
        context::compact_for_good(house, caller, wanted.id, built.context.last_message_id).await?;
    }
    let due = if wanted.dry_run { due(house, caller, &wanted).await? } else { None };
    let model_tokens = if built.ratio.is_some() { built.model_tokens(built.context.total).get() } else { 0 };
    let is_long = cpu::is_long(0, built.context.manifest.len());
    let replied = move || reply::context(built.context, built.rendered);
    let reply = house.cpu.run_if(is_long, caller.tenant(), replied).await?;
    Ok(pb::BuildContextResponse { model_tokens, due, ..reply })
}

/// The checkpoint that is due under the settings of a preview.
async fn due(house: &House, caller: Caller, wanted: &Wanted) -> Result<Option<pb::CompactPreview>, Failure> {
    let material = house.store.checkpoint_preview(caller, wanted.id, &wanted.overrides).await?;
    let figures = compact::figures(&material);
    Ok(cut::due(&figures, &material.policy).and_then(|trigger| compact::preview(&material, trigger)))
}

fn parse(house: &House, ask: pb::BuildContextRequest) -> Result<Wanted, Failure> {
    let id = parse::conversation_id(&ask.conversation_id)?;
    if ask.budget_tokens == Some(0) {
        return Err(Failure::invalid("budget_tokens", "must be at least 1"));
    }
    if ask.policy.is_some() && !ask.dry_run {
        return Err(Failure::invalid("policy", "needs dry_run; UpdateConversation changes a conversation's policy"));
    }
    if let Some(prompt) = &ask.system_prompt {
        parse::system_prompt(prompt)?;
    }
    let mut overrides = policy::parse(ask.policy, house.store.session(), Tokens::ZERO)?;
    overrides.model = policy::model("model", &ask.model)?.or(overrides.model);
    let context = Ask {
        current_input: parse::messages("current_input", ask.current_input, true)?,
        system_prompt: ask.system_prompt,
        budget: ask.budget_tokens.map(Tokens::new),
        format: format(ask.format)?,
        pressure: pressure(ask.pressure)?,
    };
    Ok(Wanted { id, ask: context, overrides, dry_run: ask.dry_run, ratio: None })
}

fn format(number: i32) -> Result<Format, Failure> {
    match pb::Format::try_from(number) {
        Ok(pb::Format::Unspecified) => Ok(Format::Neutral),
        Ok(pb::Format::OpenaiChat) => Ok(Format::OpenAiChat),
        Ok(pb::Format::AnthropicMessages) => Ok(Format::AnthropicMessages),
        Ok(pb::Format::GeminiContents) => Ok(Format::GeminiContents),
        Err(_) => Err(Failure::invalid("format", format!("{number} is not a format"))),
    }
}

fn pressure(number: i32) -> Result<Pressure, Failure> {
    match pb::Pressure::try_from(number) {
        Ok(pb::Pressure::Unspecified) => Ok(Pressure::None),
        Ok(pb::Pressure::TruncateToolResults) => Ok(Pressure::TruncateToolResults),
        Ok(pb::Pressure::Compact) => Ok(Pressure::Compact),
        Err(_) => Err(Failure::invalid("pressure", format!("{number} is not a pressure"))),
    }
}
