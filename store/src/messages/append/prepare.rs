//! Computes everything about an append that needs no row lock: JSON, digests, token counts or
//! estimates, turn starts.

use std::{any::Any, borrow::Cow, sync::Arc};

use anneal_core::{
    caller::ConversationId,
    digest::{self, Digest},
    message::{self, Message, MessageId, Role},
    title,
    tokens::{Encoding, count_message},
    turn,
};

use super::{Appended, MAX_BATCHED_BYTES};
use crate::{
    error::StoreError,
    idempotency::IdempotentRequest,
    messages::message_columns::MessageColumns,
    rows::{column, encoding_code, labels, parts},
};

/// Messages to append, with everything about them that needs no row lock. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Append {
    pub(super) conversation: ConversationId,
    pub(super) request_id: Option<String>,
    pub(super) expected_last: Option<MessageId>,
    pub(super) digest: Digest,
    pub(super) roles: Vec<Role>,
    /// Whether any message has tool calls or results.
    pub(super) tools: bool,
    /// Indexes of the messages that are not stored if the conversation keeps no tool messages.
    pub(super) tool_messages: Vec<usize>,
    /// The role that [`Append::for_chat_turn`] was given.
    pub(super) turn_role: Option<Role>,
    /// The title that the conversation gets if it has none.
    pub(super) title: Option<String>,
    /// The encoding in which the messages' tokens are counted. None: all tokens are estimates.
    pub(super) counted_in: Option<Encoding>,
    pub(super) rows: Arc<AppendRows>,
    /// The trace context (`traceparent`) of the call that appends, for the jobs that follow.
    pub(super) trace_context: Option<String>,
    /// The reservation of the content's memory. Kept as long as the content is in memory.
    pub(super) reservation: Option<Arc<dyn Any + Send + Sync>>,
}

/// The columns of the messages. Each vector has one entry per message.
#[derive(Debug, Clone, Default)]
pub(super) struct AppendRows {
    /// Tokens in each encoding: o200k_base, then cl100k_base. Which one the conversation has is known
    /// only under the row lock. Counts in the encoding `counted_in` of the append, else estimates.
    pub(super) tokens: [Vec<i64>; 2],
    pub(super) text_bytes: Vec<i64>,
    pub(super) contents: Vec<String>,
    pub(super) content_digests: Vec<Vec<u8>>,
    pub(super) outlines: Vec<Option<String>>,
    pub(super) metadata: Vec<Option<String>>,
}

impl AppendRows {
    pub(super) fn tokens_in(&self, encoding: Encoding) -> &[i64] {
        let [o200k, cl100k] = &self.tokens;
        match encoding {
            Encoding::O200kBase => o200k,
            Encoding::Cl100kBase => cl100k,
        }
    }
}

