//! Pages of messages, and single messages.

use std::collections::BTreeMap;

use anneal_core::{
    caller::{Caller, ConversationId},
    limits,
    message::{MessageId, Part, Role},
    tokens::Tokens,
};

use super::{
    read_budget::{ContentRead, ReadBudget, row_bytes},
    stored_text::StoredText,
};
use crate::{
    Store,
    connection::BoundedConnection,
    conversations::separators::{Separator, select_separators},
    error::{Entity, StoreError},
    rows::{self, Micros, tokens},
    summary_spec::{SummaryKind, kind_from_code},
};

/// A message, with its summary if it has one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredMessage {
    /// Id of the message.
    pub id: MessageId,
    /// Role of the author.
    pub role: Role,
    /// The content; empty if the content was not requested.
    pub parts: Vec<Part>,
    /// Labels of the caller.
    pub metadata: BTreeMap<String, String>,
    /// The turn that the message belongs to.
    pub turn: i32,
    /// Tokens of the message: an estimate until it is counted.
    pub tokens: Tokens,
    /// Whether `tokens` is an estimate.
    pub estimated: bool,
    /// Bytes of the plain text.
    pub text_bytes: i64,
    /// The summary of a large message, if it has one.
    pub summary: Option<StoredSummary>,
    /// Time at which the message was stored.
    pub created: Micros,
}

/// The summary of one large message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredSummary {
    /// The text of the summary.
    pub text: String,
    /// Tokens of the summary.
    pub tokens: Tokens,
    /// How the summary was made.
    pub kind: SummaryKind,
    /// Name of the model or summarizer.
    pub model: String,
    /// Time at which the summary was stored.
    pub created: Micros,
}

/// Which messages to list.
#[derive(Debug, Clone, Copy)]
pub struct PageAsk {
    /// The page starts after this message in the order of the list. None: it starts with the first
    /// message of that order.
    pub after: Option<MessageId>,
    /// Whether the newest message comes first instead of the oldest.
    pub newest_first: bool,
    /// Whether to read content.
    pub content: bool,
    /// Most messages.
    pub limit: i64,
}

/// A page of messages in the order that was asked for.
#[derive(Debug, Clone)]
pub struct MessagePage {
    /// The messages. Together they have at most 4 MiB of content and summaries, unless the first
    /// one alone has more.
    pub messages: Vec<StoredMessage>,
    /// The separators after the page's messages. The page with the conversation's first message
    /// also has the separator before that message, if there is one.
    pub separators: Vec<Separator>,
    /// Whether more messages follow.
    pub more: bool,
}

pub(crate) struct MessageRow {
    pub(crate) message_id: i64,
    pub(crate) role: i16,
    pub(crate) turn: i32,
    pub(crate) tokens: i64,
    pub(crate) estimated: bool,
    pub(crate) text_bytes: i64,
    pub(crate) content: Option<StoredText>,
    pub(crate) metadata: Option<String>,
    pub(crate) summary: Option<String>,
    pub(crate) summary_tokens: Option<i64>,
    pub(crate) summary_kind: Option<i16>,
    pub(crate) summary_model: Option<String>,
    pub(crate) summary_us: Option<i64>,
    pub(crate) created_us: i64,
    /// Bytes of content and summary of this message and, in a page, of the messages before it.
    pub(crate) bytes: i64,
}

impl TryFrom<MessageRow> for StoredMessage {
    type Error = StoreError;

    fn try_from(row: MessageRow) -> Result<Self, StoreError> {
        let summary = row.summary.map(|text| StoredSummary {
            text,
            tokens: tokens(row.summary_tokens.unwrap_or(0)),
            kind: kind_from_code(row.summary_kind.unwrap_or(0)),
            model: row.summary_model.unwrap_or_default(),
            created: Micros(row.summary_us.unwrap_or(0)),
        });
        Ok(Self {
            id: MessageId(row.message_id),
            role: rows::role(row.role)?,
            parts: row
                .content
                .map(|content| rows::parts(content.text()?))
                .transpose()?
                .unwrap_or_default(),
            metadata: rows::labels(row.metadata.as_deref())?,
            turn: row.turn,
            tokens: tokens(row.tokens),
            estimated: row.estimated,
            text_bytes: row.text_bytes,
            summary,
            created: Micros(row.created_us),
        })
    }
}

