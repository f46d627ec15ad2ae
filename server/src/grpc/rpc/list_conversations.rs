//! ListConversations.

use anneal_core::{
    caller::{Caller, ConversationId},
    limits::{ID_BYTES, TITLE_BYTES},
};
use anneal_proto::{convert::parse, v1 as pb};
use anneal_store::{ConversationFilter, ConversationStatus, Micros};

use crate::{
    failure::Failure,
    grpc::paging::{self, TokenScope},
    reply,
    state::ServerState,
};

/// Returns a page of conversations, newest activity first, or of the forks of one conversation,
/// newest fork first.
pub(crate) async fn list_conversations(
    state: &ServerState,
    caller: Caller,
    ask: pb::ListConversationsRequest,
) -> Result<pb::ListConversationsResponse, Failure> {
    let limit = paging::page_size(ask.page_size)?;
    let status = ask.status.to_string();
    let mut fields = vec![
        "conversations",
        ask.agent_id.as_str(),
        ask.user_id.as_str(),
        status.as_str(),
        ask.title_prefix.as_str(),
    ];
    // Lists without this filter have the tokens that they had before there was one.
    if !ask.forked_from_conversation_id.is_empty() {
        fields.push(ask.forked_from_conversation_id.as_str());
    }
    if !ask.title_contains.is_empty() {
        fields.extend(["title contains", ask.title_contains.as_str()]);
    }
    // This list has no second page, so no token of another list may belong to it.
    if ask.pinned_only {
        fields.push("pinned");
    }
    let scope = TokenScope::of(caller, &fields);
    let after = scope.parse::<(i64, uuid::Uuid)>(&ask.page_token)?;
    if after.is_some_and(|(activity, _)| !paging::VALID_TIMES.contains(&activity)) {
        return Err(paging::invalid_token());
    }
    let non_empty = |field: &str, text: String, most| -> Result<Option<String>, Failure> {
        parse::bounded_text(field, &text, most)?;
        Ok((!text.is_empty()).then_some(text))
    };
    let source = parse_source(&ask)?;
    let filter = ConversationFilter {
        agent_id: non_empty("agent_id", ask.agent_id, ID_BYTES)?,
        user_id: non_empty("user_id", ask.user_id, ID_BYTES)?,
        status: status_filter(ask.status)?,
        title_prefix: non_empty("title_prefix", ask.title_prefix, TITLE_BYTES)?,
        title_contains: non_empty("title_contains", ask.title_contains, TITLE_BYTES)?,
        after: after.map(|(activity, id)| (Micros(activity), ConversationId(id))),
        limit,
    };
    let store = &state.store;
    let found = match source {
        None if ask.pinned_only => store.list_pinned_conversations(caller, &filter).await?,
        None => store.list_conversations(caller, &filter).await?,
        Some(source) => {
            let (after, limit) = (filter.after, filter.limit);
            store.list_forks(caller, source, after, limit).await?
        }
    };
    let last = found.conversations.last();
    let last = last.filter(|_| found.more && !ask.pinned_only);
    let next_page_token = last
        .map(|last| {
            let time = match source {
                None => last.last_activity,
                Some(_) => last.created,
            };
            scope.token(&(time.0, last.id.0))
        })
        // The nil id comes before all others, so the next page has what was active before.
        .or_else(|| Some(scope.token(&(found.continues_before?.0, uuid::Uuid::nil()))))
        .unwrap_or_default();
    let conversations = found
        .conversations
        .into_iter()
        .map(reply::conversation)
        .collect();
    Ok(pb::ListConversationsResponse {
        conversations,
        next_page_token,
    })
}

/// The conversation whose forks are asked for. None: all conversations are.
fn parse_source(ask: &pb::ListConversationsRequest) -> Result<Option<ConversationId>, Failure> {
    const FIELD: &str = "forked_from_conversation_id";
    if ask.forked_from_conversation_id.is_empty() {
        return Ok(None);
    }
    let source = parse::conversation_id_in(FIELD, &ask.forked_from_conversation_id)?;
    let texts = [
        &ask.agent_id,
        &ask.user_id,
        &ask.title_prefix,
        &ask.title_contains,
    ];
    if ask.status != 0 || ask.pinned_only || texts.into_iter().any(|text| !text.is_empty()) {
        return Err(Failure::invalid(
            FIELD,
            "must not be given together with another filter",
        ));
    }
    Ok(Some(source))
}

fn status_filter(number: i32) -> Result<Option<ConversationStatus>, Failure> {
    match pb::ConversationStatus::try_from(number) {
        Ok(pb::ConversationStatus::Unspecified) => Ok(None),
        Ok(pb::ConversationStatus::Active) => Ok(Some(ConversationStatus::Active)),
        Ok(pb::ConversationStatus::Archived) => Ok(Some(ConversationStatus::Archived)),
        Err(_) => Err(Failure::invalid(
            "status",
            format!("{number} is not a status"),
        )),
    }
}
