//! Appends messages: prepares them, checks the tenant's storage quota, stores them, and notifies
//! workers and watchers.

use std::sync::Arc;

use anneal_core::{
    caller::{Caller, ConversationId},
    job::JobKind,
    message::{self, Message, MessageId},
};
use anneal_proto::v1 as pb;
use anneal_store::{Append, Appended, ModelLease};

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
    /// The append fails unless this is the newest message. None: not checked.
    pub(crate) expected: Option<MessageId>,
    pub(crate) messages: Arc<[Message]>,
    /// The reservation for their content, if there is one.
    pub(crate) reservation: Option<Arc<Reservation>>,
}

/// Counts of at most this many bytes are made on the async thread. The slowest known text takes
/// 0.7 µs for each byte to count: 3 ms. Ordinary text of this length takes about 0.3 ms.
const SHORT_COUNT_BYTES: usize = 4 * 1024;

/// Prepares an append: checks the messages' sizes, serializes them, counts or estimates their
/// tokens, and computes digests. Long ones are prepared on the CPU pool.
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
    check_sizes(state, &messages)?;
    let (bytes, parts) = size(&messages);
    let counted_in = (bytes <= state.store.max_counted_append_bytes())
        .then(|| state.conversation_encodings.expected(id));
    let is_long = cpu_pool::is_long(bytes, parts)
        || counted_in.is_some_and(|encoding| bytes > SHORT_COUNT_BYTES || !encoding.is_loaded());
    let prepare_append = move || {
        let append = Append::new(id, request_id, expected, &messages, counted_in);
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

/// Fails if a message has more text than the settings allow.
pub(crate) fn check_sizes(state: &ServerState, messages: &[Message]) -> Result<(), Failure> {
    let settings = state.settings.get();
    let is_too_large = |message: &Message| settings.limits.is_too_large(message);
    match messages.iter().position(is_too_large) {
        Some(index) => Err(Failure::limit(
            format!("messages[{index}]"),
            settings.limits.message_bytes(),
            "bytes",
        )),
        None => Ok(()),
    }
}

/// The bytes of the messages' content, and the number of its parts.
pub(crate) fn size(messages: &[Message]) -> (usize, usize) {
    let parts = || messages.iter().flat_map(|message| &message.parts);
    (parts().map(message::part_bytes).sum(), parts().count())
}

/// Stores a prepared append, if the tenant's storage quota allows it. Returns id, turn and tokens
/// of each stored message, and which messages were skipped.
pub(crate) async fn append(
    state: &ServerState,
    caller: Caller,
    append: &Append,
) -> Result<pb::AppendMessagesResponse, Failure> {
    state
        .storage_quota
        .admit(&state.store, caller, append)
        .await?;
    let appended = store_and_notify(state, caller, append).await?;
    let stored = appended.messages.iter().map(|message| pb::AppendedMessage {
        message_id: message.id.0,
        turn: message.turn,
        tokens: Some(pb::TokenCount {
            tokens: message.tokens.get(),
            estimated: !message.is_counted,
        }),
    });
    let skipped = appended.skipped.iter().map(|index| *index as i32);
    Ok(pb::AppendMessagesResponse {
        messages: stored.collect(),
        replayed: appended.replayed,
        skipped: skipped.collect(),
    })
}

/// Stores an append, without the tool messages if the conversation keeps none. Adds it to the
/// tenant's cached usage, and notifies workers and watchers.
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
    record_and_notify(state, caller, append, &appended).await;
    Ok(appended)
}

/// Stores the answer of a turn as [`store_and_notify`] stores an append, if the turn still has its
/// lease. None: it has lost the lease, and nothing is stored. `stopped`: the answer was stopped
/// before its end.
pub(crate) async fn store_answer_and_notify(
    state: &ServerState,
    caller: Caller,
    append: &Append,
    lease: &ModelLease,
    stopped: bool,
) -> Result<Option<Appended>, Failure> {
    let appended = if (append.content_bytes() as u64) < LONG_QUERY_BYTES {
        state
            .store
            .append_answer(caller, append, lease, stopped)
            .await?
    } else {
        let (store, append, lease) = (state.store.clone(), append.clone(), lease.clone());
        run_on_blocking_thread(async move {
            store.append_answer(caller, &append, &lease, stopped).await
        })
        .await?
    };
    if let Some(appended) = &appended {
        record_and_notify(state, caller, append, appended).await;
    }
    Ok(appended)
}

/// Adds what an append has stored to the tenant's cached usage, and notifies workers and watchers.
async fn record_and_notify(
    state: &ServerState,
    caller: Caller,
    append: &Append,
    appended: &Appended,
) {
    if appended.replayed || appended.messages.is_empty() {
        return;
    }
    state.storage_quota.record_append(caller, appended).await;
    state.conversation_encodings.record(append, appended);
    if appended.has_work {
        state.job_notifier.notify(&[JobKind::CountTokens]);
    }
    state.watch_registry.hint(caller, append.conversation());
}
