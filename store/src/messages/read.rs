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
    /// The content; empty if it was not requested or was erased. That of a withdrawn message is
    /// only read with its version, and in lists with withdrawn messages.
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
    /// The number of the version, from 1.
    pub version: i32,
    /// Time at which that version was stored. None: it is the first one.
    pub edited: Option<Micros>,
    /// Time at which the message was withdrawn or erased. None: it stands.
    pub withdrawn: Option<Micros>,
    /// Whether the content of the message was erased. Only
    /// [`list_messages_with_withdrawn`](Store::list_messages_with_withdrawn) looks for that.
    pub erased: bool,
    /// Whether the message is an answer that was stopped before its end.
    pub stopped: bool,
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
    /// What it was made from, and at which cost. None: it was not read.
    pub origin: Option<SummaryOrigin>,
}

/// What a message's summary was made from, and at which cost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SummaryOrigin {
    /// Version of the model's prompt, or of the built-in summarizer's rules.
    pub prompt_version: i32,
    /// Tokens that models read.
    pub input: Tokens,
    /// Tokens that models wrote.
    pub output: Tokens,
    /// How long it took, in milliseconds.
    pub duration_ms: i64,
    /// SHA-256 of the content.
    pub source_digest: Vec<u8>,
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
    pub(crate) version: i32,
    pub(crate) edited_us: Option<i64>,
    pub(crate) withdrawn_us: Option<i64>,
    pub(crate) stopped: bool,
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
            origin: None,
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
            version: row.version,
            edited: row.edited_us.map(Micros),
            withdrawn: row.withdrawn_us.map(Micros),
            erased: false,
            stopped: row.stopped,
        })
    }
}

impl MessageRow {
    /// The row, if the message stands.
    pub(super) fn standing(self) -> Result<Self, StoreError> {
        if self.withdrawn_us.is_some() {
            return Err(StoreError::MessageWithdrawn(MessageId(self.message_id)));
        }
        Ok(self)
    }
}

impl Store {
    /// Lists messages of a conversation that stand, oldest or newest first, if the page fits the
    /// budget.
    pub async fn list_messages(
        &self,
        caller: Caller,
        id: ConversationId,
        ask: PageAsk,
        budget: &ReadBudget,
    ) -> Result<ContentRead<MessagePage>, StoreError> {
        let mut db = self.reads.checkout(caller).await?;
        db.attach_reservation(budget.reservation.clone());
        db.narrow_to(caller, id).await?;
        let extent = Extent::read(&mut db, caller, id).await?;
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
                false,
            )
            .fetch_all(&mut *db)
            .await?
        };
        let last = rows.last().map(|row| MessageId(row.message_id));
        let more = last.is_some_and(|last| extent.has_more(ask, last));
        let (from, to) = extent.separators(ask, last, more);
        let separators = select_separators(&mut db, caller, id, from, to).await?;
        db.release().await?;
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
    /// if the page fits the budget. Withdrawn messages are among them, without content. The page of
    /// a deleted conversation is empty.
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
        db.narrow_to(caller, id).await?;
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
            true,
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

    /// Reads one message that stands with all its content, if it fits the budget.
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
        let has_summary = row.as_ref().is_some_and(|row| row.summary.is_some());
        let origin = if has_summary {
            find_summary_origin(&mut db, caller, id, message).await?
        } else {
            None
        };
        db.release().await?;
        let row = row
            .ok_or(StoreError::NotFound(Entity::Message))?
            .standing()?;
        let row_content_bytes = row.bytes;
        let parse = move || {
            let mut message = StoredMessage::try_from(row)?;
            if let Some(summary) = &mut message.summary {
                summary.origin = origin;
            }
            Ok(message)
        };
        ContentRead::parse(budget, row_bytes(1, row_content_bytes), parse).await
    }
}

/// Reads what a message's summary was made from. None: it has none any more.
async fn find_summary_origin(
    db: &mut BoundedConnection,
    caller: Caller,
    id: ConversationId,
    message: MessageId,
) -> Result<Option<SummaryOrigin>, StoreError> {
    let row = sqlx::query!(
        r#"select coalesce(summary_prompt, 0) as "prompt!", coalesce(summary_input_tokens, 0) as "input!",
               coalesce(summary_output_tokens, 0) as "output!", coalesce(summary_duration_ms, 0) as "duration_ms!",
               content_digest
           from ai_message
           where tenant_id = $1 and conversation_id = $2 and message_id = $3 and summary_tokens is not null"#,
        caller.tenant().0,
        id.0,
        message.0,
    )
    .fetch_optional(db)
    .await?;
    Ok(row.map(|row| SummaryOrigin {
        prompt_version: row.prompt,
        input: tokens(row.input),
        output: tokens(row.output),
        duration_ms: row.duration_ms,
        source_digest: row.content_digest,
    }))
}

