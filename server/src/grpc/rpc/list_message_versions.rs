//! ListMessageVersions.

use anneal_core::caller::Caller;
use anneal_proto::{convert::parse, v1 as pb};

use crate::{
    failure::Failure,
    grpc::paging::{self, TokenScope},
    reply,
    state::ServerState,
};

/// Returns a page of the versions of a message, newest first.
pub(crate) async fn list_message_versions(
    state: &ServerState,
    caller: Caller,
    ask: pb::ListMessageVersionsRequest,
) -> Result<pb::ListMessageVersionsResponse, Failure> {
    let id = parse::conversation_id(&ask.conversation_id)?;
    let message_id = parse::message_id("message_id", ask.message_id)?;
    let limit = paging::page_size(ask.page_size)?;
    let scope = TokenScope::of(
        caller,
        &["versions", &id.to_string(), &message_id.to_string()],
    );
    let before = scope.parse::<i32>(&ask.page_token)?;
    let mut found = state
        .store
        .list_message_versions(caller, id, message_id, before, limit + 1)
        .await?;
    let more = found.len() as i64 > limit;
    found.truncate(limit.max(0) as usize);
    let last = found.last().filter(|_| more);
    Ok(pb::ListMessageVersionsResponse {
        next_page_token: last
            .map(|last| scope.token(&last.version))
            .unwrap_or_default(),
        versions: found.into_iter().map(reply::message_version).collect(),
    })
}
