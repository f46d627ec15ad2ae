//! BuildContext.

use anneal_core::{
    caller::{Caller, ConversationId},
    context::{Ask, BudgetTooSmall, Pressure},
    cut,
    job::JobKind,
    message::{MessageId, Role},
    policy::PolicyOverrides,
    render::Format,
    tokens::Tokens,
    turn,
};
use anneal_proto::v1 as pb;
use anneal_store::{ManualCompaction, TurnsAhead};
use tracing::debug;

use crate::{
    build::{self, Decided},
    house::House,
    parse, policy, pressure, reply,
    rpc::compact,
    status::Failure,
};

/// A request, parsed.
struct Wanted {
    id: ConversationId,
    ask: Ask,
    overrides: PolicyOverrides,
    dry_run: bool,
}

/// Boundary, summary and tail of a conversation, and the current input, fitted to a budget and shaped for a provider.
pub(crate) async fn build_context(
    house: &House,
    caller: Caller,
    ask: pb::BuildContextRequest,
) -> Result<pb::BuildContextResponse, Failure> {
    let wanted = parse(house, ask)?;
    let (decided, ratio) = built(house, caller, &wanted).await.map_err(|failure| in_asked_tokens(failure, &wanted))?;
    let due = if wanted.dry_run { due(house, caller, &wanted).await? } else { None };
    if wanted.ask.pressure == Pressure::Compact && !wanted.dry_run {
        compact_for_good(house, caller, wanted.id, decided.context.last_message_id).await?;
    }
    let model_tokens = ratio.map_or(0, |ratio| (decided.context.total.get() as f64 * ratio).ceil() as u64);
    Ok(pb::BuildContextResponse { model_tokens, due, ..reply::context(decided.context, decided.rendered) })
}

/// Builds the context, and records the version of its beginning when that is new. Another call may record one first: then
/// its version holds, and the context is built again on it. Also says how the model counts, where that is known.
async fn built(house: &House, caller: Caller, wanted: &Wanted) -> Result<(Decided, Option<f64>), Failure> {
    let roles = || wanted.ask.current_input.iter().map(|message| message.role);
    let ahead =
        TurnsAhead { after_user: turn::after(0, Some(Role::User), roles()), otherwise: turn::after(0, None, roles()) };
    let mut tries = TRIES;
    loop {
        let material = house.store.context_material(caller, wanted.id, ahead, &wanted.overrides).await?;
        let ratio = material.tokens_ratio;
        let mut ask = wanted.ask.clone();
        ask.budget = ask.budget.map(|budget| own_tokens(budget, ratio));
        let decided = build::decide(material, ask).await?;
        tries -= 1;
        let new = decided.context.prefix.new.as_ref().filter(|_| !wanted.dry_run && tries > 0);
        let recorded = match new {
            Some(new) => house.store.record_prefix(caller, wanted.id, new).await,
            None => Ok(true),
        };
        match recorded {
            Ok(true) => return Ok((decided, ratio)),
            Ok(false) => {}
            Err(error) => {
                // The next call decides again; this one's answer is as good.
                debug!("could not record a version of the prefix: {error}");
                return Ok((decided, ratio));
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
fn own_tokens(budget: Tokens, ratio: Option<f64>) -> Tokens {
    Tokens::new((budget.get() as f64 / ratio.unwrap_or(1.0).max(1.0)) as u64)
}

/// The checkpoint that is due under the settings of a preview.
async fn due(house: &House, caller: Caller, wanted: &Wanted) -> Result<Option<pb::CompactPreview>, Failure> {
    let material = house.store.checkpoint_preview(caller, wanted.id, &wanted.overrides).await?;
    let figures = compact::figures(&material);
    Ok(cut::due(&figures, &material.policy).and_then(|trigger| compact::preview(&material, trigger)))
}

/// Queues the checkpoint that makes a compaction under pressure last.
async fn compact_for_good(house: &House, caller: Caller, id: ConversationId, last: MessageId) -> Result<(), Failure> {
    let request_id = pressure::request_id(last);
    let manual = ManualCompaction { focus: String::new(), request_id, keep: Some(pressure::KEEP) };
    if house.store.compact_under_pressure(caller, id, &manual).await? {
        house.bell.ring(&[JobKind::Checkpoint]);
    }
    Ok(())
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
    Ok(Wanted { id, ask: context, overrides, dry_run: ask.dry_run })
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
