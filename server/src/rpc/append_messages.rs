//! AppendMessages.

use anneal_core::{
    caller::{Caller, ConversationId},
    job::JobKind,
    message::{self, Message, MessageId},
};
use anneal_proto::v1 as pb;
use anneal_store::{Append, Appended, StoreError};

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

/// Appends parsed messages and says what became of each.
pub(super) async fn append(
    house: &House,
    caller: Caller,
    id: ConversationId,
    request_id: Option<String>,
    expected: Option<MessageId>,
    messages: &[Message],
) -> Result<pb::AppendMessagesResponse, Failure> {
    let append = Append::new(id, request_id, expected, messages);
    house.storage_quota.admit(&house.store, caller, &append).await?;
    let appended = if let Some(appended) = kept(house, caller, &append, messages).await? {
        appended
    } else {
        house.store.append_nothing(caller, &append).await?;
        Appended { messages: Vec::new(), replayed: false }
    };
    let skipped = if appended.messages.len() < messages.len() { skipped(messages) } else { Vec::new() };
    let stored = appended.messages.iter().map(|message| pb::AppendedMessage {
        message_id: message.id.0,
        turn: message.turn,
        tokens: Some(pb::TokenCount { tokens: message.estimate.get(), estimated: true }),
    });
    Ok(pb::AppendMessagesResponse { messages: stored.collect(), replayed: appended.replayed, skipped })
}

/// Stores an append and rings for the worker. Of these messages a conversation without tools keeps what is left without
/// them; None: nothing is.
pub(crate) async fn kept(
    house: &House,
    caller: Caller,
    append: &Append,
    messages: &[Message],
) -> Result<Option<Appended>, Failure> {
    match stored(house, caller, append).await {
        Err(Failure::Store(StoreError::ToolsNotKept)) => {
            let kept = without_tools(messages);
            if kept.is_empty() {
                return Ok(None);
            }
            stored(house, caller, &append.only(&kept)).await.map(Some)
        }
        appended => appended.map(Some),
    }
}

/// Stores an append as it is and rings for the worker.
pub(crate) async fn stored(house: &House, caller: Caller, append: &Append) -> Result<Appended, Failure> {
    let appended = house.store.append(caller, append).await?;
    if !appended.replayed && !appended.messages.is_empty() {
        house.storage_quota.note(caller, append).await;
        house.bell.ring(&[JobKind::CountTokens]);
        house.watching.hint(caller, append.conversation());
    }
    Ok(appended)
}

/// What a conversation that keeps no tools keeps of messages.
pub(crate) fn without_tools(messages: &[Message]) -> Vec<Message> {
    message::without_tools(messages).into_iter().map(|(_, message)| message).collect()
}

/// The places of messages that such a conversation does not keep.
fn skipped(messages: &[Message]) -> Vec<i32> {
    let kept: Vec<usize> = message::without_tools(messages).into_iter().map(|(place, _)| place).collect();
    (0..messages.len()).filter(|place| kept.binary_search(place).is_err()).map(|place| place as i32).collect()
}
