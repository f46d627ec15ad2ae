//! Everything about an append that can be computed before the row lock: JSON, digests, estimates,
//! turn starts.

use std::{any::Any, sync::Arc};

use anneal_core::{
    caller::ConversationId,
    digest::{self, Digest},
    message::{self, Message, MessageId, Role},
    title,
    tokens::Encoding,
    turn,
};

use super::SHARED_BYTES;
use crate::{
    error::StoreError,
    idempotency::IdempotentRequest,
    rows::{column, json, labels, large_json, parts},
};

/// Messages to append, with everything that can be computed before the row lock. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Append {
    pub(super) conversation: ConversationId,
    pub(super) request_id: Option<String>,
    pub(super) expected_last: Option<MessageId>,
    pub(super) digest: Digest,
    pub(super) roles: Vec<Role>,
    /// Whether any message has tool calls or results.
    pub(super) tools: bool,
    /// The title that the conversation gets if it has none.
    pub(super) title: Option<String>,
    pub(super) rows: Arc<AppendRows>,
    /// Dropped when the content is no longer in memory.
    pub(super) reservation: Option<Arc<dyn Any + Send + Sync>>,
}

/// The columns of the messages.
#[derive(Debug, Clone, Default)]
pub(super) struct AppendRows {
    /// Estimated tokens, per encoding: o200k_base, cl100k_base. The row lock decides which encoding
    /// applies.
    pub(super) estimates: [Vec<i64>; 2],
    pub(super) text_bytes: Vec<i64>,
    pub(super) contents: Vec<String>,
    pub(super) content_digests: Vec<Vec<u8>>,
    pub(super) outlines: Vec<Option<String>>,
    pub(super) metadata: Vec<Option<String>>,
}

impl Append {
    /// Prepares the append of 1 to 100 messages.
    pub fn new(
        conversation: ConversationId,
        request_id: Option<String>,
        expected_last: Option<MessageId>,
        messages: &[Message],
    ) -> Self {
        #[cfg(feature = "sabotage")]
        let messages = &crate::sabotage::rewritten(messages);
        let mut rows = AppendRows::default();
        for message in messages {
            let text_bytes = message::plain_text_bytes(&message.parts);
            let is_large = text_bytes > SHARED_BYTES;
            let content = if is_large {
                large_json(&message.parts)
            } else {
                json(&message.parts)
            };
            let outline = message.tool_outline();
            for (encoding, estimates) in Encoding::ALL.into_iter().zip(&mut rows.estimates) {
                estimates.push(column(encoding.estimate_message(message)));
            }
            rows.text_bytes.push(text_bytes as i64);
            rows.content_digests
                .push(digest::of_content(&content).to_vec());
            rows.contents.push(content);
            rows.outlines
                .push((!outline.is_empty()).then(|| json(&outline)));
            rows.metadata
                .push((!message.metadata.is_empty()).then(|| json(&message.metadata)));
        }
        let digest = digest::of_append(messages, &rows.contents);
        let roles = messages.iter().map(|message| message.role).collect();
        let tools = rows.outlines.iter().any(Option::is_some);
        let title = title::of_messages(messages);
        Self {
            conversation,
            request_id,
            expected_last,
            digest,
            roles,
            tools,
            title,
            rows: Arc::new(rows),
            reservation: None,
        }
    }

    /// Keeps the reservation of the content's memory until the statement no longer needs the
    /// content.
    #[must_use]
    pub fn with_reservation(self, reservation: Arc<dyn Any + Send + Sync>) -> Self {
        Self {
            reservation: Some(reservation),
            ..self
        }
    }

    /// Bytes of content, as it is stored.
    pub fn content_bytes(&self) -> usize {
        self.rows.contents.iter().map(String::len).sum()
    }

    /// Number of messages.
    pub fn message_count(&self) -> usize {
        self.rows.contents.len()
    }

    /// The conversation that is appended to.
    pub const fn conversation(&self) -> ConversationId {
        self.conversation
    }

    /// The same request with only these of its messages, for a conversation that keeps no tool
    /// messages.
    #[must_use]
    pub fn with_messages(&self, messages: &[Message]) -> Self {
        let reduced = Self::new(
            self.conversation,
            self.request_id.clone(),
            self.expected_last,
            messages,
        );
        Self {
            digest: self.digest,
            reservation: self.reservation.clone(),
            ..reduced
        }
    }

    /// Parses the stored JSON and returns the messages that a conversation without tool messages
    /// keeps, each with its index. Callers need not keep the messages beside their JSON.
    pub fn without_tools(&self) -> Result<Vec<(usize, Message)>, StoreError> {
        let rows = self
            .roles
            .iter()
            .zip(&self.rows.contents)
            .zip(&self.rows.metadata);
        let messages = rows.map(|((role, content), metadata)| {
            Ok(Message {
                role: *role,
                parts: parts(content)?,
                metadata: labels(metadata.as_deref())?,
            })
        });
        let messages = messages.collect::<Result<Vec<_>, StoreError>>()?;
        Ok(message::without_tools(&messages))
    }

    /// Marks the append as the start of a turn: an append of another kind with the same request id
    /// is a different request.
    #[must_use]
    pub fn into_turn_start(self) -> Self {
        Self {
            digest: digest::of_fields([b"turn".as_slice(), &self.digest]),
            ..self
        }
    }

    /// The entry by which the request is found again if it stored no message.
    pub(super) fn request(&self) -> IdempotentRequest<'_> {
        IdempotentRequest {
            method: "append_messages",
            id: self.request_id.as_deref(),
            digest: self.digest,
        }
    }

    /// How many turns start within the append: if the message before it is a user's, and if it is
    /// not.
    pub(super) fn starts(&self) -> (i32, i32) {
        let roles = || self.roles.iter().copied();
        (
            turn::after(0, Some(Role::User), roles()),
            turn::after(0, None, roles()),
        )
    }

    /// For each message, how many turns start after it within the append.
    pub(super) fn starts_after(&self) -> Vec<i32> {
        let count = self.roles.len();
        let mut after = vec![0; count];
        for index in (1..count).rev() {
            after[index - 1] = after[index]
                + i32::from(turn::starts(self.roles[index], Some(self.roles[index - 1])));
        }
        after
    }
}
