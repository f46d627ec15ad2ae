//! The conversation of a chat, as far as a turn needs it.

use std::collections::HashSet;

use anneal_core::{caller::ConversationId, limits::PAGE_MAX};
use anneal_proto::{
    convert::parse,
    v1::{
        self as pb, conversation_service_server::ConversationService as _,
        message_service_server::MessageService as _, part::Part,
    },
};

use super::{
    ids::{AnswerId, scope},
    labels,
};
use crate::http::{caller::HttpCaller, problem::Problem};

/// Most pages that are searched for a message by the client's id: 10,000 messages.
const SEARCHED_PAGES: usize = 20;
/// Newest messages among which the calls of the last answer are looked for.
const RECENT_MESSAGES: i32 = 50;

/// The conversation of a chat.
pub(super) struct StoredChat<'a> {
    pub(super) http_caller: &'a HttpCaller,
    /// The conversation's id.
    pub(super) id: String,
    pub(super) conversation: ConversationId,
    /// The id of the newest message; 0: there is none.
    pub(super) newest: i64,
}

/// A message that the client names.
pub(super) struct NamedMessage {
    /// The question that it is, or belongs to the answer of.
    pub(super) question: i64,
    /// Whether it is the question.
    pub(super) is_question: bool,
}

/// Finds the conversation of a chat, and creates it if there is none. Returns whether it was
/// created.
pub(super) async fn resolve<'a>(
    http_caller: &'a HttpCaller,
    (agent, chat): (&str, &str),
    user_id: Option<&String>,
) -> Result<(StoredChat<'a>, bool), Problem> {
    let ask = pb::ResolveSessionRequest {
        scope: Some(scope(http_caller.caller, agent, chat)),
        defaults: user_id.map(|user_id| pb::CreateConversationRequest {
            user_id: user_id.clone(),
            ..pb::CreateConversationRequest::default()
        }),
        ..pb::ResolveSessionRequest::default()
    };
    let session = http_caller
        .services
        .resolve_session(http_caller.request(ask))
        .await?
        .into_inner();
    let conversation = session.conversation.unwrap_or_default();
    let chat = StoredChat {
        http_caller,
        conversation: parse::conversation_id(&conversation.conversation_id)?,
        id: conversation.conversation_id,
        newest: conversation.message_count,
    };
    Ok((chat, session.created))
}

impl StoredChat<'_> {
    /// The newest messages that stand, newest first, with their content.
    pub(super) async fn list_newest(&self, most: i32) -> Result<Vec<pb::Message>, Problem> {
        let ask = pb::ListMessagesRequest {
            page_size: most,
            ..self.newest_first()
        };
        Ok(self.list(ask).await?.messages)
    }

    /// One message with its content.
    pub(super) async fn get_message(&self, message_id: i64) -> Result<pb::Message, Problem> {
        let ask = pb::GetMessageRequest {
            conversation_id: self.id.clone(),
            message_id,
            ..pb::GetMessageRequest::default()
        };
        let found = self
            .http_caller
            .services
            .get_message(self.http_caller.request(ask))
            .await?
            .into_inner();
        Ok(found.message.unwrap_or_default())
    }

    /// The newest message of the user that stands. None: there is none among the searched ones.
    pub(super) async fn find_newest_question(&self) -> Result<Option<i64>, Problem> {
        let is_question = |message: &pb::Message| {
            (message.role() == pb::Role::User).then_some(message.message_id)
        };
        self.search(is_question).await
    }

    /// Finds the message that has this id in the client: an answer of this server by the id that
    /// the server gave it, other messages by their label. None: it is not found.
    pub(super) async fn find_by_client_id(
        &self,
        id: &str,
    ) -> Result<Option<NamedMessage>, Problem> {
        let answer = AnswerId::parse(id);
        if let Some(answer) = answer.filter(|answer| answer.conversation == self.conversation) {
            return Ok(Some(NamedMessage {
                question: answer.question,
                is_question: false,
            }));
        }
        let mut is_answer = false;
        let question_of = |message: &pb::Message| {
            let is_named = label(message, labels::ID) == Some(id);
            match message.role() {
                pb::Role::User if is_named || is_answer => Some(NamedMessage {
                    question: message.message_id,
                    is_question: is_named,
                }),
                pb::Role::Assistant if is_named => {
                    is_answer = true;
                    None
                }
                _ => None,
            }
        };
        self.search(question_of).await
    }

    /// The calls of the newest answer that have no result. `own`: the id of the message of the user
    /// that the request has: what an earlier try of the request has stored does not count.
    pub(super) async fn find_open_calls(&self, own: &str) -> Result<HashSet<String>, Problem> {
        Ok(open_calls(&self.list_newest(RECENT_MESSAGES).await?, own))
    }

    /// Whether the import of a history was broken off.
    pub(super) async fn check_import_is_open(&self) -> Result<bool, Problem> {
        let ask = pb::ListMessagesRequest {
            page_size: 1,
            without_content: true,
            ..self.newest_first()
        };
        let newest = self.list(ask).await?.messages;
        Ok(newest
            .first()
            .is_some_and(|newest| label(newest, labels::HISTORY) == Some(labels::UNFINISHED)))
    }

    /// Searches the messages that stand, newest first, without their content.
    async fn search<T>(
        &self,
        mut find: impl FnMut(&pb::Message) -> Option<T>,
    ) -> Result<Option<T>, Problem> {
        let mut ask = pb::ListMessagesRequest {
            page_size: PAGE_MAX as i32,
            without_content: true,
            ..self.newest_first()
        };
        for _ in 0..SEARCHED_PAGES {
            let page = self.list(ask.clone()).await?;
            let found = page.messages.iter().find_map(&mut find);
            if found.is_some() || page.next_page_token.is_empty() {
                return Ok(found);
            }
            ask.page_token = page.next_page_token;
        }
        Ok(None)
    }

    fn newest_first(&self) -> pb::ListMessagesRequest {
        pb::ListMessagesRequest {
            conversation_id: self.id.clone(),
            newest_first: true,
            ..pb::ListMessagesRequest::default()
        }
    }

    async fn list(
        &self,
        ask: pb::ListMessagesRequest,
    ) -> Result<pb::ListMessagesResponse, Problem> {
        let listed = self
            .http_caller
            .services
            .list_messages(self.http_caller.request(ask))
            .await?;
        Ok(listed.into_inner())
    }
}

