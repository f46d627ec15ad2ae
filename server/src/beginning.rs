//! How a conversation begins: as its caller says, and where that says nothing, as its agent's settings do.

use anneal_core::{
    caller::Caller,
    digest::Digest,
    limits::{ID_BYTES, TITLE_BYTES},
    policy::PolicyOverrides,
    tokens::Encoding,
};
use anneal_proto::v1 as pb;
use anneal_store::{CountedConversation, NewConversation};

use crate::{cpu, house::House, parse, policy, settings::AgentSettings, status::Failure};

/// A conversation to make.
pub(crate) struct Beginning {
    /// Digest of what the caller says itself. Settings may change between a call and its repetition; this does not.
    pub(crate) asked: Digest,
    /// The conversation.
    pub(crate) new: CountedConversation,
}

/// How the conversation that is asked for begins.
pub(crate) async fn parse(
    house: &House,
    caller: Caller,
    ask: pb::CreateConversationRequest,
) -> Result<Beginning, Failure> {
    let nothing = AgentSettings::default();
    let agent = house.agents.get(&ask.agent_id).unwrap_or(&nothing);
    let model = policy::model("model", &ask.model)?;
    let below = PolicyOverrides { model: model.clone(), ..PolicyOverrides::default() }.over(agent.policy());
    let asked = NewConversation {
        agent_id: parse::label("agent_id", &ask.agent_id, ID_BYTES)?.into(),
        user_id: parse::label("user_id", &ask.user_id, ID_BYTES)?.into(),
        title: parse::label("title", &ask.title, TITLE_BYTES)?.into(),
        pinned: ask.pinned,
        metadata: parse::metadata("metadata", ask.metadata)?,
        system_prompt: parse::system_prompt(&ask.system_prompt)?.into(),
        policy: PolicyOverrides::default(),
        encoding: encoding(&ask.encoding, &ask.model)?,
    };
    let mut new = asked.clone();
    if new.system_prompt.is_empty() {
        new.system_prompt.clone_from(&agent.system_prompt);
    }
    let names_model = model.is_some() || ask.policy.as_ref().is_some_and(|policy| !policy.model.is_empty());
    if ask.encoding.is_empty() && !names_model {
        new.encoding = encoding("", &agent.model)?;
    }
    let is_long = cpu::is_long(new.system_prompt.len(), 0);
    let new = house.cpu.run_if(is_long, caller.tenant(), move || new.counted()).await?;
    let own = policy::parse_above(ask.policy, &below, house.store.session(), new.system_prompt_tokens())?;
    let own = PolicyOverrides { model: own.model.clone().or(model), ..own };
    let new = new.under(own.clone().over(below));
    Ok(Beginning { asked: NewConversation { policy: own, ..asked }.digest(), new })
}

/// The encoding by name, else by model, else o200k_base: for models that publish no vocabulary it is the nearest.
fn encoding(name: &str, model: &str) -> Result<Encoding, Failure> {
    if name.is_empty() {
        return Ok(Encoding::of_model(model).unwrap_or_default());
    }
    Encoding::parse(name).ok_or_else(|| Failure::invalid("encoding", "must be o200k_base or cl100k_base"))
}
