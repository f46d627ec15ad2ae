//! `/undo`, `/redo`, `/edit` and `/retry`: they withdraw the newest question together with what
//! followed it, restore it, or ask it again.

use anneal_proto::v1 as pb;
use uuid::Uuid;

use super::{Chat, errors::ChatError, recent_messages::question_excerpt};
use crate::{change::messages_text, terminal_size};

/// Messages per page of the search for the newest question. Many calls and results may follow it.
const SEARCH_PAGE: i32 = 50;

/// The newest question, and the conversation in which it was found.
struct Question {
    /// The question, without its parts.
    message: pb::Message,
    conversation: pb::Conversation,
}

impl Chat {
    /// Withdraws the newest question and everything after it, and prints the question. If the last
    /// message was not stored, only forgets that one.
    pub(super) async fn undo(&mut self) -> Result<(), ChatError> {
        if self.forget_unstored_message().await? {
            return Ok(self.screen.print_note(
                "your last message was not stored, so nothing was withdrawn; /undo again withdraws \
                 the one before it",
            )?);
        }
        let question = self.find_newest_question().await?;
        let excerpt = question_excerpt(
            &self.client,
            &question.conversation.conversation_id,
            &question.message,
            terminal_size::size().columns,
        )
        .await?;
        self.withdraw_question(&question).await?;
        self.screen
            .print_note("/redo restores them; your next message takes their place")?;
        Ok(self.screen.print_page(&excerpt)?)
    }

    /// Restores the messages that the last /undo has withdrawn.
    pub(super) async fn redo(&mut self) -> Result<(), ChatError> {
        let Some(ranges) = self.undone.last().cloned() else {
            return Err(
                "nothing was undone since your last message; `anneal restore` restores older messages"
                    .to_owned()
                    .into(),
            );
        };
        let conversation_id = self.target.id()?;
        for range in &ranges {
            let ask = pb::RestoreMessagesRequest {
                conversation_id: conversation_id.clone(),
                request_id: Uuid::new_v4().to_string(),
                range: Some(*range),
                ..Default::default()
            };
            self.client.messages().restore_messages(ask).await?;
        }
        self.undone.pop();
        self.refresh_title().await;
        Ok(self
            .screen
            .print_note(&format!("restored: {}", messages_text(&ranges)))?)
    }

    /// Withdraws the newest question and everything after it, and sends this text instead. If the
    /// last message was not stored, nothing is to be withdrawn.
    pub(super) async fn edit_question(&mut self, text: String) -> Result<(), ChatError> {
        if !self.forget_unstored_message().await? {
            let question = self.find_newest_question().await?;
            self.withdraw_question(&question).await?;
        }
        self.send_message(text).await
    }

    /// Withdraws the newest question and everything after it, and sends the same question again.
    pub(super) async fn ask_again(&mut self) -> Result<(), ChatError> {
        let question = self.find_newest_question().await?;
        let ask = pb::GetMessageRequest {
            conversation_id: question.conversation.conversation_id.clone(),
            message_id: question.message.message_id,
            ..Default::default()
        };
        let found = self.client.messages().get_message(ask).await?.into_inner();
        let whole = found.message.unwrap_or_default();
        self.withdraw_question(&question).await?;
        self.send(pb::NewMessage {
            role: pb::Role::User.into(),
            parts: whole.parts,
            metadata: whole.metadata,
        })
        .await
    }

    /// The newest message of a user that stands.
    async fn find_newest_question(&self) -> Result<Question, ChatError> {
        let conversation_id = self.target.id()?;
        let ask = pb::GetConversationRequest {
            conversation_id: conversation_id.clone(),
        };
        let conversation = self
            .client
            .conversations()
            .get_conversation(ask)
            .await?
            .into_inner();
        let mut page_token = String::new();
        loop {
            let ask = pb::ListMessagesRequest {
                conversation_id: conversation_id.clone(),
                page_size: SEARCH_PAGE,
                page_token,
                newest_first: true,
                without_content: true,
                ..Default::default()
            };
            let page = self
                .client
                .messages()
                .list_messages(ask)
                .await?
                .into_inner();
            let question = page
                .messages
                .into_iter()
                .find(|message| message.role() == pb::Role::User);
            if let Some(message) = question {
                return Ok(Question {
                    message,
                    conversation,
                });
            }
            if page.next_page_token.is_empty() {
                return Err("this conversation has no question".to_owned().into());
            }
            page_token = page.next_page_token;
        }
    }

    /// Withdraws the question and everything after it, unless somebody has changed the conversation
    /// since the question was found.
    async fn withdraw_question(&mut self, question: &Question) -> Result<(), ChatError> {
        let ask = pb::RewindRequest {
            conversation_id: question.conversation.conversation_id.clone(),
            request_id: Uuid::new_v4().to_string(),
            expected_last_message_id: Some(question.conversation.message_count),
            etag: question.conversation.etag.clone(),
            after_message_id: question.message.message_id - 1,
            ..Default::default()
        };
        let change = self.client.messages().rewind(ask).await?.into_inner();
        self.pending_turn = None;
        self.refresh_title().await;
        self.screen
            .print_note(&format!("withdrawn: {}", messages_text(&change.changed)))?;
        self.undone.push(change.changed);
        Ok(())
    }
}
