//! AppendMessages.

use anneal_core::{
    caller::{Caller, ConversationId},
    job::JobKind,
    message::{Message, MessageId},
};
use anneal_proto::v1 as pb;
use anneal_store::Append;

use crate::{house::House, parse, status::Failure};

/// Stores 1 to 100 messages in one transaction, with the jobs that they cause.
pub(crate) async fn append_messages(
    house: &House,
    caller: Caller,
    ask: pb::AppendMessagesRequest,
) -> Result<pb::AppendMessagesResponse, Failure> {
    let id = parse::conversation_id(&ask.conversation_id)?;
    let request_id = parse::request_id(&ask.request_id)?.map(str::to_owned);
    let expected = parse::expected_last(ask.expected_last_message_id)?;
    let messages = parse::messages("messages", ask.messages, false)?;
    append(house, caller, id, request_id, expected, &messages).await
}

/// Appends parsed messages and rings for the worker.
pub(super) async fn append(
    house: &House,
    caller: Caller,
    id: ConversationId,
    request_id: Option<String>,
    expected: Option<MessageId>,
    messages: &[Message],
) -> Result<pb::AppendMessagesResponse, Failure> {
    let appended = house.store.append(caller, &Append::new(id, request_id, expected, messages)).await?;
    if !appended.replayed {
        house.bell.ring(&[JobKind::CountTokens]);
    }
    let messages = appended.messages.iter().map(|message| pb::AppendedMessage {
        message_id: message.id.0,
        turn: message.turn,
        tokens: Some(pb::TokenCount { tokens: message.estimate.get(), estimated: true }),
    });
    Ok(pb::AppendMessagesResponse { messages: messages.collect(), replayed: appended.replayed })
}
