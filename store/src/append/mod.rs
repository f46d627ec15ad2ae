//! Append: one statement, and so one transaction, gives dense ids under the conversations' row locks, stores the rows and
//! commits the counting jobs with them. Appends of different conversations that wait at the same time share it.

mod lanes;
mod queue;
mod statement;

use std::{any::Any, num::NonZeroU32, sync::Arc};

use anneal_core::{
    caller::{Caller, ConversationId},
    digest::{self, Digest},
    message::{self, Message, MessageId, Role},
    title,
    tokens::{Encoding, Tokens},
    turn,
};
use serde::{Deserialize, Serialize};
use sqlx::{Connection as _, PgConnection};

pub(crate) use self::lanes::Lanes;
use self::{lanes::Answer, statement::Done};
use crate::{
    Store,
    conversations::locked,
    error::{Entity, StoreError, violated},
    failpoint,
    link::Link,
    pool::is_in_transaction,
    requests::{self, Earlier, Request},
    rows::{column, json, labels, large_json, parts, tokens},
};

/// How appends share transactions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AppendSettings {
    /// Whether appends of different conversations share them.
    pub grouping: Grouping,
    /// Transactions of shared appends that may be under way at once.
    pub lanes: NonZeroU32,
}

/// Whether appends of different conversations share a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Grouping {
    /// Those that wait at the same time do.
    On,
    /// Each has its own: for engines in which a transaction must stay with one conversation.
    Off,
}

impl Default for AppendSettings {
    fn default() -> Self {
        Self { grouping: Grouping::On, lanes: NonZeroU32::new(2).expect("it is not 0") }
    }
}

/// Bytes of content above which an append does not share: it would make the others wait.
const SHARED_BYTES: usize = 64 * 1024;

/// Messages to append, with everything that can be worked out before the row lock. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Append {
    conversation: ConversationId,
    request_id: Option<String>,
    expected_last: Option<MessageId>,
    digest: Digest,
    roles: Vec<Role>,
    /// Whether there are tool calls or results among the messages.
    tools: bool,
    /// What a conversation without a title is called after them.
    title: Option<String>,
    rows: Arc<AppendRows>,
    /// Dropped when nothing of the content is in memory any more.
    held: Option<Arc<dyn Any + Send + Sync>>,
}

/// The columns of an append.
#[derive(Debug, Clone, Default)]
struct AppendRows {
    /// Per encoding: o200k_base, cl100k_base. Which one holds is known only under the row lock.
    estimates: [Vec<i64>; 2],
    text_bytes: Vec<i64>,
    contents: Vec<String>,
    content_digests: Vec<Vec<u8>>,
    outlines: Vec<Option<String>>,
    metadata: Vec<Option<String>>,
}

/// What became of an append.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Appended {
    /// In the order of the request; ids are contiguous.
    pub messages: Vec<AppendedMessage>,
    /// An earlier append with this `request_id` had stored them.
    pub replayed: bool,
}

/// One stored message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AppendedMessage {
    /// Its id.
    pub id: MessageId,
    /// Its turn.
    pub turn: i32,
    /// Its tokens, estimated.
    pub estimate: Tokens,
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
            let content = if is_large { large_json(&message.parts) } else { json(&message.parts) };
            let outline = message.tool_outline();
            for (encoding, estimates) in Encoding::ALL.into_iter().zip(&mut rows.estimates) {
                estimates.push(column(encoding.estimate_message(message)));
            }
            rows.text_bytes.push(text_bytes as i64);
            rows.content_digests.push(digest::of_content(&content).to_vec());
            rows.contents.push(content);
            rows.outlines.push((!outline.is_empty()).then(|| json(&outline)));
            rows.metadata.push((!message.metadata.is_empty()).then(|| json(&message.metadata)));
        }
        let digest = digest::of_append(messages, &rows.contents);
        let roles = messages.iter().map(|message| message.role).collect();
        let tools = rows.outlines.iter().any(Option::is_some);
        let title = title::of_messages(messages);
        Self { conversation, request_id, expected_last, digest, roles, tools, title, rows: Arc::new(rows), held: None }
    }

    /// The same append, which keeps `held` until its statement no longer needs the content: the room that was reserved for it.
    #[must_use]
    pub fn holding(self, held: Arc<dyn Any + Send + Sync>) -> Self {
        Self { held: Some(held), ..self }
    }

    /// Bytes of content, as it is stored.
    pub fn content_bytes(&self) -> usize {
        self.rows.contents.iter().map(String::len).sum()
    }

    /// How many messages it stores.
    pub fn message_count(&self) -> usize {
        self.rows.contents.len()
    }

    /// The conversation that it belongs to.
    pub const fn conversation(&self) -> ConversationId {
        self.conversation
    }

    /// The same append with only these of its messages, for a conversation that keeps no tools. The request stays the same.
    #[must_use]
    pub fn only(&self, messages: &[Message]) -> Self {
        let kept = Self::new(self.conversation, self.request_id.clone(), self.expected_last, messages);
        Self { digest: self.digest, held: self.held.clone(), ..kept }
    }

    /// Reads from the stored JSON the messages that a conversation without tools keeps, each with its place: callers need not
    /// hold the messages beside their JSON.
    pub fn without_tools(&self) -> Result<Vec<(usize, Message)>, StoreError> {
        let rows = self.roles.iter().zip(&self.rows.contents).zip(&self.rows.metadata);
        let messages = rows.map(|((role, content), metadata)| {
            Ok(Message { role: *role, parts: parts(content)?, metadata: labels(metadata.as_deref())? })
        });
        let messages = messages.collect::<Result<Vec<_>, StoreError>>()?;
        Ok(message::without_tools(&messages))
    }

    /// The same append as the beginning of a turn: no other kind of append is taken for it, whatever its request id.
    #[must_use]
    pub fn of_turn(self) -> Self {
        Self { digest: digest::of_fields([b"turn".as_slice(), &self.digest]), ..self }
    }

    /// Its mark among the requests of which nothing else is left.
    fn request(&self) -> Request<'_> {
        Request { method: "append_messages", id: self.request_id.as_deref(), digest: self.digest }
    }

    /// How many turns start within the append, when the message before it was a user's and when it was not.
    fn starts(&self) -> (i32, i32) {
        let roles = || self.roles.iter().copied();
        (turn::after(0, Some(Role::User), roles()), turn::after(0, None, roles()))
    }

    /// For each message: how many turns start after it within the append.
    fn starts_after(&self) -> Vec<i32> {
        let count = self.roles.len();
        let mut after = vec![0; count];
        for index in (1..count).rev() {
            after[index - 1] = after[index] + i32::from(turn::starts(self.roles[index], Some(self.roles[index - 1])));
        }
        after
    }
}

