//! Branches of a session: a conversation that begins like an earlier one of the file is made as a
//! fork of it, so that the common messages are stored once more without being sent.

use std::{collections::HashMap, time::Duration};

use anneal_core::limits::{DEADLINE_MAX_SECONDS, FORK_MESSAGES};
use anneal_formats::Head;
use anneal_proto::v1 as pb;
use tonic::{Request, Status};
use tonic_types::StatusExt as _;

use super::stored_ids::StoredIds;
use crate::client::{Client, failed_call, get_conversation, retry};

/// The imported conversations from which others of the file may lead off, by their numbers in the
/// file.
#[derive(Debug, Default)]
pub(super) struct BranchSources(HashMap<usize, BranchSource>);

/// An imported conversation from which others of the file may lead off.
#[derive(Debug)]
pub(super) struct BranchSource {
    pub(super) conversation_id: String,
    pub(super) stored_ids: StoredIds,
}

/// The place at which a branch leads off from a stored conversation.
struct ForkPoint<'s> {
    conversation_id: &'s str,
    message_id: i64,
}

impl BranchSources {
    /// Adds the conversation with this number in the file.
    pub(super) fn add(&mut self, number: usize, source: BranchSource) {
        self.0.insert(number, source);
    }

    /// Where the conversation with this head leads off. None: it is no branch, or nothing that it
    /// shares is stored, or too much for a fork.
    fn fork_point(&self, head: &Head) -> Option<ForkPoint<'_>> {
        let shared = head.shared?;
        let source = self.0.get(&shared.conversation)?;
        // The import of the source may have ended before: then its messages differ from the file.
        if source.stored_ids.position() < shared.messages {
            return None;
        }
        let message_id = source.stored_ids.last_stored(shared.messages);
        (1..=FORK_MESSAGES as i64)
            .contains(&message_id)
            .then_some(ForkPoint {
                conversation_id: &source.conversation_id,
                message_id,
            })
    }

    /// Creates a conversation of the file, or finds the one that an earlier run has created.
    pub(super) async fn create_or_find(
        &self,
        client: &Client,
        head: &Head,
        create: pb::CreateConversationRequest,
    ) -> anyhow::Result<pb::Conversation> {
        let created = match self.fork_point(head) {
            Some(point) => {
                // No title and no labels: they may change when the file grows, and an equal request
                // finds the fork of an earlier run.
                let fork = pb::ForkConversationRequest {
                    conversation_id: point.conversation_id.to_owned(),
                    request_id: create.request_id,
                    message_id: point.message_id,
                    ..Default::default()
                };
                retry(async || {
                    let mut request = Request::new(fork.clone());
                    request.set_timeout(Duration::from_secs(DEADLINE_MAX_SECONDS));
                    client.conversations().fork_conversation(request).await
                })
                .await
            }
            None => {
                retry(async || {
                    client
                        .conversations()
                        .create_conversation(create.clone())
                        .await
                })
                .await
            }
        };
        match created {
            Ok(conversation) => Ok(conversation),
            // An earlier run has created it by the other call: it read other branches of the file.
            Err(status) => match created_before(&status) {
                Some(id) => get_conversation(client, &id).await,
                None => Err(failed_call(&status)),
            },
        }
    }
}

/// The conversation that the request id of a refused call has created earlier.
fn created_before(status: &Status) -> Option<String> {
    let details = status.get_error_details();
    let info = details
        .error_info()
        .filter(|info| info.reason == "REQUEST_ID_REUSED")?;
    info.metadata.get("conversation_id").cloned()
}

#[cfg(test)]
mod tests {
    use anneal_formats::SharedBeginning;

    use super::*;

    fn branch(conversation: usize, messages: u64) -> Head {
        Head {
            shared: Some(SharedBeginning {
                conversation,
                messages,
                items: messages,
            }),
            ..Head::default()
        }
    }

    #[test]
    fn a_branch_leads_off_after_the_last_common_message_that_is_stored() {
        let mut stored_ids = StoredIds::default();
        for stored_count in [0, 1, 0, 1] {
            stored_ids.advance(stored_count);
        }
        let mut sources = BranchSources::default();
        sources.add(
            7,
            BranchSource {
                conversation_id: "c".into(),
                stored_ids,
            },
        );
        let message_id = |head: &Head| sources.fork_point(head).map(|point| point.message_id);
        assert_eq!(message_id(&Head::default()), None);
        assert_eq!(message_id(&branch(6, 4)), None, "not imported");
        assert_eq!(message_id(&branch(7, 1)), None, "nothing of it is stored");
        assert_eq!(message_id(&branch(7, 2)), Some(1));
        assert_eq!(message_id(&branch(7, 3)), Some(1));
        assert_eq!(message_id(&branch(7, 4)), Some(2));
        assert_eq!(message_id(&branch(7, 5)), None, "the import ended before");
    }
}
