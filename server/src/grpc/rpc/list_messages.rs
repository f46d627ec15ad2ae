//! ListMessages.

use anneal_core::{caller::Caller, message::MessageId};
use anneal_proto::{convert::parse, v1 as pb};
use anneal_store::PageAsk;

use crate::{
    failure::Failure,
    grpc::paging::{self, TokenScope},
    limits::content_budget::WithReservation,
    reply,
    state::ServerState,
};

/// Returns a page of messages by id, ascending or descending, and the separators among them.
pub(crate) async fn list_messages(
    state: &ServerState,
    caller: Caller,
    ask: pb::ListMessagesRequest,
) -> Result<WithReservation<pb::ListMessagesResponse>, Failure> {
    let id = parse::conversation_id(&ask.conversation_id)?;
    let limit = paging::page_size(ask.page_size)?;
    let after_message_id = parse::message_id_or_zero("after_message_id", ask.after_message_id)?;
    let before_message_id = parse::message_id_or_zero("before_message_id", ask.before_message_id)?;
    let kind_of_list = match (ask.newest_first, ask.include_withdrawn) {
        (true, true) => {
            return Err(Failure::invalid(
                "include_withdrawn",
                "must not be set together with newest_first",
            ));
        }
        (true, false) => "newest first",
        (false, true) => "with withdrawn ones",
        (false, false) => "oldest first",
    };
    let scope = TokenScope::of(caller, &["messages", &id.to_string(), kind_of_list]);
    let position = scope.parse::<i64>(&ask.page_token)?.map(MessageId);
    let start = if ask.newest_first {
        before_message_id
    } else {
        after_message_id
    };
    let start = (start > MessageId::NONE).then_some(start);
    let page = PageAsk {
        after: position.or(start),
        newest_first: ask.newest_first,
        content: !ask.without_content,
        limit,
    };
    let include_withdrawn = ask.include_withdrawn;
    let read = |read_budget| {
        let store = state.store.clone();
        async move {
            if include_withdrawn {
                store
                    .list_messages_with_withdrawn(caller, id, page, &read_budget)
                    .await
            } else {
                store.list_messages(caller, id, page, &read_budget).await
            }
        }
    };
    let found = state.content_budget.read(caller.tenant(), read).await?;
    Ok(found.map(|found| {
        let last = found.messages.last().filter(|_| found.more);
        pb::ListMessagesResponse {
            next_page_token: last.map(|last| scope.token(&last.id.0)).unwrap_or_default(),
            separators: found
                .separators
                .into_iter()
                .map(|separator| reply::separator(id, separator))
                .collect(),
            messages: found.messages.into_iter().map(reply::message).collect(),
        }
    }))
}
