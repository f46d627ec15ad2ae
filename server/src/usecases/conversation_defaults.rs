//! The settings of a new conversation: those of the request, else those of the agent.

use anneal_core::{
    caller::{Bound, Caller},
    digest::Digest,
    limits::{ID_BYTES, TITLE_BYTES},
    policy::PolicyOverrides,
    tokens::Encoding,
};
use anneal_proto::{
    convert::{chat_options, parse, policy},
    v1 as pb,
};
use anneal_store::{CountedConversation, NewConversation};

use crate::{failure::Failure, limits::cpu_pool, settings::AgentSettings, state::ServerState};

/// A conversation to create.
pub(crate) struct PlannedConversation {
    /// Digest of the request's own fields. It identifies a repeated request even if the agent's
    /// settings have changed since.
    pub(crate) request_digest: Digest,
    /// The conversation, with the token count of its system prompt.
    pub(crate) conversation: CountedConversation,
}

/// The conversation that a request describes, with its agent's settings applied. A caller that is
/// bound to a user or an agent creates conversations of that user or agent only.
pub(crate) async fn plan(
    state: &ServerState,
    caller: Caller,
    mut ask: pb::CreateConversationRequest,
) -> Result<PlannedConversation, Failure> {
    match caller.bound() {
        None => {}
        Some(Bound::User(user)) => fill("user_id", &mut ask.user_id, user.as_str())?,
        Some(Bound::Agent(agent)) => fill("agent_id", &mut ask.agent_id, agent.as_str())?,
        Some(Bound::Conversation(_)) => return Err(Failure::CredentialBound),
    }
    let no_settings = AgentSettings::default();
    let settings = state.settings.get();
    let agent = settings.agents.get(&ask.agent_id).unwrap_or(&no_settings);
    let model = parse::model("model", &ask.model)?;
    // The request may name a model beside its policy. That model replaces the agent's in the base,
    // so that the request's policy is checked with it.
    let base_policy = PolicyOverrides {
        model: model.clone(),
        ..PolicyOverrides::default()
    }
    .over(agent.policy());
    // Only the request's fields, for its digest.
    let requested = NewConversation {
        agent_id: parse::bounded_text("agent_id", &ask.agent_id, ID_BYTES)?.into(),
        user_id: parse::bounded_text("user_id", &ask.user_id, ID_BYTES)?.into(),
        title: parse::bounded_text("title", &ask.title, TITLE_BYTES)?.into(),
        pinned: ask.pinned,
        metadata: parse::metadata("metadata", ask.metadata)?,
        system_prompt: parse::system_prompt(&ask.system_prompt)?.into(),
        policy: PolicyOverrides::default(),
        encoding: encoding(&ask.encoding, &ask.model)?,
        chat_options: chat_options::parse("chat_options", ask.chat_options.unwrap_or_default())?,
    };
    let mut conversation = requested.clone();
    if conversation.system_prompt.is_empty() {
        conversation.system_prompt.clone_from(&agent.system_prompt);
    }
    let names_model = model.is_some()
        || ask
            .policy
            .as_ref()
            .is_some_and(|policy| !policy.model.is_empty());
    if ask.encoding.is_empty() && !names_model {
        conversation.encoding = encoding("", agent.model.first().unwrap_or_default())?;
    }
    let is_long =
        cpu_pool::is_long_count(conversation.encoding, conversation.system_prompt.len(), 0);
    let conversation = state
        .cpu
        .run_if(is_long, caller.tenant(), move || conversation.counted())
        .await?;
    let own_policy = policy::parse_with_base(
        ask.policy,
        &base_policy,
        &state.store.session(),
        conversation.system_prompt_tokens(),
    )?;
    // The digest covers the request's own policy without the agent's. So the model that the request
    // names is part of that policy, too.
    let own_policy = PolicyOverrides {
        model: own_policy.model.clone().or(model),
        ..own_policy
    };
    let conversation = conversation.with_policy(own_policy.clone().over(base_policy));
    Ok(PlannedConversation {
        request_digest: NewConversation {
            policy: own_policy,
            ..requested
        }
        .digest(),
        conversation,
    })
}

/// Fills an empty field with what the caller is bound to. Refuses another value.
fn fill(name: &'static str, field: &mut String, bound: &str) -> Result<(), Failure> {
    if field.is_empty() {
        bound.clone_into(field);
    }
    if field == bound {
        return Ok(());
    }
    Err(Failure::invalid(
        name,
        "must be empty or what the credential is bound to",
    ))
}

/// The encoding of this name, else that of the model, else o200k_base, which is nearest for models
/// without a published vocabulary.
fn encoding(name: &str, model: &str) -> Result<Encoding, Failure> {
    if name.is_empty() {
        return Ok(Encoding::of_model(model).unwrap_or_default());
    }
    Encoding::parse(name)
        .ok_or_else(|| Failure::invalid("encoding", "must be o200k_base or cl100k_base"))
}
