//! ForkConversation.

use anneal_core::{
    caller::{Bound, Caller},
    job::JobKind,
    limits::{FORK_MESSAGES, TITLE_BYTES},
    message::MessageId,
};
use anneal_proto::{convert::parse, v1 as pb};
use anneal_store::{ForkAsk, StoreError};

use crate::{
    failure::Failure,
    reply::{self, GivenFields},
    state::ServerState,
};

/// Creates a conversation that begins with copies of another one's messages. Calls with the same
/// request id return the same fork.
pub(crate) async fn fork_conversation(
    state: &ServerState,
    caller: Caller,
    ask: pb::ForkConversationRequest,
) -> Result<pb::Conversation, Failure> {
    if let Some(Bound::Conversation(_)) = caller.bound() {
        return Err(Failure::CredentialBound);
    }
    let (title, metadata) = (ask.title.clone(), ask.metadata.clone());
    let fork = parse_fork(ask)?;
    state
        .storage_quota
        .admit_fork(&state.store, caller, &fork)
        .await?;
    let made = state.store.fork_conversation(caller, &fork).await;
    let forked = made.map_err(fork_failure)?;
    if !forked.replayed {
        let stored = (forked.added.messages, forked.added.content_bytes);
        state.storage_quota.record_bytes(caller, stored).await;
        state.job_notifier.notify(&[JobKind::CountTokens]);
    }
    let given = GivenFields {
        title: title.as_deref(),
        metadata: Some(&metadata),
        ..GivenFields::default()
    };
    Ok(reply::conversation_for(caller, forked.conversation, &given))
}

fn parse_fork(ask: pb::ForkConversationRequest) -> Result<ForkAsk, Failure> {
    let message = parse::message_id_or_zero("message_id", ask.message_id)?;
    if let Some(title) = &ask.title {
        parse::bounded_text("title", title, TITLE_BYTES)?;
    }
    let metadata = parse::metadata("metadata", ask.metadata)?;
    Ok(ForkAsk {
        source: parse::conversation_id(&ask.conversation_id)?,
        message: (message != MessageId::NONE).then_some(message),
        title: ask.title,
        metadata: (!metadata.is_empty()).then_some(metadata),
        request_id: parse::request_id(&ask.request_id)?.map(str::to_owned),
    })
}

/// The failure for an error of the store. If the error is about the message up to which a fork was
/// asked for, the failure names that field.
fn fork_failure(error: StoreError) -> Failure {
    match error {
        StoreError::UnknownMessage(_) => Failure::NamedMessage {
            field: "message_id".to_owned(),
            error,
        },
        StoreError::TooManyMessages => Failure::limit("message_id", FORK_MESSAGES, "messages"),
        other => other.into(),
    }
}