impl Store {
    /// Appends messages to a conversation, once per `request_id`.
    ///
    /// A connection that breaks during the commit leaves the outcome unknown: with a `request_id` the append is then tried
    /// once more, which stores nothing twice.
    pub async fn append(&self, caller: Caller, append: &Append) -> Result<Appended, StoreError> {
        #[cfg(feature = "sabotage")]
        if let Some(appended) = crate::sabotage::answered_early(self, caller, append).await {
            return Ok(appended);
        }
        if self.append.grouping == Grouping::On && append.content_bytes() <= SHARED_BYTES {
            let start = || Lanes::start(self.append.lanes, &self.shared_writes, &self.rules);
            if let Answer::Ended(outcome) = self.lanes.get_or_init(start).append(caller, append).await {
                return outcome;
            }
        }
        match self.append_alone(caller, append).await {
            Err(StoreError::Conflict(_)) => self.append_alone(caller, append).await,
            Err(StoreError::Unavailable(_)) if append.request_id.is_some() => self.append_alone(caller, append).await,
            outcome => outcome,
        }
    }

    /// What an earlier append with this one's request id stored, if there was one.
    pub async fn find_append(&self, caller: Caller, append: &Append) -> Result<Option<Appended>, StoreError> {
        let mut db = self.reads.checkout(caller).await?;
        let found = replay(&mut db, caller, append).await;
        db.settle(found).await
    }

    /// Remembers an append of which nothing is kept, so that its request id has one effect.
    pub async fn append_nothing(&self, caller: Caller, append: &Append) -> Result<(), StoreError> {
        let mut db = self.writes.checkout(caller).await?;
        let put = put_nothing(&mut db, caller, append).await;
        db.settle(put).await
    }

    async fn append_alone(&self, caller: Caller, append: &Append) -> Result<Appended, StoreError> {
        let mut db = self.writes.checkout(caller).await?;
        db.hold(append.held.clone());
        let stored = alone(&mut db, caller, append, self.rules.bases()).await;
        db.settle(stored).await
    }
}

/// Stores one append; waits where another transaction holds its conversation.
async fn alone(db: &mut Link, caller: Caller, append: &Append, bases: &str) -> Result<Appended, StoreError> {
    failpoint!("append.alone.begun");
    let mut done = insert(db, caller, append, bases).await;
    if matches!(done, Ok(Done::PassedOver)) {
        let mut tx = db.begin().await?;
        locked(&mut tx, caller, append.conversation).await?;
        failpoint!("append.alone.locked");
        done = insert(&mut tx, caller, append, bases).await;
        failpoint!("append.alone.written");
        if done.is_ok() { tx.commit().await? } else { tx.rollback().await? }
    }
    failpoint!("append.alone.stored");
    match done {
        Ok(Done::Stored(appended)) => Ok(appended),
        Ok(Done::Refused | Done::PassedOver) => refused(db, caller, append, bases).await,
        Err(error) if violated(&error) == Some("ai_message_request_id_unique") => {
            let earlier = replay(db, caller, append).await?;
            earlier.ok_or(StoreError::NotFound(Entity::Conversation))
        }
        Err(error) => Err(error.into()),
    }
}

