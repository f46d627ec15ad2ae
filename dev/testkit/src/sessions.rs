//! Sessions and conversation lists in tests.

use tonic::Status;

use crate::{TestApp, TestConversation, pb};

/// The scope of a direct chat between this sender and the agent `main` in the channel `telegram`.
pub fn direct_scope(sender: &str) -> pb::SessionScope {
    pb::SessionScope {
        agent_id: "main".into(),
        channel: "telegram".into(),
        sender_id: sender.into(),
        ..Default::default()
    }
}

impl TestApp {
    /// ResolveSession of this scope, without settings for a new conversation (`defaults`).
    pub async fn resolve(&self, scope: &pb::SessionScope) -> Result<pb::Session, Status> {
        let ask = pb::ResolveSessionRequest {
            scope: Some(scope.clone()),
            ..Default::default()
        };
        Ok(self
            .conversations()
            .resolve_session(ask)
            .await?
            .into_inner())
    }

    /// RotateSession of this scope, without settings for the new conversation (`defaults`). An
    /// empty `request_id` means none.
    pub async fn rotate(
        &self,
        scope: &pb::SessionScope,
        request_id: &str,
    ) -> Result<pb::Session, Status> {
        let ask = pb::RotateSessionRequest {
            scope: Some(scope.clone()),
            request_id: request_id.into(),
            ..Default::default()
        };
        Ok(self.conversations().rotate_session(ask).await?.into_inner())
    }

    /// The conversation of a session.
    pub fn conversation_of(&self, session: &pb::Session) -> TestConversation<'_> {
        TestConversation::new(
            self,
            session
                .conversation
                .as_ref()
                .expect("a session has a conversation")
                .conversation_id
                .clone(),
        )
    }

    /// All conversations of a list, read page by page.
    pub async fn list(&self, ask: pb::ListConversationsRequest) -> Vec<pb::Conversation> {
        let (mut all, mut page_token) = (Vec::new(), String::new());
        loop {
            let ask = pb::ListConversationsRequest {
                page_token,
                ..ask.clone()
            };
            let page = self
                .conversations()
                .list_conversations(ask)
                .await
                .expect("the list is returned")
                .into_inner();
            all.extend(page.conversations);
            if page.next_page_token.is_empty() {
                return all;
            }
            page_token = page.next_page_token;
        }
    }
}
