//! The checkpoints of a conversation as items. Each stands after the items of the last message that
//! its summary replaces.

use anneal_core::{caller::ConversationId, message::MessageId};
use anneal_proto::v1::{self as pb, context_service_server::ContextService as _};
use tonic::Status;

use crate::http::{
    caller::HttpCaller,
    openai::{
        errors::ApiError,
        ids::{CHECKPOINT_INDEX, ItemId, ItemKind},
        items::{Compaction, SealKey, StoredItem},
        sealing,
    },
};

/// Most checkpoints that are looked at: the newest ones.
const CHECKPOINTS: i32 = 500;

/// The newest checkpoints of a conversation whose last messages are between these, newest first.
/// `refuse` makes the error of a call that fails.
pub(in crate::http::openai) async fn list_checkpoints(
    caller: &HttpCaller,
    conversation: ConversationId,
    (first, last): (i64, i64),
    refuse: impl Fn(&Status) -> ApiError,
) -> Result<Vec<StoredItem>, ApiError> {
    let ask = pb::ListCheckpointsRequest {
        conversation_id: conversation.to_string(),
        page_size: CHECKPOINTS,
        ..pb::ListCheckpointsRequest::default()
    };
    let listed = caller.services.list_checkpoints(caller.request(ask)).await;
    let (_, listed, _reservation) = listed.map_err(|status| refuse(&status))?.into_parts();
    let checkpoints = listed.checkpoints.into_iter().filter(|checkpoint| {
        checkpoint.valid && (first..=last).contains(&checkpoint.last_message_id)
    });
    let checkpoints: Vec<pb::Checkpoint> = checkpoints.collect();
    if checkpoints.is_empty() {
        return Ok(Vec::new());
    }
    let key = sealing::read_key(caller).await?;
    let items = checkpoints
        .iter()
        .map(|checkpoint| item_of_checkpoint(conversation, checkpoint, &key));
    Ok(items.collect())
}

/// The checkpoint with this id. None: there is none.
pub(in crate::http::openai) async fn find_checkpoint(
    caller: &HttpCaller,
    id: &ItemId,
    refuse: impl Fn(&Status) -> ApiError,
) -> Result<Option<StoredItem>, ApiError> {
    let place = (id.message.0, id.message.0);
    let found = list_checkpoints(caller, id.conversation, place, refuse).await?;
    Ok(found.into_iter().find(|item| item.id == *id))
}

/// A checkpoint as an item.
fn item_of_checkpoint(
    conversation: ConversationId,
    checkpoint: &pb::Checkpoint,
    key: &SealKey,
) -> StoredItem {
    let id = ItemId {
        kind: ItemKind::Compaction,
        conversation,
        message: MessageId(checkpoint.last_message_id),
        index: CHECKPOINT_INDEX,
    };
    let (summary, model) = (checkpoint.summary.clone(), checkpoint.model.clone());
    StoredItem {
        id,
        parts: 0..0,
        value: Compaction::seal(summary, model, key).item(&id.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    #[test]
    fn a_checkpoint_is_a_compaction_that_can_be_sent_back() {
        let checkpoint = pb::Checkpoint {
            last_message_id: 12,
            summary: "All went well.".into(),
            model: "extractive".into(),
            ..pb::Checkpoint::default()
        };
        let key = SealKey([7; 32]);
        let shown = item_of_checkpoint(ConversationId(Uuid::nil()), &checkpoint, &key);
        assert_eq!(ItemId::parse(&shown.id.to_string()), Some(shown.id));
        assert_eq!(shown.id.message, MessageId(12));
        assert_eq!(shown.value["created_by"], "extractive");
        let encrypted = shown.value["encrypted_content"]
            .as_str()
            .unwrap_or_default();
        let opened = Compaction::open(encrypted, &key, "input").expect("is sealed");
        assert_eq!(opened.summary(), "All went well.");
    }
}
