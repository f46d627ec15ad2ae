//! CreateConversation.

use anneal_core::{
    caller::Caller,
    limits::{ID_BYTES, TITLE_BYTES},
    tokens::Encoding,
};
use anneal_proto::v1 as pb;
use anneal_store::NewConversation;

use crate::{house::House, parse, policy, reply, status::Failure};

/// Makes a conversation; with a request id the same one however often.
pub(crate) async fn create_conversation(
    house: &House,
    caller: Caller,
    ask: pb::CreateConversationRequest,
) -> Result<pb::Conversation, Failure> {
    let encoding = encoding(&ask.encoding, &ask.model)?;
    let system_prompt = parse::system_prompt(&ask.system_prompt)?;
    let prompt_tokens = encoding.counter().count(system_prompt);
    let mut policy = policy::parse(ask.policy, house.store.session(), prompt_tokens)?;
    policy.model = policy.model.or(policy::model("model", &ask.model)?);
    let request_id = parse::request_id(&ask.request_id)?.map(str::to_owned);
    let new = NewConversation {
        agent_id: parse::label("agent_id", &ask.agent_id, ID_BYTES)?.into(),
        user_id: parse::label("user_id", &ask.user_id, ID_BYTES)?.into(),
        title: parse::label("title", &ask.title, TITLE_BYTES)?.into(),
        pinned: ask.pinned,
        metadata: parse::metadata("metadata", ask.metadata)?,
        system_prompt: system_prompt.into(),
        policy,
        encoding,
    };
    let made = house.store.create_conversation(caller, request_id.as_deref(), &new).await?;
    Ok(reply::conversation(made))
}

/// The encoding by name, else by model, else o200k_base: for models that publish no vocabulary it is the nearest.
fn encoding(name: &str, model: &str) -> Result<Encoding, Failure> {
    if name.is_empty() {
        return Ok(Encoding::of_model(model).unwrap_or_default());
    }
    Encoding::parse(name).ok_or_else(|| Failure::invalid("encoding", "must be o200k_base or cl100k_base"))
}
