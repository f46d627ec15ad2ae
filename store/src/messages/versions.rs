//! Content that does not stand: earlier versions of edited messages, and the content of withdrawn
//! ones.

use anneal_core::{
    caller::{Caller, ConversationId},
    limits,
    message::MessageId,
    tokens::Tokens,
};

use super::{
    byte_range::{MessageRange, cut_range},
    read::{Extent, MessagePage, MessageRow, PageAsk, StoredMessage, read_newest_id},
    read_budget::{ContentRead, ReadBudget, row_bytes},
    stored_text::StoredText,
};
use crate::{
    Store,
    conversations::separators::select_separators,
    error::{Entity, StoreError},
    rows::{Micros, tokens},
};

/// One version of a message, without its content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MessageVersion {
    /// 1, 2, 3 …
    pub version: i32,
    /// Tokens of this version.
    pub tokens: Tokens,
    /// Whether `tokens` is an estimate.
    pub estimated: bool,
    /// Bytes of the plain text.
    pub text_bytes: i64,
    /// Time at which this version was stored.
    pub created: Micros,
    /// Time at which it was replaced, or the message was withdrawn. None: it stands.
    pub replaced: Option<Micros>,
}

/// A row of a list in which withdrawn messages have their content.
struct HistoryRow {
    message_id: i64,
    role: i16,
    turn: i32,
    tokens: i64,
    estimated: bool,
    text_bytes: i64,
    content: Option<StoredText>,
    metadata: Option<String>,
    summary: Option<String>,
    summary_tokens: Option<i64>,
    summary_kind: Option<i16>,
    summary_model: Option<String>,
    summary_us: Option<i64>,
    created_us: i64,
    version: i32,
    edited_us: Option<i64>,
    withdrawn_us: Option<i64>,
    stopped: bool,
    erased: bool,
    bytes: i64,
}

impl TryFrom<HistoryRow> for StoredMessage {
    type Error = StoreError;

    fn try_from(row: HistoryRow) -> Result<Self, StoreError> {
        let erased = row.erased;
        let message = Self::try_from(MessageRow {
            message_id: row.message_id,
            role: row.role,
            turn: row.turn,
            tokens: row.tokens,
            estimated: row.estimated,
            text_bytes: row.text_bytes,
            content: row.content,
            metadata: row.metadata,
            summary: row.summary,
            summary_tokens: row.summary_tokens,
            summary_kind: row.summary_kind,
            summary_model: row.summary_model,
            summary_us: row.summary_us,
            created_us: row.created_us,
            version: row.version,
            edited_us: row.edited_us,
            withdrawn_us: row.withdrawn_us,
            stopped: row.stopped,
            bytes: row.bytes,
        })?;
        Ok(Self { erased, ..message })
    }
}

impl Store {
    /// Lists all messages of a conversation, always oldest first (`ask.newest_first` has no
    /// effect), if the page fits the budget. Withdrawn messages have the content that they had,
    /// unless it was erased.
    pub async fn list_messages_with_withdrawn(
        &self,
        caller: Caller,
        id: ConversationId,
        ask: PageAsk,
        budget: &ReadBudget,
    ) -> Result<ContentRead<MessagePage>, StoreError> {
        let ask = PageAsk {
            newest_first: false,
            ..ask
        };
        let mut db = self.reads.checkout(caller).await?;
        db.attach_reservation(budget.reservation.clone());
        let extent = Extent::of_all(read_newest_id(&mut db, caller, id).await?);
        let rows = sqlx::query_file_as!(
            HistoryRow,
            "sql/list_messages_with_withdrawn.sql",
            caller.tenant().0,
            id.0,
            ask.after.unwrap_or_default().0,
            ask.limit,
            limits::PAGE_CONTENT_BYTES,
            ask.content,
            budget.column(),
        )
        .fetch_all(&mut *db)
        .await?;
        let last = rows.last().map(|row| MessageId(row.message_id));
        let more = last.is_some_and(|last| extent.has_more(ask, last));
        let (from, to) = extent.separators(ask, last, more);
        let separators = select_separators(&mut db, caller, id, from, to).await?;
        db.release().await?;
        let content = rows.iter().map(|row| row.bytes).max().unwrap_or(0);
        let bytes = row_bytes(rows.len(), content);
        let parse = move || {
            let messages = rows.into_iter().map(StoredMessage::try_from);
            Ok(MessagePage {
                messages: messages.collect::<Result<_, _>>()?,
                separators,
                more,
            })
        };
        ContentRead::parse(budget, bytes, parse).await
    }

    /// Reads one version of a message, whether it stands or not, with all its content, if it fits
    /// the budget.
    pub async fn get_message_version(
        &self,
        caller: Caller,
        id: ConversationId,
        (message, version): (MessageId, i32),
        budget: &ReadBudget,
    ) -> Result<ContentRead<StoredMessage>, StoreError> {
        let mut db = self.reads.checkout(caller).await?;
        db.attach_reservation(budget.reservation.clone());
        let newest = read_newest_id(&mut db, caller, id).await?;
        let row = sqlx::query_file_as!(
            MessageRow,
            "sql/get_message_version.sql",
            caller.tenant().0,
            id.0,
            message.0,
            version,
            budget.column(),
        )
        .fetch_optional(&mut *db)
        .await?;
        db.release().await?;
        let row = row.ok_or(StoreError::NotFound(if message > newest {
            Entity::Message
        } else {
            Entity::Version
        }))?;
        ContentRead::parse(budget, row_bytes(1, row.bytes), || row.try_into()).await
    }

    /// Reads `length` bytes (at most 4 MiB) of the plain text of one version of a message, from
    /// `offset` on. The range is widened to whole characters. The whole version is read, and must
    /// fit the budget.
    pub async fn get_message_version_range(
        &self,
        caller: Caller,
        id: ConversationId,
        version: (MessageId, i32),
        range: (u64, u64),
        budget: &ReadBudget,
    ) -> Result<ContentRead<MessageRange>, StoreError> {
        let read = self
            .get_message_version(caller, id, version, budget)
            .await?;
        cut_range(read, range, budget).await
    }

    /// Lists up to `limit` versions of a message whose content is kept, newest first, before the
    /// version `before`; None: from the newest one on.
    pub async fn list_message_versions(
        &self,
        caller: Caller,
        id: ConversationId,
        message: MessageId,
        before: Option<i32>,
        limit: i64,
    ) -> Result<Vec<MessageVersion>, StoreError> {
        let mut db = self.reads.checkout(caller).await?;
        let newest = read_newest_id(&mut db, caller, id).await?;
        let rows = sqlx::query_file!(
            "sql/list_message_versions.sql",
            caller.tenant().0,
            id.0,
            message.0,
            before,
            limit,
        )
        .fetch_all(&mut *db)
        .await?;
        db.release().await?;
        if message > newest {
            return Err(StoreError::NotFound(Entity::Message));
        }
        let versions = rows.into_iter().map(|row| MessageVersion {
            version: row.version,
            tokens: tokens(row.tokens),
            estimated: row.estimated,
            text_bytes: row.text_bytes,
            created: Micros(row.created_us),
            replaced: row.replaced_us.map(Micros),
        });
        Ok(versions.collect())
    }
}
