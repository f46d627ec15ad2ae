//! Edits a message: counts its new content, checks the tenant's storage quota, stores it, and
//! notifies workers and watchers.

use anneal_core::{
    caller::{Caller, ConversationId},
    message::{self, Message, MessageId},
};
use anneal_store::{
    ChangeConditions, Labels, MessageChange, MessageEdit, NewContent, StoreError, ToolPairs,
};

use crate::{
    failure::Failure, limits::cpu_pool, state::ServerState, usecases::change_messages::announce,
};

/// A message to edit.
pub(crate) struct EditRequest {
    pub(crate) request_id: Option<String>,
    pub(crate) conditions: ChangeConditions,
    pub(crate) message_id: MessageId,
    /// The new content. Its role must be that of the message.
    pub(crate) new: Message,
    pub(crate) labels: Labels,
    /// Whether the new content has all calls and results that the message has.
    pub(crate) pairs: ToolPairs,
    /// The edit fails unless this version stands. None: not checked.
    pub(crate) expected_version: Option<i32>,
}

/// Edits a message. Its new content is counted exactly, on the CPU pool if it is long.
pub(crate) async fn edit(
    state: &ServerState,
    caller: Caller,
    id: ConversationId,
    request: EditRequest,
) -> Result<MessageChange, Failure> {
    let settings = state.settings.get();
    if settings.limits.is_too_large(&request.new) {
        let most = settings.limits.message_bytes();
        return Err(Failure::limit("message", most, "bytes"));
    }
    // Its encoding, which never changes.
    let conversation = state.store.get_conversation(caller, id).await?;
    let encoding = conversation.attributes.encoding;
    let EditRequest {
        request_id,
        conditions,
        message_id,
        new,
        labels,
        pairs,
        expected_version,
    } = request;
    let bytes = new.parts.iter().map(message::part_bytes).sum();
    let is_long = cpu_pool::is_long_count(encoding, bytes, new.parts.len());
    let prepare = move || NewContent::new(&new, labels, encoding);
    let edit = MessageEdit {
        message: message_id,
        new: state.cpu.run_if(is_long, caller.tenant(), prepare).await?,
        pairs,
        expected_version,
        conditions,
        request_id,
    };
    let stored = (0, edit.new.content_bytes() as u64);
    let is_repeated = state.store.is_repeated_edit(caller, id, &edit);
    state
        .storage_quota
        .admit_bytes(&state.store, caller, stored, is_repeated)
        .await?;
    let change = state
        .store
        .edit_message(caller, id, &edit)
        .await
        .map_err(edit_failure)?;
    if change.id > 0 && !change.replayed {
        state.storage_quota.record_bytes(caller, stored).await;
    }
    announce(state, caller, id, &change);
    Ok(change)
}

/// The failure for an error of the store. It names the field of the request that is at fault.
fn edit_failure(error: StoreError) -> Failure {
    let named = |field: &str, error| Failure::NamedMessage {
        field: field.to_owned(),
        error,
    };
    match error {
        StoreError::UnknownMessage(_) | StoreError::MessageWithdrawn(_) => {
            named("message_id", error)
        }
        StoreError::OtherRole => {
            Failure::invalid("message.role", "must be the role that the message has")
        }
        StoreError::OtherToolCalls => Failure::invalid(
            "message.parts",
            "must have the tool calls or results that the message has, with the same ids",
        ),
        StoreError::ToolCallMissing(_) => named("message.parts", error),
        _ => error.into(),
    }
}
