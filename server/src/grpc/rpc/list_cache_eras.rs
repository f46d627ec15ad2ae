//! ListCacheEras.

use anneal_core::caller::Caller;
use anneal_proto::{
    convert::{context::break_reason, parse},
    v1 as pb,
};
use anneal_store::{CacheEra, EraPageAsk};

use crate::{
    failure::Failure,
    grpc::paging::{self, TokenScope},
    reply,
    state::ServerState,
};

/// Most eras of a page.
const PAGE_ERAS: i64 = 100;

/// Returns a page of the eras of a conversation's contexts, newest first.
pub(crate) async fn list_cache_eras(
    state: &ServerState,
    caller: Caller,
    ask: pb::ListCacheErasRequest,
) -> Result<pb::ListCacheErasResponse, Failure> {
    let id = parse::conversation_id(&ask.conversation_id)?;
    let limit = paging::page_size(ask.page_size)?.min(PAGE_ERAS);
    let scope = TokenScope::of(caller, &["cache eras", &id.to_string()]);
    let page = EraPageAsk {
        before: scope.parse::<i64>(&ask.page_token)?,
        limit,
    };
    let found = state.store.list_cache_eras(caller, id, page).await?;
    let last = found.eras.last().filter(|_| found.more);
    Ok(pb::ListCacheErasResponse {
        next_page_token: last
            .map(|last| scope.token(&last.number))
            .unwrap_or_default(),
        eras: found.eras.into_iter().map(cache_era).collect(),
    })
}

fn cache_era(era: CacheEra) -> pb::CacheEra {
    let calls = era.calls;
    pb::CacheEra {
        number: era.number,
        reason: break_reason(era.reason).into(),
        at_message_id: era.at.0,
        broken_message_id: era.broken_at.0,
        boundary_message_id: era.boundary.0,
        swapped_message_ids: era.swapped,
        rewritten_tokens: era.rewritten.get(),
        saved_tokens_per_call: era.saved.get(),
        pays_back_after_calls: era.pays_back_after.unwrap_or(0),
        model: era.model.unwrap_or_default(),
        created_time: Some(reply::timestamp(era.created)),
        calls: calls.calls,
        input_tokens: calls.input.get(),
        cached_tokens: calls.cached.get(),
        written_tokens: calls.written.get(),
        expected_tokens: calls.expected.get(),
        output_tokens: calls.output.get(),
        cold_calls: calls.cold,
        cut: era.cut,
    }
}
