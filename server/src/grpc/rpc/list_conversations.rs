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

/// Valid times of a page token, in microseconds since 1970: until the year 9999. A forged time must
/// not overflow the database's arithmetic.
const VALID_TIMES: std::ops::Range<i64> = 0..253_402_300_800_000_000;

/// Returns a page of conversations, newest activity first.
pub(crate) async fn list_conversations(
    state: &ServerState,
    caller: Caller,
    ask: pb::ListConversationsRequest,
) -> Result<pb::ListConversationsResponse, Failure> {
    let limit = paging::page_size(ask.page_size)?;
    let status = ask.status.to_string();
    let scope = TokenScope::of(
        caller,
        &[
            "conversations",
            &ask.agent_id,
            &ask.user_id,
            &status,
            &ask.title_prefix,
        ],
    );
    let after = scope.parse::<(i64, uuid::Uuid)>(&ask.page_token)?;
    if after.is_some_and(|(activity, _)| !VALID_TIMES.contains(&activity)) {
        return Err(paging::invalid_token());
    }
    let non_empty = |field: &str, text: String, most| -> Result<Option<String>, Failure> {
        parse::bounded_text(field, &text, most)?;
        Ok((!text.is_empty()).then_some(text))
    };
    let filter = ConversationFilter {
        agent_id: non_empty("agent_id", ask.agent_id, ID_BYTES)?,
        user_id: non_empty("user_id", ask.user_id, ID_BYTES)?,
        status: status_filter(ask.status)?,
        title_prefix: non_empty("title_prefix", ask.title_prefix, TITLE_BYTES)?,
        after: after.map(|(activity, id)| (Micros(activity), ConversationId(id))),
        limit,
    };
    let found = state.store.list_conversations(caller, &filter).await?;
    let last = found.conversations.last().filter(|_| found.more);
    let next_page_token = last
        .map(|last| scope.token(&(last.last_activity.0, last.id.0)))
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
