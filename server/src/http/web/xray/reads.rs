//! The RPCs that several of these pages call.

use std::sync::Arc;

use anneal_core::{limits::SUMMARY_BYTES, message::MessageId};
use anneal_proto::{
    convert::parse,
    v1::{
        self as pb, context_service_server::ContextService as _,
        conversation_service_server::ConversationService as _,
    },
};
use anneal_store::ContextAt;

use super::strip_view::is_unread;
use crate::{
    failure::Failure,
    http::{caller::HttpCaller, problem::Problem},
    limits::content_budget::Reservation,
    reply,
};

/// Most messages whose tokens one call sums.
const MOST_MESSAGES: i64 = 200_000;

/// Loads a conversation.
pub(super) async fn get_conversation(
    http_caller: &HttpCaller,
    id: &str,
) -> Result<pb::Conversation, Problem> {
    let ask = pb::GetConversationRequest {
        conversation_id: id.to_owned(),
    };
    let services = &http_caller.services;
    let found = services.get_conversation(http_caller.request(ask)).await?;
    Ok(found.into_inner())
}

/// Builds a context without effect. The answer has no content, but for the manifest.
pub(super) async fn build_context(
    http_caller: &HttpCaller,
    ask: pb::BuildContextRequest,
) -> Result<pb::BuildContextResponse, Problem> {
    let ask = pb::BuildContextRequest {
        dry_run: true,
        ..ask
    };
    let services = &http_caller.services;
    let built = services.build_context(http_caller.request(ask)).await?;
    let (_, built, reservation) = built.into_parts();
    let built = pb::BuildContextResponse {
        messages: Vec::new(),
        rendered: None,
        rendered_messages: Vec::new(),
        ..built
    };
    // It is held until the content is gone.
    drop(reservation);
    Ok(built)
}

/// Loads the figures of a context, and what the conversation's calls have cost.
pub(super) async fn get_context_usage(
    http_caller: &HttpCaller,
    id: &str,
    policy: Option<pb::Policy>,
) -> Result<pb::GetContextUsageResponse, Problem> {
    let ask = pb::GetContextUsageRequest {
        conversation_id: id.to_owned(),
        policy,
        economics: true,
        ..pb::GetContextUsageRequest::default()
    };
    let services = &http_caller.services;
    let usage = services.get_context_usage(http_caller.request(ask)).await?;
    Ok(usage.into_inner())
}

/// Lists the tokens of messages in at most this many runs. `range`: the first and the last message;
/// 0: the newest.
pub(super) async fn list_token_runs(
    http_caller: &HttpCaller,
    id: &str,
    range: (i64, i64),
    runs: i32,
) -> Result<Vec<pb::TokenRun>, Problem> {
    let ask = pb::ListTokenRunsRequest {
        conversation_id: id.to_owned(),
        first_message_id: range.0,
        last_message_id: range.1,
        runs,
    };
    let services = &http_caller.services;
    let listed = services.list_token_runs(http_caller.request(ask)).await?;
    Ok(listed.into_inner().runs)
}

/// Lists a page of checkpoints without their summaries, newest boundary first, those among them that
/// no longer hold.
pub(super) async fn list_checkpoints(
    http_caller: &HttpCaller,
    id: &str,
    page_token: String,
) -> Result<pb::ListCheckpointsResponse, Problem> {
    let ask = pb::ListCheckpointsRequest {
        conversation_id: id.to_owned(),
        page_size: 100,
        page_token,
        include_void: true,
    };
    let services = &http_caller.services;
    let listed = services.list_checkpoints(http_caller.request(ask)).await?;
    let (_, mut listed, reservation) = listed.into_parts();
    for checkpoint in &mut listed.checkpoints {
        checkpoint.summary = String::new();
    }
    // It is held until the summaries are gone.
    drop(reservation);
    Ok(listed)
}

/// Lists a page of eras, newest first.
pub(super) async fn list_cache_eras(
    http_caller: &HttpCaller,
    id: &str,
    page_size: i32,
    page_token: String,
) -> Result<pb::ListCacheErasResponse, Problem> {
    let ask = pb::ListCacheErasRequest {
        conversation_id: id.to_owned(),
        page_size,
        page_token,
    };
    let services = &http_caller.services;
    let listed = services.list_cache_eras(http_caller.request(ask)).await?;
    Ok(listed.into_inner())
}

/// Finds the newest checkpoint with this boundary, also one that no longer holds. Callers keep the
/// reservation while they hold its summary.
pub(super) async fn find_checkpoint(
    http_caller: &HttpCaller,
    id: &str,
    last: i64,
) -> Result<(Option<pb::Checkpoint>, Arc<Reservation>), Problem> {
    let id = parse::conversation_id(id).map_err(Failure::from)?;
    let state = &http_caller.services.state;
    let caller = http_caller.caller;
    let reserving = state
        .content_budget
        .reserve(caller.tenant(), SUMMARY_BYTES as u64);
    let reservation = reserving.await?;
    let found = state.store.find_checkpoint(caller, id, MessageId(last));
    let found = found.await.map_err(Failure::from)?;
    let bytes = found.as_ref().map_or(0, |it| it.summary.len());
    reservation.shrink(bytes as u64);
    Ok((found.map(|it| reply::checkpoint(id, it)), reservation))
}

/// Finds what is recorded of the contexts at a message. None: retention has deleted it, or there was
/// none.
pub(super) async fn find_context_at(
    http_caller: &HttpCaller,
    id: &str,
    message: i64,
) -> Result<Option<ContextAt>, Problem> {
    let id = parse::conversation_id(id).map_err(Failure::from)?;
    let store = &http_caller.services.state.store;
    let found = store.find_context_at(http_caller.caller, id, MessageId(message));
    Ok(found.await.map_err(Failure::from)?)
}

/// The tokens of the messages that a context did not read, one number for each entry of them.
pub(super) async fn unread_tokens(
    http_caller: &HttpCaller,
    conversation: &pb::Conversation,
    built: &pb::BuildContextResponse,
) -> Result<Vec<u64>, Problem> {
    let id = &conversation.conversation_id;
    let entries = built.manifest.iter().filter(|it| is_unread(it));
    let ranges: Vec<_> = entries
        .map(|it| (it.first_message_id, it.last_message_id))
        .collect();
    let Some((_, earlier)) = ranges.split_last() else {
        return Ok(Vec::new());
    };
    let read: u64 = built.manifest.iter().map(|it| it.original_tokens).sum();
    let total = conversation.token_total.unwrap_or_default().tokens;
    let mut left = total.saturating_sub(read);
    let mut unread = Vec::with_capacity(ranges.len());
    // Only with a separator are there several. The newest has what the others leave, so that its
    // messages need not be read.
    for (first, last) in earlier {
        let mut tokens = 0;
        for begin in (*first..=*last).step_by(MOST_MESSAGES as usize) {
            let end = (*last).min(begin.saturating_add(MOST_MESSAGES - 1));
            let runs = list_token_runs(http_caller, id, (begin, end), 1).await?;
            tokens += runs.iter().map(|run| run.tokens).sum::<u64>();
        }
        left = left.saturating_sub(tokens);
        unread.push(tokens);
    }
    unread.push(left);
    Ok(unread)
}
