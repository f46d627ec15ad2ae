//! `/undo`, `/redo`, `/edit`, `/retry`, `/alternatives` and `/choose`: they withdraw the newest
//! question together with what followed it, restore it, edit it, ask it again, or take another
//! answer.

use anneal_proto::{convert::message::text_message, v1 as pb};
use uuid::Uuid;

use super::{Chat, errors::ChatError, recent_messages::question_excerpt, turn::Prompt};
use crate::{change::messages_text, columns::clipped, sanitize::sanitize, terminal_size};

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

    /// Replaces the newest question by this text, and prints the answer to it. The server withdraws
    /// what stands after the question. If the last message was not stored, sends the text in its
    /// place.
    pub(super) async fn edit_question(&mut self, text: String) -> Result<(), ChatError> {
        if self.forget_unstored_message().await? {
            return self.send_message(text).await;
        }
        let question = self.find_newest_question().await?;
        self.begin_turn(Prompt::EditedQuestion {
            question_id: question.message.message_id,
            message: text_message(pb::Role::User, text),
            last_message_id: question.conversation.message_count,
        })
        .await
    }

    /// Prints another answer to the newest question. The server withdraws what stands after it.
    pub(super) async fn ask_again(&mut self) -> Result<(), ChatError> {
        let question = self.find_newest_question().await?;
        self.begin_turn(Prompt::SameQuestion {
            last_message_id: question.conversation.message_count,
        })
        .await
    }

    /// Lists the answers to the newest question.
    pub(super) async fn list_alternatives(&mut self) -> Result<(), ChatError> {
        let question = self.find_newest_question().await?;
        let alternatives = self.find_alternatives(&question).await?;
        let columns = terminal_size::size().columns;
        let page: String = alternatives
            .iter()
            .map(|alternative| alternative_row(alternative, &question, columns))
            .collect();
        Ok(self.screen.print_page(&page)?)
    }

    /// Makes an earlier answer to the newest question stand again.
    pub(super) async fn choose_alternative(&mut self, number: i32) -> Result<(), ChatError> {
        let question = self.find_newest_question().await?;
        let alternatives = self.find_alternatives(&question).await?;
        let Some(chosen) = alternatives
            .iter()
            .find(|alternative| alternative.number == number)
        else {
            return Err(format!("there is no answer {number}; /alternatives lists them").into());
        };
        if is_to_earlier_text(chosen, &question) {
            let answer = messages_text(&chosen.messages);
            return Err(format!(
                "answer {number} ({answer}) is to an earlier text of your message: it cannot be chosen, \
                 but `anneal restore` restores it"
            )
            .into());
        }
        let ask = pb::ChooseAlternativeRequest {
            conversation_id: question.conversation.conversation_id,
            request_id: Uuid::new_v4().to_string(),
            expected_last_message_id: Some(question.conversation.message_count),
            etag: question.conversation.etag,
            question_message_id: chosen.question_message_id,
            number,
        };
        self.client.chats().choose_alternative(ask).await?;
        self.pending_turn = None;
        self.undone.clear();
        Ok(self
            .screen
            .print_note(&format!("answer {number} stands again"))?)
    }

    /// The answers to a question, the one that stands last.
    async fn find_alternatives(
        &self,
        question: &Question,
    ) -> Result<Vec<pb::Alternative>, ChatError> {
        let ask = pb::GetMessageRequest {
            conversation_id: question.conversation.conversation_id.clone(),
            message_id: question.message.message_id,
            alternatives: true,
            ..Default::default()
        };
        let found = self.client.messages().get_message(ask).await?.into_inner();
        Ok(found.alternatives)
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

/// Whether the question was edited after this answer.
const fn is_to_earlier_text(answer: &pb::Alternative, question: &Question) -> bool {
    answer.question_version != question.message.version
}

/// An answer on one line. A star marks the one that stands.
fn alternative_row(alternative: &pb::Alternative, question: &Question, columns: usize) -> String {
    let mark = if alternative.current { '*' } else { ' ' };
    let stopped = if alternative.stopped {
        " (stopped)"
    } else {
        ""
    };
    let earlier = if is_to_earlier_text(alternative, question) {
        " (to an earlier text)"
    } else {
        ""
    };
    let text = sanitize(&alternative.text).replace('\n', " ");
    let head = format!("{mark} {}{stopped}{earlier}  ", alternative.number);
    let text = clipped(&text, columns.saturating_sub(head.chars().count()));
    format!("{head}{text}\n")
}
