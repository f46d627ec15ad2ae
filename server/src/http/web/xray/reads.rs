//! The RPCs that several of these pages call.

use anneal_proto::v1::{
    self as pb, context_service_server::ContextService as _,
    conversation_service_server::ConversationService as _,
};

use crate::http::{caller::HttpCaller, problem::Problem};

/// Most pages of checkpoints or eras that are searched for one of them.
const SEARCHED_PAGES: usize = 20;

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

/// Builds a context without effect.
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
    Ok(built.into_inner())
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

/// Lists a page of checkpoints, newest boundary first, those among them that no longer hold.
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
    Ok(listed.into_inner())
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

/// Finds the newest checkpoint up to this message. None: there is none among the newest 2,000.
pub(super) async fn find_checkpoint(
    http_caller: &HttpCaller,
    id: &str,
    last: i64,
) -> Result<Option<pb::Checkpoint>, Problem> {
    let mut page_token = String::new();
    for _ in 0..SEARCHED_PAGES {
        let page = list_checkpoints(http_caller, id, page_token).await?;
        let mut found = page.checkpoints.into_iter();
        if let Some(checkpoint) = found.find(|it| it.last_message_id <= last) {
            let is_here = checkpoint.last_message_id == last;
            return Ok(is_here.then_some(checkpoint));
        }
        page_token = page.next_page_token;
        if page_token.is_empty() {
            break;
        }
    }
    Ok(None)
}

/// Finds the newest era that began at this message or before. None: retention has deleted it, or it
/// is not among the newest 2,000.
pub(super) async fn find_era(
    http_caller: &HttpCaller,
    id: &str,
    message: i64,
) -> Result<Option<pb::CacheEra>, Problem> {
    let mut page_token = String::new();
    for _ in 0..SEARCHED_PAGES {
        let page = list_cache_eras(http_caller, id, 100, page_token).await?;
        let mut found = page.eras.into_iter();
        if let Some(era) = found.find(|era| era.at_message_id <= message) {
            return Ok(Some(era));
        }
        page_token = page.next_page_token;
        if page_token.is_empty() {
            break;
        }
    }
    Ok(None)
}
