//! ListErasures.

use anneal_core::{caller::Caller, limits::ID_BYTES};
use anneal_proto::{convert::parse, v1 as pb};
use anneal_store::{ErasurePosition, Micros};
use uuid::Uuid;

use crate::{
    failure::Failure,
    grpc::paging::{self, TokenScope},
    reply,
    state::ServerState,
};

/// Returns a page of erasures, the newest first.
pub(crate) async fn list_erasures(
    state: &ServerState,
    caller: Caller,
    ask: pb::ListErasuresRequest,
) -> Result<pb::ListErasuresResponse, Failure> {
    let limit = paging::page_size(ask.page_size)?;
    parse::bounded_text("user_id", &ask.user_id, ID_BYTES)?;
    let scope = TokenScope::of(caller, &["erasures", &ask.user_id]);
    let after = scope.parse::<(i64, Uuid)>(&ask.page_token)?;
    if after.is_some_and(|(requested, _)| !paging::VALID_TIMES.contains(&requested)) {
        return Err(paging::invalid_token());
    }
    let after = after.map(|(requested, id)| ErasurePosition {
        requested: Micros(requested),
        id,
    });
    let user_id = (!ask.user_id.is_empty()).then_some(ask.user_id.as_str());
    let page = state
        .store
        .list_erasures(caller, user_id, after, limit)
        .await?;
    Ok(pb::ListErasuresResponse {
        next_page_token: page
            .next
            .map(|next| scope.token(&(next.requested.0, next.id)))
            .unwrap_or_default(),
        erasures: page.erasures.into_iter().map(reply::erasure).collect(),
    })
}