async fn put_nothing(db: &mut Link, caller: Caller, append: &Append) -> Result<(), StoreError> {
    let mut tx = db.begin().await?;
    locked(&mut tx, caller, append.conversation).await?;
    if let Earlier::None = requests::find(&mut tx, caller, append.conversation, &append.request()).await? {
        requests::put(&mut tx, caller, append.conversation, &append.request(), None).await?;
    }
    tx.commit().await?;
    Ok(())
}

/// Stores one append, or says why not.
async fn insert(db: &mut PgConnection, caller: Caller, append: &Append, bases: &str) -> Result<Done, sqlx::Error> {
    let asked = [(caller, append)];
    let done = if is_in_transaction(db) {
        // Whoever learns that its request id is there already goes on in the same transaction.
        let mut tx = db.begin().await?;
        match statement::store(&mut tx, &asked, bases).await {
            Ok(done) => tx.commit().await.map(|()| done)?,
            Err(error) => return tx.rollback().await.and(Err(error)),
        }
    } else {
        statement::store(db, &asked, bases).await?
    };
    Ok(done.into_iter().next().unwrap_or(Done::PassedOver))
}

/// Stores one append in a transaction that somebody else ends; None: it is not stored.
#[cfg(feature = "sabotage")]
pub(crate) async fn stored(db: &mut PgConnection, caller: Caller, append: &Append, bases: &str) -> Option<Appended> {
    match insert(db, caller, append, bases).await {
        Ok(Done::Stored(appended)) => Some(appended),
        _ => None,
    }
}

/// Stores one append in the transaction of its caller, who has the conversation to itself.
pub(crate) async fn put(db: &mut PgConnection, caller: Caller, append: &Append, bases: &str) -> Result<(), StoreError> {
    match insert(db, caller, append, bases).await? {
        Done::Stored(_) => Ok(()),
        Done::Refused | Done::PassedOver => Err(StoreError::NotFound(Entity::Conversation)),
    }
}

/// Why nothing was stored: done before, no such conversation, moved on, or tools that are not kept.
async fn refused(db: &mut Link, caller: Caller, append: &Append, bases: &str) -> Result<Appended, StoreError> {
    if let Some(done) = replay(db, caller, append).await? {
        return Ok(done);
    }
    let row = sqlx::query!(
        r#"select last_message_id, coalesce(policy ->> 'store_tool_messages',
                  $3::text::jsonb -> coalesce(policy ->> 'profile', '') ->> 'store_tool_messages')
                  is distinct from 'false' as "keeps_tools!"
           from ai_conversation where tenant_id = $1 and conversation_id = $2"#,
        caller.tenant().0,
        append.conversation.0,
        bases,
    )
    .fetch_optional(&mut **db)
    .await?;
    let row = row.ok_or(StoreError::NotFound(Entity::Conversation))?;
    let actual = MessageId(row.last_message_id);
    match append.expected_last {
        Some(expected) if expected != actual => Err(StoreError::NotTheNewest { expected, actual }),
        // The policy may have changed between the two statements; where nothing was expected, nothing else can have refused.
        expected if append.tools && (expected.is_none() || !row.keeps_tools) => Err(StoreError::ToolsNotKept),
        // Another append came between the two statements, and the expectation holds now.
        Some(expected) => Err(StoreError::NotTheNewest { expected, actual }),
        None => Err(StoreError::NotFound(Entity::Conversation)),
    }
}

/// The answer of the earlier append with this `request_id`, if there was one.
async fn replay(db: &mut Link, caller: Caller, append: &Append) -> Result<Option<Appended>, StoreError> {
    let Some(request_id) = &append.request_id else { return Ok(None) };
    let rows = sqlx::query_file!("sql/append_replay.sql", caller.tenant().0, append.conversation.0, request_id)
        .fetch_all(&mut **db)
        .await?;
    let Some(first) = rows.first() else {
        let request = append.request();
        let earlier = requests::find(db, caller, append.conversation, &request).await?;
        return Ok(match earlier {
            Earlier::Done(_) => Some(Appended { messages: Vec::new(), replayed: true }),
            Earlier::None => None,
        });
    };
    let is_same = first.request_digest.as_deref() == Some(append.digest.as_slice());
    #[cfg(feature = "sabotage")]
    let is_same = is_same || crate::sabotage::breaks(crate::sabotage::Sabotage::AnyBody);
    if !is_same {
        return Err(StoreError::RequestIdReused);
    }
    let messages = rows
        .iter()
        .map(|row| AppendedMessage {
            id: MessageId(row.message_id),
            turn: row.turn,
            estimate: tokens(row.token_estimate),
        })
        .collect();
    Ok(Some(Appended { messages, replayed: true }))
}
