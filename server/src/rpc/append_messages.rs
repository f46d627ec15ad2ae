//! AppendMessages.

use std::sync::Arc;

use anneal_core::{
    caller::{Caller, ConversationId},
    job::JobKind,
    message::{self, Message, MessageId},
};
use anneal_proto::v1 as pb;
use anneal_store::{Append, Appended, StoreError};

use crate::{
    content::{LONG_EXCHANGE, run_apart},
    cpu,
    house::House,
    parse,
    status::Failure,
};

/// Stores 1 to 100 messages in one transaction, with the jobs that they cause.
pub(crate) async fn append_messages(
    house: &House,
    caller: Caller,
    ask: pb::AppendMessagesRequest,
) -> Result<pb::AppendMessagesResponse, Failure> {
    let id = parse::conversation_id(&ask.conversation_id)?;
    let request_id = parse::request_id(&ask.request_id)?.map(str::to_owned);
    let expected = parse::expected_last(ask.expected_last_message_id)?;
    let messages = parse::messages("messages", ask.messages, false)?.into();
    append(house, caller, Asked { id, request_id, expected, messages }).await
}

/// What is to be appended.
pub(crate) struct Asked {
    pub(crate) id: ConversationId,
    pub(crate) request_id: Option<String>,
    pub(crate) expected: Option<MessageId>,
    pub(crate) messages: Arc<[Message]>,
}

/// Prepares an append: digests and estimates of long messages take their time.
pub(crate) async fn prepare(house: &House, caller: Caller, asked: Asked) -> Result<(Append, Arc<[Message]>), Failure> {
    let Asked { id, request_id, expected, messages } = asked;
    let is_long = is_long(&messages);
    let prepared = move || (Append::new(id, request_id, expected, &messages), messages);
    house.cpu.run_if(is_long, caller.tenant(), prepared).await
}

/// Whether messages take long to prepare: by their bytes of content, or by their parts.
fn is_long(messages: &[Message]) -> bool {
    let parts = || messages.iter().flat_map(|message| &message.parts);
    cpu::is_long(parts().map(message::part_bytes).sum(), parts().count())
}

/// Appends parsed messages and says what became of each.
pub(super) async fn append(house: &House, caller: Caller, asked: Asked) -> Result<pb::AppendMessagesResponse, Failure> {
    let (append, messages) = prepare(house, caller, asked).await?;
    let message_count = messages.len();
    // The messages go before the store takes copies of their JSON: a large one is held once less.
    let without_tools = if append.has_tools() { message::without_tools(&messages) } else { Vec::new() };
    drop(messages);
    let places: Vec<usize> = without_tools.iter().map(|(place, _)| *place).collect();
    house.storage_quota.admit(&house.store, caller, &append).await?;
    let rest = || without_tools.into_iter().map(|(_, message)| message).collect();
    let appended = if let Some(appended) = kept(house, caller, &append, rest).await? {
        appended
    } else {
        house.store.append_nothing(caller, &append).await?;
        Appended { messages: Vec::new(), replayed: false }
    };
    let is_whole = appended.messages.len() == message_count;
    let skipped = (0..message_count).filter(|place| !is_whole && places.binary_search(place).is_err());
    let stored = appended.messages.iter().map(|message| pb::AppendedMessage {
        message_id: message.id.0,
        turn: message.turn,
        tokens: Some(pb::TokenCount { tokens: message.estimate.get(), estimated: true }),
    });
    Ok(pb::AppendMessagesResponse {
        messages: stored.collect(),
        replayed: appended.replayed,
        skipped: skipped.map(|place| place as i32).collect(),
    })
}

/// Stores an append and rings for the worker. Of its messages a conversation without tools keeps the `rest`, what is left
/// without them; None: nothing is.
pub(crate) async fn kept(
    house: &House,
    caller: Caller,
    append: &Append,
    rest: impl FnOnce() -> Vec<Message> + Send,
) -> Result<Option<Appended>, Failure> {
    match stored(house, caller, append).await {
        Err(Failure::Store(StoreError::ToolsNotKept)) => {
            let rest = rest();
            if rest.is_empty() {
                return Ok(None);
            }
            stored(house, caller, &only(house, caller, append, rest).await?).await.map(Some)
        }
        appended => appended.map(Some),
    }
}

/// The append with these of its messages alone.
pub(crate) async fn only(
    house: &House,
    caller: Caller,
    append: &Append,
    messages: Vec<Message>,
) -> Result<Append, Failure> {
    let (append, is_long) = (append.clone(), is_long(&messages));
    house.cpu.run_if(is_long, caller.tenant(), move || append.only(&messages)).await
}

/// Stores an append as it is and rings for the worker.
pub(crate) async fn stored(house: &House, caller: Caller, append: &Append) -> Result<Appended, Failure> {
    let appended = if (append.content_bytes() as u64) < LONG_EXCHANGE {
        house.store.append(caller, append).await?
    } else {
        let (store, append) = (house.store.clone(), append.clone());
        run_apart(async move { store.append(caller, &append).await }).await?
    };
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
