//! BuildContext.

use anneal_core::{
    cache::{CacheAsk, CacheRetention, CacheRules, RequestIdentity},
    caller::{Caller, Verb},
    context::{Ask, Pressure},
    cut,
    media_access::MediaAccess,
    render::Format,
    tokens::Tokens,
};
use anneal_proto::{
    convert::{context, message, parse, policy},
    v1 as pb,
};

use crate::{
    failure::Failure,
    grpc::rpc::compact,
    limits::{content_budget::WithReservation, cpu_pool},
    state::ServerState,
    usecases::build_context::{self, ContextRequest},
};

/// Builds the context of a conversation: summary, tail and current input, within a budget and in a
/// provider's format. With pressure `compact` it also queues a checkpoint, unless it is a dry run.
pub(crate) async fn build_context(
    state: &ServerState,
    caller: Caller,
    ask: pb::BuildContextRequest,
) -> Result<WithReservation<pb::BuildContextResponse>, Failure> {
    let request = parse(state, ask)?;
    let queues_checkpoint = request.ask.pressure == Pressure::Compact && !request.dry_run;
    if queues_checkpoint && !caller.may(Verb::Append) {
        return Err(Failure::VerbMissing(Verb::Append));
    }
    let built = build_context::build(state, &state.content_budget, caller, &request).await?;
    if queues_checkpoint {
        build_context::queue_compaction(state, caller, request.id, built.context.last_message_id)
            .await?;
    }
    let due = if request.dry_run {
        preview_due_checkpoint(state, caller, &request).await?
    } else {
        None
    };
    // 0: it is not known how many tokens of the model a token counted here is (`ratio`).
    let model_tokens = if built.ratio.is_some() {
        built.model_tokens(built.context.total).get()
    } else {
        0
    };
    // The reply moves the texts, so only the number of manifest entries matters.
    let is_long = cpu_pool::is_long(0, built.context.manifest.len());
    let answer = WithReservation {
        answer: (built.context, built.rendered),
        reservation: built.reservation,
    };
    let reply = move |(context, rendered)| pb::BuildContextResponse {
        model_tokens,
        due,
        ..context::answer(context, rendered)
    };
    answer
        .map_long(&state.cpu, caller.tenant(), is_long, reply)
        .await
}

/// The checkpoint that would be due now if the conversation had the request's policy. None: no
/// checkpoint would be due, or no message could be cut off.
async fn preview_due_checkpoint(
    state: &ServerState,
    caller: Caller,
    request: &ContextRequest,
) -> Result<Option<pb::CompactPreview>, Failure> {
    let material = state
        .store
        .read_checkpoint_preview(caller, request.id, &request.overrides)
        .await?;
    let figures = compact::figures(&material);
    Ok(cut::due_trigger(&figures, &material.policy)
        .and_then(|trigger| compact::preview(&material, trigger)))
}

fn parse(state: &ServerState, ask: pb::BuildContextRequest) -> Result<ContextRequest, Failure> {
    let id = parse::conversation_id(&ask.conversation_id)?;
    if ask.budget_tokens == Some(0) {
        return Err(Failure::invalid("budget_tokens", "must be at least 1"));
    }
    if ask.policy.is_some() && !ask.dry_run {
        return Err(Failure::invalid(
            "policy",
            "needs dry_run; UpdateConversation changes a conversation's policy",
        ));
    }
    if let Some(prompt) = &ask.system_prompt {
        parse::system_prompt(prompt)?;
    }
    let mut overrides = policy::parse(ask.policy, &state.store.session(), Tokens::ZERO)?;
    overrides.model = parse::model("model", &ask.model)?.or(overrides.model);
    let format = context::parse_format(ask.format)?;
    if ask.cache_marks && format == Format::Neutral {
        return Err(Failure::invalid("cache_marks", "needs a provider's format"));
    }
    // The rules and the retention are those of the conversation's policy, which is read later.
    let cache = ask.cache_marks.then(|| CacheAsk {
        rules: CacheRules::IDEAL,
        retention: CacheRetention::default(),
        marks: true,
        identity: RequestIdentity::default(),
    });
    let context_ask = Ask {
        // The caller, not this server, sends the provider's request.
        media: MediaAccess::Any,
        current_input: message::parse_all("current_input", ask.current_input)?,
        system_prompt: ask.system_prompt,
        budget: ask.budget_tokens.map(Tokens::new),
        format,
        pressure: context::parse_pressure(ask.pressure)?,
        cache,
    };
    Ok(ContextRequest {
        id,
        ask: context_ask,
        overrides,
        dry_run: ask.dry_run,
        ratio: None,
    })
}
