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
    content::{LONG_EXCHANGE, Reservation, run_apart},
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
    let prepared = prepare(house, caller, Asked { id, request_id, expected, messages, held: None }).await?;
    append(house, caller, &prepared).await
}

/// What is to be appended.
pub(crate) struct Asked {
    pub(crate) id: ConversationId,
    pub(crate) request_id: Option<String>,
    pub(crate) expected: Option<MessageId>,
    pub(crate) messages: Arc<[Message]>,
    /// The room that was reserved for their content, if some was.
    pub(crate) held: Option<Arc<Reservation>>,
}

/// Prepares an append: digests and estimates of long messages take their time.
pub(crate) async fn prepare(house: &House, caller: Caller, asked: Asked) -> Result<Append, Failure> {
    let Asked { id, request_id, expected, messages, held } = asked;
    let is_long = is_long(&messages);
    let prepared = move || {
        let append = Append::new(id, request_id, expected, &messages);
        if let Some(held) = held { append.holding(held) } else { append }
    };
    house.cpu.run_if(is_long, caller.tenant(), prepared).await
}

/// Whether messages take long to prepare: by their bytes of content, or by their parts.
fn is_long(messages: &[Message]) -> bool {
    let parts = || messages.iter().flat_map(|message| &message.parts);
    cpu::is_long(parts().map(message::part_bytes).sum(), parts().count())
}

/// Appends what was prepared and says what became of each message.
pub(super) async fn append(
    house: &House,
    caller: Caller,
    append: &Append,
) -> Result<pb::AppendMessagesResponse, Failure> {
    house.storage_quota.admit(&house.store, caller, append).await?;
    let appended = if let Some(appended) = store_what_is_kept(house, caller, append).await? {
        appended
    } else {
        house.store.append_nothing(caller, append).await?;
        Appended { messages: Vec::new(), replayed: false }
    };
    let skipped = if appended.messages.len() < append.message_count() {
        find_skipped(house, caller, append).await?
    } else {
        Vec::new()
    };
    let stored = appended.messages.iter().map(|message| pb::AppendedMessage {
        message_id: message.id.0,
        turn: message.turn,
        tokens: Some(pb::TokenCount { tokens: message.estimate.get(), estimated: true }),
    });
    Ok(pb::AppendMessagesResponse { messages: stored.collect(), replayed: appended.replayed, skipped })
}

/// Stores an append and rings for the worker. A conversation without tools keeps what is left of it without them; None:
/// nothing is.
pub(crate) async fn store_what_is_kept(
    house: &House,
    caller: Caller,
    append: &Append,
) -> Result<Option<Appended>, Failure> {
    match store(house, caller, append).await {
        Err(Failure::Store(StoreError::ToolsNotKept)) => {
            let (kept, rest) = remove_tools(house, caller, append).await?;
            if kept.is_empty() {
                return Ok(None);
            }
            store(house, caller, &rest).await.map(Some)
        }
        appended => appended.map(Some),
    }
}

/// Removes from an append what a conversation without tools does not keep. Answers with the places of the messages that are
/// left, and the append of these alone.
pub(crate) async fn remove_tools(
    house: &House,
    caller: Caller,
    append: &Append,
) -> Result<(Vec<usize>, Append), Failure> {
    let (append, is_long) = (append.clone(), is_long_append(append));
    let remove = move || {
        let (places, messages): (Vec<_>, Vec<_>) = append.without_tools()?.into_iter().unzip();
        Ok((places, append.only(&messages)))
    };
    house.cpu.run_if(is_long, caller.tenant(), remove).await?
}

/// Finds the places of the messages that a conversation without tools does not keep.
async fn find_skipped(house: &House, caller: Caller, append: &Append) -> Result<Vec<i32>, Failure> {
    let (append, is_long) = (append.clone(), is_long_append(append));
    let find = move || {
        let kept = append.without_tools()?;
        let is_skipped = |place: &usize| kept.binary_search_by_key(place, |(kept, _)| *kept).is_err();
        Ok((0..append.message_count()).filter(is_skipped).map(|place| place as i32).collect())
    };
    house.cpu.run_if(is_long, caller.tenant(), find).await?
}

fn is_long_append(append: &Append) -> bool {
    cpu::is_long(append.content_bytes(), append.message_count())
}

/// Stores an append as it is and rings for the worker.
pub(crate) async fn store(house: &House, caller: Caller, append: &Append) -> Result<Appended, Failure> {
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
