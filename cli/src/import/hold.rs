//! Triggers of a conversation, off while a file with summaries of another system's is sent: a checkpoint that a worker makes
//! of its first half would reach further than the file's own summary, which then could be none.
//!
//! What they were is a label of the conversation meanwhile: whichever run comes to the end of the file puts them back.

use anneal_core::limits::{METADATA_BYTES, METADATA_KEYS};
use anneal_proto::v1 as pb;
use serde::{Deserialize, Serialize};
use tonic::Code;

use crate::client::{Client, patiently, refusal};

/// The label that says what the triggers were.
const LABEL: &str = "anneal.import.triggers";
/// Tokens that no tail has: the most that a policy takes.
const NEVER: u64 = i64::MAX as u64;
/// Times that a change is made anew because somebody else changed the conversation at the same moment.
const TRIES: u32 = 10;

/// What a policy says of triggers.
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
    /// Puts these into the policy, and returns those that were there.
    fn replace_in(self, policy: &mut pb::Policy) -> Self {
        Self {
            token_threshold: std::mem::replace(&mut policy.token_threshold, self.token_threshold),
            token_threshold_auto: std::mem::replace(&mut policy.token_threshold_auto, self.token_threshold_auto),
            token_threshold_below_window: std::mem::replace(
                &mut policy.token_threshold_below_window,
                self.token_threshold_below_window,
            ),
            max_message_count: std::mem::replace(&mut policy.max_message_count, self.max_message_count),
        }
    }
}

/// Whether an import has turned the conversation's triggers off.
pub(crate) fn is_held(conversation: &pb::Conversation) -> bool {
    conversation.metadata.contains_key(LABEL)
}

/// The conversation with its triggers off; as it is where no label has room any more.
pub(super) fn held(conversation: pb::Conversation) -> pb::Conversation {
    let mut held = released(conversation.clone());
    let mut policy = held.policy.take().unwrap_or_default();
    let off = Triggers { token_threshold: Some(NEVER), max_message_count: Some(0), ..Triggers::default() };
    let were = serde_json::to_string(&off.replace_in(&mut policy)).expect("numbers always serialise");
    let bytes: usize = held.metadata.iter().map(|(key, value)| key.len() + value.len()).sum();
    if held.metadata.len() >= METADATA_KEYS || bytes + LABEL.len() + were.len() > METADATA_BYTES {
        return conversation;
    }
    held.metadata.insert(LABEL.to_owned(), were);
    held.policy = Some(policy);
    held
}

/// The conversation with the triggers that it had.
pub(super) fn released(mut conversation: pb::Conversation) -> pb::Conversation {
    let Some(were) = conversation.metadata.remove(LABEL) else { return conversation };
    let mut policy = conversation.policy.take().unwrap_or_default();
    if policy.token_threshold == Some(NEVER) && policy.max_message_count == Some(0) {
        // A label that somebody has changed says nothing: then the server's own settings hold.
        serde_json::from_str::<Triggers>(&were).unwrap_or_default().replace_in(&mut policy);
    }
    conversation.policy = (policy != pb::Policy::default()).then_some(policy);
    conversation
}

/// Makes of the conversation what `wanted` makes of it, and returns it as it is then.
pub(super) async fn change(
    client: &Client,
    mut conversation: pb::Conversation,
    wanted: impl Fn(pb::Conversation) -> pb::Conversation,
) -> anyhow::Result<pb::Conversation> {
    for _ in 0..TRIES {
        let new = wanted(conversation.clone());
        let differs = [
            ("title", new.title != conversation.title),
            ("system_prompt", new.system_prompt != conversation.system_prompt),
            ("metadata", new.metadata != conversation.metadata),
            ("policy", new.policy != conversation.policy),
        ];
        let paths: Vec<String> =
            differs.iter().filter(|(_, differs)| *differs).map(|(path, _)| (*path).to_owned()).collect();
        if paths.is_empty() {
            return Ok(conversation);
        }
        let ask = pb::UpdateConversationRequest {
            etag: conversation.etag.clone(),
            conversation: Some(new),
            update_mask: Some(prost_types::FieldMask { paths }),
            request_id: String::new(),
        };
        match patiently(async || client.conversations().update_conversation(ask.clone()).await).await {
            Err(status) if status.code() == Code::Aborted => {
                conversation = find(client, &conversation.conversation_id).await?;
            }
            changed => return changed.map_err(|status| refusal(&status)),
        }
    }
    anyhow::bail!("conversation {} is changed by others all the time", conversation.conversation_id)
}

/// The conversation as it is now.
pub(crate) async fn find(client: &Client, id: &str) -> anyhow::Result<pb::Conversation> {
    let ask = pb::GetConversationRequest { conversation_id: id.to_owned() };
    let found = patiently(async || client.conversations().get_conversation(ask.clone()).await).await;
    found.map_err(|status| refusal(&status))
}
