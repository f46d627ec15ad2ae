//! Keeps the history that a client brings to a chat of which the server knows nothing. It is stored
//! in appends of at most 100 messages. If they are broken off, the next request goes on: each
//! append has the same request id again.

use anneal_core::limits::MESSAGES_PER_APPEND;
use anneal_proto::v1::{self as pb, message_service_server::MessageService as _};

use super::{ids::request_id_of_history, labels, stored_chat::StoredChat};
use crate::http::problem::Problem;

impl StoredChat<'_> {
    /// Appends the messages of a history to the empty conversation, or the rest of them. Returns
    /// the id of the last one.
    pub(super) async fn import(&self, mut history: Vec<pb::NewMessage>) -> Result<i64, Problem> {
        let appends = history.len().div_ceil(MESSAGES_PER_APPEND);
        let mut last = 0;
        for append in 0..appends {
            let rest = history.split_off(history.len().min(MESSAGES_PER_APPEND));
            let mut messages = std::mem::replace(&mut history, rest);
            if append + 1 < appends
                && let Some(message) = messages.last_mut()
            {
                let unfinished = labels::labels([(labels::HISTORY, labels::UNFINISHED.into())]);
                message.metadata.extend(unfinished);
            }
            let ask = pb::AppendMessagesRequest {
                conversation_id: self.id.clone(),
                request_id: request_id_of_history(append),
                messages,
                expected_last_message_id: Some(last),
            };
            let appended = self
                .http_caller
                .services
                .append_messages(self.http_caller.request(ask))
                .await?
                .into_inner();
            // Nothing is stored of messages of tools if the conversation stores none.
            last = appended
                .messages
                .last()
                .map_or(last, |message| message.message_id);
        }
        Ok(last)
    }
}
