//! Pauses the triggers of a conversation while a file with summaries is imported, so that the
//! worker makes no checkpoint. Such a checkpoint could cover more messages than a later summary of
//! the file, which then could not become a checkpoint itself.
//!
//! The previous triggers are kept in a label of the conversation. They are restored after the last
//! summary, at the end of the conversation, or when the import fails. If the process is killed
//! before, the next run restores them.

use anneal_core::limits::{METADATA_BYTES, METADATA_KEYS};
use anneal_proto::v1 as pb;
use serde::{Deserialize, Serialize};
use tonic::Code;

use crate::client::{Client, failed_call, get_conversation, retry};

/// The label with the previous triggers, as JSON.
const LABEL: &str = "anneal.import.triggers";
/// A token threshold that is never reached: the maximum of a policy.
const NEVER: u64 = i64::MAX as u64;
/// Attempts to change a conversation that others change at the same time.
const MAX_ATTEMPTS: u32 = 10;

/// The triggers of a policy: the thresholds at which the worker makes checkpoints.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
struct Triggers {
    #[serde(skip_serializing_if = "Option::is_none")]
    token_threshold: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    token_threshold_auto: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    token_threshold_below_window: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_message_count: Option<u32>,
}

impl Triggers {
    /// Replaces the triggers of the policy. Returns the previous ones.
    fn replace_in(self, policy: &mut pb::Policy) -> Self {
        Self {
            token_threshold: std::mem::replace(&mut policy.token_threshold, self.token_threshold),
            token_threshold_auto: std::mem::replace(
                &mut policy.token_threshold_auto,
                self.token_threshold_auto,
            ),
            token_threshold_below_window: std::mem::replace(
                &mut policy.token_threshold_below_window,
                self.token_threshold_below_window,
            ),
            max_message_count: std::mem::replace(
                &mut policy.max_message_count,
                self.max_message_count,
            ),
        }
    }
}

/// Whether an import has paused the triggers of the conversation.
pub(crate) fn are_triggers_paused(conversation: &pb::Conversation) -> bool {
    conversation.metadata.contains_key(LABEL)
}

/// The conversation with paused triggers. Unchanged if the label does not fit into its metadata.
pub(super) fn with_paused_triggers(conversation: pb::Conversation) -> pb::Conversation {
    // If the triggers are paused already, the label must keep those from before the first pause.
    let mut paused = with_restored_triggers(conversation.clone());
    let mut policy = paused.policy.take().unwrap_or_default();
    let off = Triggers {
        token_threshold: Some(NEVER),
        // 0: the number of messages does not matter.
        max_message_count: Some(0),
        ..Triggers::default()
    };
    let previous =
        serde_json::to_string(&off.replace_in(&mut policy)).expect("numbers always serialize");
    let bytes: usize = paused
        .metadata
        .iter()
        .map(|(key, value)| key.len() + value.len())
        .sum();
    if paused.metadata.len() >= METADATA_KEYS
        || bytes + LABEL.len() + previous.len() > METADATA_BYTES
    {
        return conversation;
    }
    paused.metadata.insert(LABEL.to_owned(), previous);
    paused.policy = Some(policy);
    paused
}

/// The conversation with its previous triggers, and without the label. Triggers that others have
/// changed since the pause stay as they are.
pub(super) fn with_restored_triggers(mut conversation: pb::Conversation) -> pb::Conversation {
    let Some(previous) = conversation.metadata.remove(LABEL) else {
        return conversation;
    };
    let mut policy = conversation.policy.take().unwrap_or_default();
    if policy.token_threshold == Some(NEVER) && policy.max_message_count == Some(0) {
        // If the label was changed and cannot be parsed, the server's settings apply.
        serde_json::from_str::<Triggers>(&previous)
            .unwrap_or_default()
            .replace_in(&mut policy);
    }
    conversation.policy = (policy != pb::Policy::default()).then_some(policy);
    conversation
}

/// Changes title, system prompt, labels and policy of the conversation as `change` does, and
/// returns the updated conversation. If others update it at the same time, applies `change` to the
/// result of their update.
pub(super) async fn update_conversation(
    client: &Client,
    mut conversation: pb::Conversation,
    change: impl Fn(pb::Conversation) -> pb::Conversation,
) -> anyhow::Result<pb::Conversation> {
    for _ in 0..MAX_ATTEMPTS {
        let new = change(conversation.clone());
        let fields = [
            ("title", new.title != conversation.title),
            (
                "system_prompt",
                new.system_prompt != conversation.system_prompt,
            ),
            ("metadata", new.metadata != conversation.metadata),
            ("policy", new.policy != conversation.policy),
        ];
        let paths: Vec<String> = fields
            .iter()
            .filter(|(_, differs)| *differs)
            .map(|(path, _)| (*path).to_owned())
            .collect();
        if paths.is_empty() {
            return Ok(conversation);
        }
        let ask = pb::UpdateConversationRequest {
            etag: conversation.etag.clone(),
            conversation: Some(new),
            update_mask: Some(prost_types::FieldMask { paths }),
            request_id: String::new(),
        };
        match retry(async || {
            client
                .conversations()
                .update_conversation(ask.clone())
                .await
        })
        .await
        {
            Err(status) if status.code() == Code::Aborted => {
                conversation = get_conversation(client, &conversation.conversation_id).await?;
            }
            updated => return updated.map_err(|status| failed_call(&status)),
        }
    }
    anyhow::bail!(
        "conversation {} was changed by others during each of {MAX_ATTEMPTS} attempts to update it",
        conversation.conversation_id
    )
}