impl Append {
    /// Prepares an append. Clients send 1 to 100 messages. An append whose tool messages were
    /// removed may have none. With an encoding in `counted_in`, counts the messages' tokens: if it
    /// is the conversation's, they are stored counted.
    pub fn new(
        conversation: ConversationId,
        request_id: Option<String>,
        expected_last: Option<MessageId>,
        messages: &[Message],
        counted_in: Option<Encoding>,
    ) -> Self {
        let mut rows = AppendRows::default();
        for message in messages {
            let columns = MessageColumns::of(message);
            for (encoding, tokens) in Encoding::ALL.into_iter().zip(&mut rows.tokens) {
                tokens.push(column(if counted_in == Some(encoding) {
                    count_message(encoding, message)
                } else {
                    encoding.estimate_message(message)
                }));
            }
            rows.text_bytes.push(columns.text_bytes);
            rows.content_digests.push(columns.content_digest.to_vec());
            rows.contents.push(columns.content);
            rows.outlines.push(columns.outline);
            rows.metadata.push(columns.metadata);
        }
        let digest = digest::of_append(messages, &rows.contents);
        let roles = messages.iter().map(|message| message.role).collect();
        let tools = rows.outlines.iter().any(Option::is_some);
        let tool_messages = if tools {
            (0..messages.len())
                .filter(|index| !message::is_kept_without_tools(&messages[*index]))
                .collect()
        } else {
            Vec::new()
        };
        let title = title::of_messages(messages);
        Self {
            conversation,
            request_id,
            expected_last,
            digest,
            roles,
            tools,
            tool_messages,
            turn_role: None,
            title,
            counted_in,
            rows: Arc::new(rows),
            trace_context: None,
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

    /// The append with the trace context of the present call, if there is one: another task may
    /// store it.
    pub(crate) fn in_current_trace(&self) -> Cow<'_, Self> {
        match anneal_trace::current_traceparent() {
            Some(traceparent) => Cow::Owned(Self {
                trace_context: Some(traceparent),
                ..self.clone()
            }),
            None => Cow::Borrowed(self),
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

    /// The encoding in which the messages' tokens are counted. None: all tokens are estimates.
    pub const fn counted_in(&self) -> Option<Encoding> {
        self.counted_in
    }

    /// The conversation that is appended to.
    pub const fn conversation(&self) -> ConversationId {
        self.conversation
    }

    /// Marks the append as the prompt (role user) or the answer (role assistant) of a chat turn.
    /// Its digest then differs from that of an append with the same messages that is no chat turn.
    /// If the conversation keeps no tool messages, the other messages are stored only if the last
    /// of them has this role.
    #[must_use]
    pub fn for_chat_turn(self, role: Role) -> Self {
        Self {
            digest: digest::of_fields([b"turn".as_slice(), &self.digest]),
            turn_role: Some(role),
            ..self
        }
    }

    /// The append without its tool messages, for a conversation that keeps none. It may have no
    /// messages. A long append is prepared on a blocking thread, which keeps the reservation.
    pub(crate) async fn without_tools(&self) -> Result<Self, StoreError> {
        let whole = self.clone();
        if !self.tools {
            return Ok(whole);
        }
        if self.content_bytes() <= MAX_BATCHED_BYTES {
            return whole.remove_tools();
        }
        tokio::task::spawn_blocking(move || whole.remove_tools())
            .await
            .map_err(|_| StoreError::Unreadable("content"))?
    }

    /// Prepares the append again without its tool messages and tool calls. Parses the other
    /// messages from their JSON, so that nothing else needs to keep them in memory.
    fn remove_tools(&self) -> Result<Self, StoreError> {
        let kept = (0..self.message_count()).filter(|index| !self.tool_messages.contains(index));
        let messages = kept.map(|index| {
            Ok(Message {
                role: self.roles[index],
                parts: parts(&self.rows.contents[index])?,
                metadata: labels(self.rows.metadata[index].as_deref())?,
            })
        });
        let messages = messages.collect::<Result<Vec<_>, StoreError>>()?;
        let (_, mut messages): (Vec<_>, Vec<_>) =
            message::without_tools(&messages).into_iter().unzip();
        let ends_with = |role| messages.last().is_some_and(|last| last.role == role);
        if !self.turn_role.is_none_or(ends_with) {
            messages.clear();
        }
        let without_tools = Self::new(
            self.conversation,
            self.request_id.clone(),
            self.expected_last,
            &messages,
            self.counted_in,
        );
        Ok(Self {
            digest: self.digest,
            turn_role: self.turn_role,
            trace_context: self.trace_context.clone(),
            reservation: self.reservation.clone(),
            ..without_tools
        })
    }

    /// The indexes of the messages that were not stored. `stored` is how many were.
    pub(super) fn skipped(&self, stored: usize) -> Vec<usize> {
        if stored < self.message_count() {
            self.tool_messages.clone()
        } else {
            Vec::new()
        }
    }

    /// The result if none of the messages is stored.
    pub(super) fn stored_nothing(&self, replayed: bool) -> Appended {
        Appended {
            messages: Vec::new(),
            skipped: self.skipped(0),
            content_bytes: 0,
            replayed,
            has_work: false,
            encoding: None,
        }
    }

    /// Whether the message at this index has these tokens by count in this encoding (its code), and
    /// not by estimate.
    pub(super) fn is_count(&self, index: i64, encoding: i16, tokens: i64) -> bool {
        let Some(counted_in) = self.counted_in else {
            return false;
        };
        let counts = self.rows.tokens_in(counted_in);
        encoding_code(counted_in) == encoding && counts.get(index as usize) == Some(&tokens)
    }

    /// The record by which a repetition is recognized if the append stored no message.
    pub(super) fn request(&self) -> IdempotentRequest<'_> {
        IdempotentRequest {
            method: "append_messages",
            id: self.request_id.as_deref(),
            digest: self.digest,
        }
    }

    /// Tokens of all messages in each encoding: o200k_base, then cl100k_base.
    pub(super) fn token_sums(&self) -> [i64; 2] {
        self.rows
            .tokens
            .each_ref()
            .map(|tokens| tokens.iter().sum())
    }

    /// Tokens of the largest message in the encoding that they are counted in; 0 if they are not
    /// counted.
    pub(super) fn largest_tokens(&self) -> i64 {
        let counts = self
            .counted_in
            .map(|encoding| self.rows.tokens_in(encoding));
        counts.into_iter().flatten().copied().max().unwrap_or(0)
    }

    /// How many turns start within the append: first the number if the message before the append is
    /// a user's, then the number if it is not.
    pub(super) fn turn_starts(&self) -> (i32, i32) {
        let roles = || self.roles.iter().copied();
        (
            turn::after(0, Some(Role::User), roles()),
            turn::after(0, None, roles()),
        )
    }

    /// For each message, how many turns start after it within the append.
    pub(super) fn turn_starts_after(&self) -> Vec<i32> {
        let count = self.roles.len();
        let mut after = vec![0; count];
        for index in (1..count).rev() {
            after[index - 1] = after[index]
                + i32::from(turn::starts(self.roles[index], Some(self.roles[index - 1])));
        }
        after
    }
}
