//! ChooseAlternative.

use anneal_core::caller::Caller;
use anneal_proto::{convert::parse, v1 as pb};
use anneal_store::ChooseAsk;

use crate::{failure::Failure, reply, state::ServerState, usecases::change_messages};

/// Makes an earlier answer to a question stand again, in place of what stands after the question.
pub(crate) async fn choose_alternative(
    state: &ServerState,
    caller: Caller,
    ask: pb::ChooseAlternativeRequest,
) -> Result<pb::MessageChange, Failure> {
    let id = parse::conversation_id(&ask.conversation_id)?;
    let ask = ChooseAsk {
        request_id: parse::request_id(&ask.request_id)?.map(str::to_owned),
        conditions: change_messages::parse_conditions(ask.expected_last_message_id, &ask.etag)?,
        question: parse::message_id("question_message_id", ask.question_message_id)?,
        number: parse::version("number", ask.number)?,
    };
    let change = change_messages::choose_alternative(state, caller, id, &ask).await?;
    Ok(reply::message_change(id, change))
}
