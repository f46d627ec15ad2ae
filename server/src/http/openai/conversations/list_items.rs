//! GET /v1/conversations/{id}/items.

use anneal_core::caller::ConversationId;
use anneal_proto::v1::{self as pb, message_service_server::MessageService as _};
use axum::response::Response;
use prost::Message as _;

use super::{
    conversation::ConversationPath,
    page::{Page, Place},
};
use crate::{
    http::{
        caller::{Authorized, EndpointRpcs, HttpCaller},
        extractors::{PathParams, QueryParams},
        json,
        openai::{
            compaction,
            errors::ApiError,
            items::{StoredItem, stored_items},
            page_query::{self, Order, PageAsk},
        },
    },
    limits::cpu_pool,
    verbs::Rpc,
};

/// The RPCs of this endpoint.
pub(super) struct ListItems;

impl EndpointRpcs for ListItems {
    const RPCS: &'static [&'static Rpc] = &[
        Rpc::named("list_messages"),
        Rpc::named("list_checkpoints"),
        Rpc::named("get_conversation"),
    ];
}

/// Lists the items of a conversation, newest first unless the query says otherwise. A page may hold
/// fewer items than its limit although there are more: it ends where the content of its messages
/// exceeds 4 MiB.
pub(super) async fn list_items(
    Authorized(http_caller, _): Authorized<ListItems>,
    PathParams(id): PathParams<String>,
    QueryParams(query): QueryParams<Vec<(String, String)>>,
) -> Result<Response, ApiError> {
    let ask = PageAsk::parse(&query)?;
    let path = ConversationPath::parse(id)?;
    let after = match &ask.after {
        None => None,
        Some(id) => Some(Place::of(&path.parse_item(&http_caller, id).await?)),
    };
    let mut page = Page::new(ask.order, ask.limit, after);
    let mut next = list_request(&path, &ask, after);
    loop {
        let listed = http_caller
            .services
            .list_messages(http_caller.request(next.clone()))
            .await
            .map_err(|status| path.refusal(&status))?;
        // The memory of the messages stays reserved until their items are made.
        let (_, listed, reservation) = listed.into_parts();
        next.page_token = listed.next_page_token;
        let mut items = convert(&http_caller, path.id, listed.messages).await?;
        drop(reservation);
        add_checkpoints(&http_caller, &path, &mut items).await?;
        for (_, items) in items {
            page.add(items);
        }
        // A page without an item is one of messages before the place after which the page begins.
        if !page.is_empty() || next.page_token.is_empty() {
            break;
        }
    }
    let (items, has_more) = page.finish(!next.page_token.is_empty());
    Ok(json::response(&page_query::show_list(&items, has_more)))
}

/// The request for the messages of the page. The first one may be the message in which the page
/// begins, and each has at least one item, so two more than the limit show whether there are more.
fn list_request(
    path: &ConversationPath,
    ask: &PageAsk,
    after: Option<Place>,
) -> pb::ListMessagesRequest {
    let newest_first = ask.order == Order::NewestFirst;
    let (mut after_message_id, mut before_message_id) = (0, 0);
    if let Some(place) = after {
        if newest_first {
            before_message_id = place.message.saturating_add(1);
        } else {
            after_message_id = place.message - 1;
        }
    }
    pb::ListMessagesRequest {
        conversation_id: path.uuid(),
        page_size: ask.limit as i32 + 2,
        newest_first,
        after_message_id,
        before_message_id,
        ..pb::ListMessagesRequest::default()
    }
}

/// Adds the checkpoints whose last messages these are.
async fn add_checkpoints(
    http_caller: &HttpCaller,
    path: &ConversationPath,
    items: &mut [(i64, Vec<StoredItem>)],
) -> Result<(), ApiError> {
    let ids = || items.iter().map(|(message, _)| *message);
    let (Some(first), Some(last)) = (ids().min(), ids().max()) else {
        return Ok(());
    };
    let refuse = |status: &tonic::Status| path.refusal(status);
    let checkpoints =
        compaction::list_checkpoints(http_caller, path.id, (first, last), refuse).await?;
    for checkpoint in checkpoints {
        let message = checkpoint.id.message.0;
        let place = items.iter_mut().find(|(id, _)| *id == message);
        if let Some((_, items)) = place {
            items.push(checkpoint);
        }
    }
    Ok(())
}

/// The id and the items of each message, made on the CPU pool if the messages are many or long.
async fn convert(
    http_caller: &HttpCaller,
    conversation: ConversationId,
    messages: Vec<pb::Message>,
) -> Result<Vec<(i64, Vec<StoredItem>)>, ApiError> {
    let bytes = messages.iter().map(pb::Message::encoded_len).sum();
    let is_long = cpu_pool::is_long(bytes, messages.len());
    let make_items = move || {
        let messages = messages.iter();
        let items =
            messages.map(|message| (message.message_id, stored_items(conversation, message)));
        items.collect()
    };
    let tenant = http_caller.caller.tenant();
    let cpu = &http_caller.services.state.cpu;
    Ok(cpu.run_if(is_long, tenant, make_items).await?)
}
