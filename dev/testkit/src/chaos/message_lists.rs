//! Reads all messages of a conversation, page by page.

use pb::message_service_client::MessageServiceClient;
use tonic::{Response, transport::Channel};

use super::{campaign_state::CampaignState, history::RecordedConversation};
use crate::pb;

/// Most messages of a page.
const PAGE: i32 = 500;

/// The messages that this request lists, oldest first. The request needs no conversation and no
/// place. None if the conversation cannot be read, which is a finding.
pub(super) async fn list_messages(
    state: &CampaignState,
    conversation: &RecordedConversation,
    ask: pb::ListMessagesRequest,
) -> Option<Vec<pb::Message>> {
    let mut stored: Vec<pb::Message> = Vec::new();
    loop {
        let ask = pb::ListMessagesRequest {
            conversation_id: conversation.id.clone(),
            page_size: PAGE,
            after_message_id: stored.last().map_or(0, |message| message.message_id),
            ..ask.clone()
        };
        let list = |channel: Channel| {
            let ask = ask.clone();
            async move {
                MessageServiceClient::new(channel)
                    .list_messages(ask)
                    .await
                    .map(Response::into_inner)
            }
        };
        match state.call_with_retries("ListMessages", 0, list).await? {
            Ok(page) if page.messages.is_empty() => return Some(stored),
            Ok(page) => stored.extend(page.messages),
            Err(status) => {
                state.findings.add(
                    "durability",
                    format!("{} cannot be read: {status:?}", conversation.id),
                );
                return None;
            }
        }
    }
}
