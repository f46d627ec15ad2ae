//! ChooseAlternative.

use anneal_core::caller::Caller;
use anneal_proto::{convert::parse, v1 as pb};

use crate::{failure::Failure, state::ServerState, usecases::change_messages};

/// Refuses the call, after the checks of its conversation: answers have no alternatives yet.
pub(crate) async fn choose_alternative(
    state: &ServerState,
    caller: Caller,
    ask: pb::ChooseAlternativeRequest,
) -> Result<pb::MessageChange, Failure> {
    let id = parse::conversation_id(&ask.conversation_id)?;
    parse::request_id(&ask.request_id)?;
    change_messages::parse_conditions(ask.expected_last_message_id, &ask.etag)?;
    parse::message_id("question_message_id", ask.question_message_id)?;
    parse::version("number", ask.number)?;
    state.store.get_conversation(caller, id).await?;
    Err(Failure::not_served("request"))
}
