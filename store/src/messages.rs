//! Messages, read.

use std::collections::BTreeMap;

use anneal_core::{
    caller::{Caller, ConversationId},
    limits,
    message::{MessageId, Part, Role},
    tokens::Tokens,
};
use sqlx::PgConnection;

use crate::{
    Store,
    content::{ContentRead, ContentRoom, row_bytes},
    error::{Entity, StoreError},
    rows::{self, Micros, tokens},
    separators::{self, Separator},
    stored_text::StoredText,
    summaries::{SummaryKind, kind},
};

/// A message with what is kept beside it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredMessage {
    /// Its id.
    pub id: MessageId,
    /// Who speaks.
    pub role: Role,
    /// What is said; empty when it was not asked for.
    pub parts: Vec<Part>,
    /// The caller's labels.
    pub metadata: BTreeMap<String, String>,
    /// Its turn.
    pub turn: i32,
    /// Its tokens, estimated until they are counted.
    pub tokens: Tokens,
    /// Whether `tokens` is an estimate.
    pub estimated: bool,
    /// Bytes of its plain text.
    pub text_bytes: i64,
    /// Its summary, if it has one.
    pub summary: Option<StoredSummary>,
    /// When it was stored.
    pub created: Micros,
}

/// The summary of one large message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredSummary {
    /// The summary.
    pub text: String,
    /// Its tokens.
    pub tokens: Tokens,
    /// How it came to be.
    pub kind: SummaryKind,
    /// The model's or summariser's name.
    pub model: String,
    /// When it was stored.
    pub created: Micros,
}

/// Which messages to list.
#[derive(Debug, Clone, Copy)]
pub struct PageAsk {
    /// Only after this one (before it, newest first); None: from the end that comes first.
    pub from: Option<MessageId>,
    /// Newest first instead of oldest first.
    pub newest_first: bool,
    /// With what is said.
    pub content: bool,
    /// At most so many.
    pub limit: i64,
}

/// Messages in the order asked for.
#[derive(Debug, Clone)]
pub struct MessagePage {
    /// The entries; at most 4 MiB of content and summaries beyond the first.
    pub messages: Vec<StoredMessage>,
    /// Separators that stand within the page.
    pub separators: Vec<Separator>,
    /// Whether more follow.
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
    pub(crate) bytes: i64,
}

impl TryFrom<MessageRow> for StoredMessage {
    type Error = StoreError;

