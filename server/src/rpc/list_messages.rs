//! ListMessages.

use anneal_core::{caller::Caller, message::MessageId};
use anneal_proto::v1 as pb;
use anneal_store::PageAsk;

use crate::{content::Holding, house::House, page, page::Scope, parse, reply, status::Failure};

/// Messages in id order, or against it.
pub(crate) async fn list_messages(
    house: &House,
    caller: Caller,
    ask: pb::ListMessagesRequest,
) -> Result<Holding<pb::ListMessagesResponse>, Failure> {
    let id = parse::conversation_id(&ask.conversation_id)?;
    let limit = page::size(ask.page_size)?;
    let start = parse::place("after_message_id", ask.after_message_id)?;
    let direction = if ask.newest_first { "newest first" } else { "oldest first" };
    let scope = Scope::of(caller, &["messages", &id.to_string(), direction]);
    let place = scope.place::<i64>(&ask.page_token)?.map(MessageId);
    let from = place.or((start > MessageId::NONE && !ask.newest_first).then_some(start));
    let page = PageAsk { from, newest_first: ask.newest_first, content: !ask.without_content, limit };
    let read = |room| {
        let store = house.store.clone();
        async move { store.list_messages(caller, id, page, &room).await }
    };
    let found = house.content.read(caller.tenant(), read).await?;
    Ok(found.map(|found| {
        let last = found.messages.last().filter(|_| found.more);
        pb::ListMessagesResponse {
            next_page_token: last.map(|last| scope.token(&last.id.0)).unwrap_or_default(),
            separators: found.separators.into_iter().map(|separator| reply::separator(id, separator)).collect(),
            messages: found.messages.into_iter().map(reply::message).collect(),
        }
    }))
}