/// A label of a stored message.
pub(super) fn label<'a>(message: &'a pb::Message, name: &str) -> Option<&'a str> {
    message.metadata.get(name).map(String::as_str)
}

/// The calls of the newest answer that have no result, among messages with the newest first.
fn open_calls(newest_first: &[pb::Message], own: &str) -> HashSet<String> {
    let is_own = |message: &pb::Message| label(message, labels::ID) == Some(own);
    let first = newest_first.iter().rposition(is_own);
    let before = newest_first.iter().skip(first.map_or(0, |index| index + 1));
    let mut answered = HashSet::new();
    for message in before {
        match message.role() {
            pb::Role::Tool => answered.extend(message.parts.iter().filter_map(result_id)),
            pb::Role::Assistant => {
                let calls = message.parts.iter().filter_map(call_id);
                return calls.filter(|id| !answered.contains(id)).collect();
            }
            pb::Role::User | pb::Role::System | pb::Role::Unspecified => break,
        }
    }
    HashSet::new()
}

fn call_id(part: &pb::Part) -> Option<String> {
    match &part.part {
        Some(Part::ToolUse(call)) => Some(call.id.clone()),
        _ => None,
    }
}

fn result_id(part: &pb::Part) -> Option<String> {
    match &part.part {
        Some(Part::ToolResult(result)) => Some(result.tool_use_id.clone()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(role: pb::Role, own: &str, parts: Vec<Part>) -> pb::Message {
        pb::Message {
            role: role.into(),
            parts: parts
                .into_iter()
                .map(|part| pb::Part { part: Some(part) })
                .collect(),
            metadata: labels::labels([(labels::ID, own.to_owned())]),
            ..pb::Message::default()
        }
    }

    fn call(id: &str) -> Part {
        Part::ToolUse(pb::ToolUsePart {
            id: id.into(),
            ..pb::ToolUsePart::default()
        })
    }

    fn result(id: &str) -> Part {
        Part::ToolResult(pb::ToolResultPart {
            tool_use_id: id.into(),
            ..pb::ToolResultPart::default()
        })
    }

    #[test]
    fn open_calls_are_those_before_the_request_without_a_result() {
        let calls = || message(pb::Role::Assistant, "a", vec![call("1"), call("2")]);
        let open = |messages: &[pb::Message]| {
            let mut open: Vec<String> = open_calls(messages, "u2").into_iter().collect();
            open.sort();
            open
        };
        assert_eq!(open(&[calls()]), ["1", "2"]);
        let one_result = message(pb::Role::Tool, "", vec![result("1")]);
        assert_eq!(open(&[one_result, calls()]), ["2"]);
        let asked = message(pb::Role::User, "u1", Vec::new());
        assert!(open(&[asked, calls()]).is_empty(), "the user has gone on");
        let repeated = [
            message(pb::Role::Assistant, "", vec![call("3")]),
            message(pb::Role::User, "u2", Vec::new()),
            message(pb::Role::Tool, "u2", vec![result("1"), result("2")]),
            calls(),
        ];
        assert_eq!(
            open(&repeated),
            ["1", "2"],
            "a repeated request sends the same"
        );
    }
}