    fn try_from(row: MessageRow) -> Result<Self, StoreError> {
        let summary = row.summary.map(|text| StoredSummary {
            text,
            tokens: tokens(row.summary_tokens.unwrap_or(0)),
            kind: kind(row.summary_kind.unwrap_or(0)),
            model: row.summary_model.unwrap_or_default(),
            created: Micros(row.summary_us.unwrap_or(0)),
        });
        Ok(Self {
            id: MessageId(row.message_id),
            role: rows::role(row.role)?,
            parts: row.content.map(|content| rows::parts(content.text()?)).transpose()?.unwrap_or_default(),
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
    /// Messages of a conversation, in id order or against it, if there is room for the page.
    pub async fn list_messages(
        &self,
        caller: Caller,
        id: ConversationId,
        ask: PageAsk,
        room: &ContentRoom,
    ) -> Result<ContentRead<MessagePage>, StoreError> {
        let mut db = self.reads.checkout(caller).await?;
        db.hold(room.held.clone());
        #[cfg(feature = "sabotage")]
        let caller = crate::sabotage::anybody(&mut db, caller, id).await;
        let newest = newest(&mut db, caller, id).await?;
        let bytes = limits::PAGE_CONTENT_BYTES;
        let tenant = caller.tenant().0;
        let rows = if ask.newest_first {
            let before = ask.from.map_or(i64::MAX, |from| from.0);
            sqlx::query_file_as!(
                MessageRow,
                "sql/list_messages_newest_first.sql",
                tenant,
                id.0,
                before,
                ask.limit,
                bytes,
                ask.content,
                room.column(),
            )
            .fetch_all(&mut *db)
            .await?
        } else {
            let after = ask.from.map_or(0, |from| from.0);
            sqlx::query_file_as!(
                MessageRow,
                "sql/list_messages.sql",
                tenant,
                id.0,
                after,
                ask.limit,
                bytes,
                ask.content,
                room.column(),
            )
            .fetch_all(&mut *db)
            .await?
        };
        // A separator belongs to the page of the message before it; one before the first message, to the first message's.
        let ids = || rows.iter().map(|row| row.message_id);
        let (first, last) = (ids().min().unwrap_or(newest.0 + 1), ids().max().unwrap_or(newest.0));
        let from = if first == 1 { -1 } else { first - 1 };
        let separators = separators::between(&mut db, caller, id, MessageId(from), MessageId(last)).await?;
        db.release().await?;
        let more = rows
            .last()
            .is_some_and(|row| if ask.newest_first { row.message_id > 1 } else { row.message_id < newest.0 });
        let bytes = row_bytes(rows.len(), rows.iter().map(|row| row.bytes).max().unwrap_or(0));
        let parse = move || {
            let messages = rows.into_iter().map(StoredMessage::try_from).collect::<Result<_, _>>()?;
            Ok(MessagePage { messages, separators, more })
        };
        ContentRead::within(room, bytes, parse).await
    }

    /// A page of messages, oldest first, and nothing beside it, if there is room for them: none of a conversation that is gone.
    pub async fn messages_after(
        &self,
        caller: Caller,
        id: ConversationId,
        ask: PageAsk,
        room: &ContentRoom,
    ) -> Result<ContentRead<Vec<StoredMessage>>, StoreError> {
        let (after, content, limit) = (ask.from.unwrap_or_default(), ask.content, ask.limit);
        let bytes = limits::PAGE_CONTENT_BYTES;
        let tenant = caller.tenant().0;
        let mut db = self.reads.checkout(caller).await?;
        let rows = sqlx::query_file_as!(
            MessageRow,
            "sql/list_messages.sql",
            tenant,
            id.0,
            after.0,
            limit,
            bytes,
            content,
            room.column(),
        )
        .fetch_all(&mut *db)
        .await?;
        db.release().await?;
        let bytes = row_bytes(rows.len(), rows.iter().map(|row| row.bytes).max().unwrap_or(0));
        let parse = move || rows.into_iter().map(StoredMessage::try_from).collect();
        ContentRead::within(room, bytes, parse).await
    }

    /// One message, whole, if there is room for it.
    pub async fn message(
        &self,
        caller: Caller,
        id: ConversationId,
        message: MessageId,
        room: &ContentRoom,
    ) -> Result<ContentRead<StoredMessage>, StoreError> {
        let mut db = self.reads.checkout(caller).await?;
        db.hold(room.held.clone());
        newest(&mut db, caller, id).await?;
        let tenant = caller.tenant().0;
        let row = sqlx::query_file_as!(MessageRow, "sql/get_message.sql", tenant, id.0, message.0, room.column())
            .fetch_optional(&mut *db)
            .await?;
        db.release().await?;
        let row = row.ok_or(StoreError::NotFound(Entity::Message))?;
        ContentRead::within(room, row_bytes(1, row.bytes), || row.try_into()).await
    }
}

pub(crate) async fn newest(db: &mut PgConnection, caller: Caller, id: ConversationId) -> Result<MessageId, StoreError> {
    let newest = sqlx::query_scalar!(
        "select last_message_id from ai_conversation where tenant_id = $1 and conversation_id = $2",
        caller.tenant().0,
        id.0,
    )
    .fetch_optional(db)
    .await?;
    newest.map(MessageId).ok_or(StoreError::NotFound(Entity::Conversation))
}
