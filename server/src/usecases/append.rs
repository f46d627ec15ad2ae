//! Appends messages: prepares them, checks the tenant's storage quota, stores them, and notifies
//! workers and watchers. If the conversation keeps no tool messages, the rest of an append is
//! stored.

use std::sync::Arc;

use anneal_core::{
    caller::{Caller, ConversationId},
    job::JobKind,
    message::{self, Message, MessageId},
};
use anneal_proto::v1 as pb;
use anneal_store::{Append, Appended, StoreError};

use crate::{
    failure::Failure,
    limits::{
        content_budget::{LONG_QUERY_BYTES, Reservation, run_on_blocking_thread},
        cpu_pool,
    },
    state::ServerState,
};

/// Messages to append.
pub(crate) struct AppendRequest {
    pub(crate) id: ConversationId,
    pub(crate) request_id: Option<String>,
    pub(crate) expected: Option<MessageId>,
    pub(crate) messages: Arc<[Message]>,
    /// The reservation for their content, if there is one.
    pub(crate) reservation: Option<Arc<Reservation>>,
}

/// Prepares an append: serialises the messages and computes digests and estimates. Long ones are
/// prepared on the CPU pool.
pub(crate) async fn prepare(
    state: &ServerState,
    caller: Caller,
    request: AppendRequest,
) -> Result<Append, Failure> {
    let AppendRequest {
        id,
        request_id,
        expected,
        messages,
        reservation,
    } = request;
    let is_long = is_long(&messages);
    let prepare_append = move || {
        let append = Append::new(id, request_id, expected, &messages);
        if let Some(reservation) = reservation {
            append.with_reservation(reservation)
        } else {
            append
        }
    };
    state
        .cpu
        .run_if(is_long, caller.tenant(), prepare_append)
        .await
}

/// Whether preparing the messages takes long, by bytes of content or number of parts.
fn is_long(messages: &[Message]) -> bool {
    let parts = || messages.iter().flat_map(|message| &message.parts);
    cpu_pool::is_long(parts().map(message::part_bytes).sum(), parts().count())
}

/// Stores a prepared append. Returns the id of each stored message, and which messages were
/// skipped.
pub(crate) async fn append(
    state: &ServerState,
    caller: Caller,
    append: &Append,
) -> Result<pb::AppendMessagesResponse, Failure> {
    state
        .storage_quota
        .admit(&state.store, caller, append)
        .await?;
    let appended = if let Some(appended) = store_kept_messages(state, caller, append).await? {
        appended
    } else {
        state.store.record_empty_append(caller, append).await?;
        Appended {
            messages: Vec::new(),
            replayed: false,
        }
    };
    let skipped = if appended.messages.len() < append.message_count() {
        find_skipped_messages(state, caller, append).await?
    } else {
        Vec::new()
    };
    let stored = appended.messages.iter().map(|message| pb::AppendedMessage {
        message_id: message.id.0,
        turn: message.turn,
        tokens: Some(pb::TokenCount {
            tokens: message.estimate.get(),
            estimated: true,
        }),
    });
    Ok(pb::AppendMessagesResponse {
        messages: stored.collect(),
        replayed: appended.replayed,
        skipped,
    })
}

/// Stores an append and notifies workers. In a conversation that keeps no tool messages, stores the
/// rest of it; None if nothing is left.
pub(crate) async fn store_kept_messages(
    state: &ServerState,
    caller: Caller,
    append: &Append,
) -> Result<Option<Appended>, Failure> {
    match store_and_notify(state, caller, append).await {
        Err(Failure::Store(StoreError::ToolsNotKept)) => {
            let (kept, rest) = remove_tools(state, caller, append).await?;
            if kept.is_empty() {
                return Ok(None);
            }
            store_and_notify(state, caller, &rest).await.map(Some)
        }
        appended => appended.map(Some),
    }
}

/// Removes what a conversation without tool messages does not keep. Returns the indexes of the
/// messages that are left, and an append of these.
pub(crate) async fn remove_tools(
    state: &ServerState,
    caller: Caller,
    append: &Append,
) -> Result<(Vec<usize>, Append), Failure> {
    let (append, is_long) = (append.clone(), is_long_append(append));
    let remove = move || {
        let (indexes, messages): (Vec<_>, Vec<_>) = append.without_tools()?.into_iter().unzip();
        Ok((indexes, append.with_messages(&messages)))
    };
    state.cpu.run_if(is_long, caller.tenant(), remove).await?
}

/// The indexes of the messages that a conversation without tool messages does not keep.
async fn find_skipped_messages(
    state: &ServerState,
    caller: Caller,
    append: &Append,
) -> Result<Vec<i32>, Failure> {
    let (append, is_long) = (append.clone(), is_long_append(append));
    let find = move || {
        let kept = append.without_tools()?;
        let is_skipped =
            |index: &usize| kept.binary_search_by_key(index, |(kept, _)| *kept).is_err();
        Ok((0..append.message_count())
            .filter(is_skipped)
            .map(|index| index as i32)
            .collect())
    };
    state.cpu.run_if(is_long, caller.tenant(), find).await?
}

fn is_long_append(append: &Append) -> bool {
    cpu_pool::is_long(append.content_bytes(), append.message_count())
}

/// Stores an append unchanged and notifies workers and watchers.
pub(crate) async fn store_and_notify(
    state: &ServerState,
    caller: Caller,
    append: &Append,
) -> Result<Appended, Failure> {
    let appended = if (append.content_bytes() as u64) < LONG_QUERY_BYTES {
        state.store.append(caller, append).await?
    } else {
        let (store, append) = (state.store.clone(), append.clone());
        run_on_blocking_thread(async move { store.append(caller, &append).await }).await?
    };
    if !appended.replayed && !appended.messages.is_empty() {
        state.storage_quota.record_append(caller, append).await;
        state.job_notifier.notify(&[JobKind::CountTokens]);
        state.watch_registry.hint(caller, append.conversation());
    }
    Ok(appended)
}