/// Which messages a conversation has, for pages of those that stand.
pub(super) struct Extent {
    /// The oldest message that stands; 0: none does.
    first_standing: MessageId,
    /// The newest message that stands; 0: none does.
    last_standing: MessageId,
    /// The newest message; 0: there is none.
    last: MessageId,
}

impl Extent {
    /// Reads a conversation's extent. Fails if the conversation does not exist.
    async fn read(
        db: &mut BoundedConnection,
        caller: Caller,
        id: ConversationId,
    ) -> Result<Self, StoreError> {
        let row = sqlx::query_file!("sql/message_extent.sql", caller.tenant().0, id.0)
            .fetch_optional(db)
            .await?
            .ok_or(StoreError::NotFound(Entity::Conversation))?;
        Ok(Self {
            first_standing: MessageId(row.first_standing),
            last_standing: MessageId(row.last_standing),
            last: MessageId(row.last_message_id),
        })
    }

    /// The extent of a conversation with this newest message, for pages of all messages.
    pub(super) const fn of_all(last: MessageId) -> Self {
        Self {
            first_standing: MessageId::NONE.next(),
            last_standing: last,
            last,
        }
    }

    /// Whether messages of such pages follow `last`, the last message of a page.
    pub(super) fn has_more(&self, ask: PageAsk, last: MessageId) -> bool {
        if ask.newest_first {
            last > self.first_standing
        } else {
            last < self.last_standing
        }
    }

    /// Returns two ids, `(from, to)`: a page that ends with the message `last` has the separators
    /// with `from < after_message_id <= to`. A separator belongs to the page of the message that
    /// stands before it, and one before all of them to the page of the first one. `more`: whether
    /// another page follows.
    pub(super) fn separators(
        &self,
        ask: PageAsk,
        last: Option<MessageId>,
        more: bool,
    ) -> (MessageId, MessageId) {
        // Before the separator that is before the first message.
        let start = MessageId(-1);
        if ask.newest_first {
            let to = ask
                .after
                .map_or(self.last, |before| MessageId(before.0 - 1).min(self.last));
            let from = match last {
                Some(last) if more => MessageId(last.0 - 1),
                None if ask.after.is_some() => to,
                _ => start,
            };
            (from, to)
        } else {
            let from = ask.after.filter(|after| *after > MessageId::NONE);
            let to = last.filter(|_| more).unwrap_or(self.last);
            (from.unwrap_or(start), to)
        }
    }
}

/// Reads the id of a conversation's newest message. Fails if the conversation does not exist.
pub(crate) async fn read_newest_id(
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Of nine messages, 3 is the first and 7 the last that stands.
    const EXTENT: Extent = Extent {
        first_standing: MessageId(3),
        last_standing: MessageId(7),
        last: MessageId(9),
    };

    const fn page(after: Option<i64>, newest_first: bool) -> PageAsk {
        PageAsk {
            after: match after {
                Some(after) => Some(MessageId(after)),
                None => None,
            },
            newest_first,
            content: false,
            limit: 2,
        }
    }

    /// Checks that the pages with these last messages have each separator once, whatever message it
    /// is after, and that another page follows each page but the last one.
    fn check_pages(newest_first: bool, lasts: &[i64]) {
        let mut found: Vec<i64> = Vec::new();
        let mut after = None;
        for last in lasts {
            let ask = page(after, newest_first);
            let more = EXTENT.has_more(ask, MessageId(*last));
            assert_eq!(more, Some(last) != lasts.last(), "after {last}");
            let (from, to) = EXTENT.separators(ask, Some(MessageId(*last)), more);
            found.extend(from.0 + 1..=to.0);
            after = Some(*last);
        }
        found.sort_unstable();
        assert_eq!(found, (0..=9).collect::<Vec<_>>());
    }

    #[test]
    fn each_separator_is_on_one_page_although_messages_around_it_are_withdrawn() {
        check_pages(false, &[4, 6, 7]);
        check_pages(false, &[7]);
        check_pages(true, &[6, 4, 3]);
        check_pages(true, &[3]);
    }

    #[test]
    fn without_a_message_that_stands_the_first_page_has_all_separators() {
        let none = Extent {
            first_standing: MessageId::NONE,
            last_standing: MessageId::NONE,
            last: MessageId(9),
        };
        for newest_first in [false, true] {
            let (from, to) = none.separators(page(None, newest_first), None, false);
            assert_eq!((from.0, to.0), (-1, 9));
        }
        let (from, to) = none.separators(page(Some(4), true), None, false);
        assert!(from >= to, "a page after it has none");
    }
}