impl Store {
    /// Lists messages of a conversation, oldest or newest first, if the page fits the budget.
    pub async fn list_messages(
        &self,
        caller: Caller,
        id: ConversationId,
        ask: PageAsk,
        budget: &ReadBudget,
    ) -> Result<ContentRead<MessagePage>, StoreError> {
        let mut db = self.reads.checkout(caller).await?;
        db.attach_reservation(budget.reservation.clone());
        let newest = read_newest_id(&mut db, caller, id).await?;
        let page_bytes = limits::PAGE_CONTENT_BYTES;
        let tenant = caller.tenant().0;
        let rows = if ask.newest_first {
            let before = ask.after.map_or(i64::MAX, |after| after.0);
            sqlx::query_file_as!(
                MessageRow,
                "sql/list_messages_newest_first.sql",
                tenant,
                id.0,
                before,
                ask.limit,
                page_bytes,
                ask.content,
                budget.column(),
            )
            .fetch_all(&mut *db)
            .await?
        } else {
            let after = ask.after.map_or(0, |after| after.0);
            sqlx::query_file_as!(
                MessageRow,
                "sql/list_messages.sql",
                tenant,
                id.0,
                after,
                ask.limit,
                page_bytes,
                ask.content,
                budget.column(),
            )
            .fetch_all(&mut *db)
            .await?
        };
        // A separator belongs to the page of the message before it. One before the first message
        // belongs to the page of the first message.
        let ids = || rows.iter().map(|row| row.message_id);
        let (first, last) = (
            ids().min().unwrap_or(newest.0 + 1),
            ids().max().unwrap_or(newest.0),
        );
        let from = if first == 1 { -1 } else { first - 1 };
        let separators =
            select_separators(&mut db, caller, id, MessageId(from), MessageId(last)).await?;
        db.release().await?;
        let more = rows.last().is_some_and(|row| {
            if ask.newest_first {
                row.message_id > 1
            } else {
                row.message_id < newest.0
            }
        });
        let bytes = row_bytes(
            rows.len(),
            rows.iter().map(|row| row.bytes).max().unwrap_or(0),
        );
        let parse = move || {
            let messages = rows
                .into_iter()
                .map(StoredMessage::try_from)
                .collect::<Result<_, _>>()?;
            Ok(MessagePage {
                messages,
                separators,
                more,
            })
        };
        ContentRead::parse(budget, bytes, parse).await
    }

    /// Lists messages, always oldest first (`ask.newest_first` has no effect), without separators,
    /// if the page fits the budget. The page of a deleted conversation is empty.
    pub async fn list_messages_after(
        &self,
        caller: Caller,
        id: ConversationId,
        ask: PageAsk,
        budget: &ReadBudget,
    ) -> Result<ContentRead<Vec<StoredMessage>>, StoreError> {
        let (after, content, limit) = (ask.after.unwrap_or_default(), ask.content, ask.limit);
        let page_bytes = limits::PAGE_CONTENT_BYTES;
        let tenant = caller.tenant().0;
        let mut db = self.reads.checkout(caller).await?;
        db.attach_reservation(budget.reservation.clone());
        let rows = sqlx::query_file_as!(
            MessageRow,
            "sql/list_messages.sql",
            tenant,
            id.0,
            after.0,
            limit,
            page_bytes,
            content,
            budget.column(),
        )
        .fetch_all(&mut *db)
        .await?;
        db.release().await?;
        let bytes = row_bytes(
            rows.len(),
            rows.iter().map(|row| row.bytes).max().unwrap_or(0),
        );
        let parse = move || rows.into_iter().map(StoredMessage::try_from).collect();
        ContentRead::parse(budget, bytes, parse).await
    }

    /// Reads one message with all its content, if it fits the budget.
    pub async fn get_message(
        &self,
        caller: Caller,
        id: ConversationId,
        message: MessageId,
        budget: &ReadBudget,
    ) -> Result<ContentRead<StoredMessage>, StoreError> {
        let mut db = self.reads.checkout(caller).await?;
        db.attach_reservation(budget.reservation.clone());
        read_newest_id(&mut db, caller, id).await?;
        let tenant = caller.tenant().0;
        let row = sqlx::query_file_as!(
            MessageRow,
            "sql/get_message.sql",
            tenant,
            id.0,
            message.0,
            budget.column()
        )
        .fetch_optional(&mut *db)
        .await?;
        db.release().await?;
        let row = row.ok_or(StoreError::NotFound(Entity::Message))?;
        ContentRead::parse(budget, row_bytes(1, row.bytes), || row.try_into()).await
    }
}

/// Reads the id of a conversation's newest message. Fails if the conversation does not exist.
pub(super) async fn read_newest_id(
    db: &mut BoundedConnection,
    caller: Caller,
    id: ConversationId,
) -> Result<MessageId, StoreError> {
    let newest = sqlx::query_scalar!(
        "select last_message_id from ai_conversation where tenant_id = $1 and conversation_id = $2",
        caller.tenant().0,
        id.0,
    )
    .fetch_optional(db)
    .await?;
    newest
        .map(MessageId)
        .ok_or(StoreError::NotFound(Entity::Conversation))
}
