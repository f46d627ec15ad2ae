//! Forks of conversations in tests.

use tonic::{Request, Status};

use crate::{TestApp, TestConversation, pb, with_longest_deadline};

impl<'a> TestConversation<'a> {
    /// Forks the conversation at this message; 0: at its newest.
    pub async fn fork(&self, message_id: i64) -> TestConversation<'a> {
        let ask = pb::ForkConversationRequest {
            message_id,
            ..Default::default()
        };
        let forked = self.try_fork(ask).await.expect("the fork is made");
        self.app.conversation_by_id(&forked.conversation_id)
    }

    /// ForkConversation with this request; the conversation's id is filled in.
    pub async fn try_fork(
        &self,
        ask: pb::ForkConversationRequest,
    ) -> Result<pb::Conversation, Status> {
        let ask: Request<_> = with_longest_deadline(pb::ForkConversationRequest {
            conversation_id: self.id.clone(),
            ..ask
        });
        let forked = self.app.conversations().fork_conversation(ask).await?;
        Ok(forked.into_inner())
    }
}

impl TestApp {
    /// The ids of the forks of the conversation with this id, in the order of the list.
    pub async fn forks_of(&self, conversation_id: &str) -> Vec<String> {
        let ask = pb::ListConversationsRequest {
            forked_from_conversation_id: conversation_id.to_owned(),
            ..Default::default()
        };
        let forks = self.list(ask).await;
        forks.into_iter().map(|fork| fork.conversation_id).collect()
    }
}
