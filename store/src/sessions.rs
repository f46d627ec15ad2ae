//! Sessions: which conversation is active in a chat.
//!
//! A session's row is locked after its conversation's, as everything is: whoever changes which conversation is active locks
//! the old one first, and looks again when it was too late.

use anneal_core::{
    caller::{Caller, ConversationId},
    digest::Digest,
    session_key::SessionKey,
};
use sqlx::{Connection as _, PgConnection};
use uuid::Uuid;

use crate::{
    Store,
    conversations::{self, Conversation, ConversationRow, CountedConversation},
    creation,
    error::{StoreError, violated},
    rows::{Micros, column, encoding_code, json},
};

/// How often one call looks again when others rotate or delete the same session meanwhile: each time one of them got on.
const ROUNDS: usize = 64;

/// A session, and the conversation that was asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredSession {
    /// The conversation: the active one, or the one that a rotation made.
    pub conversation: Conversation,
    /// When the session was first seen; None: its active conversation was deleted since.
    pub seen: Option<Micros>,
    /// When it last got a new conversation; None: never.
    pub rotated: Option<Micros>,
    /// The request made the conversation.
    pub made: bool,
}

/// How a rotation's conversation starts.
#[derive(Debug, Clone)]
pub enum Start {
    /// As the one before; as this where there is none.
    AsBefore(CountedConversation),
    /// As this.
    As(CountedConversation),
}

/// A rotation to make.
#[derive(Debug, Clone)]
pub struct Rotation<'a> {
    /// The session.
    pub key: &'a SessionKey,
    /// Makes it repeatable.
    pub request_id: Option<&'a str>,
    /// Digest of what the caller asked for.
    pub asked: Digest,
    /// How the new conversation starts.
    pub start: Start,
}

/// A session of a row that has all columns of a conversation beside the session's two.
macro_rules! session {
    ($row:expr, $made:expr) => {{
        let row = $row;
        let conversation = ConversationRow {
            conversation_id: row.conversation_id,
            agent_id: row.agent_id,
            user_id: row.user_id,
            title: row.title,
            status: row.status,
            pinned: row.pinned,
            metadata: row.metadata,
            system_prompt: row.system_prompt,
            policy: row.policy,
            encoding: row.encoding,
            revision: row.revision,
            session_key: row.session_key,
            last_message_id: row.last_message_id,
            counted_message_id: row.counted_message_id,
            token_total: row.token_total,
            turn: row.turn,
            created_us: row.created_us,
            last_activity_us: row.last_activity_us,
        };
        StoredSession {
            conversation: conversation.try_into()?,
            seen: row.seen_us.map(Micros),
            rotated: row.rotated_us.map(Micros),
            made: $made,
        }
    }};
}

impl Store {
    /// The session of a key with its active conversation, in one statement; where there is none, it is made from `new`. However
    /// many ask at once, one conversation is made.
    pub async fn resolve_session(
        &self,
        caller: Caller,
        key: &SessionKey,
        new: &CountedConversation,
    ) -> Result<StoredSession, StoreError> {
        let mut db = self.reads.checkout(caller).await?;
        let found = find(&mut db, caller, key).await;
        if let Some(session) = db.settle(found).await? {
            return Ok(session);
        }
        let mut db = self.writes.checkout(caller).await?;
        let made = make(&mut db, caller, key, new).await;
        db.settle(made).await
    }

    /// Puts a new conversation in the place of the active one, which is archived; with a request id once. A scope that has
    /// none yet gets its first.
    pub async fn rotate_session(&self, caller: Caller, rotation: &Rotation<'_>) -> Result<StoredSession, StoreError> {
        let mut db = self.writes.checkout(caller).await?;
        let rotated = rotate(&mut db, caller, rotation).await;
        db.settle(rotated).await
    }
}

/// The session of a key, if it is there.
async fn find(db: &mut PgConnection, caller: Caller, key: &SessionKey) -> Result<Option<StoredSession>, StoreError> {
    let row = sqlx::query_file!("sql/find_session.sql", caller.tenant().0, key.as_str()).fetch_optional(db).await?;
    Ok(match row {
        Some(row) => Some(session!(row, false)),
        None => None,
    })
}

/// The session of a key that was not there a moment ago: made, or found because somebody else was faster.
async fn make(
    db: &mut PgConnection,
    caller: Caller,
    key: &SessionKey,
    new: &CountedConversation,
) -> Result<StoredSession, StoreError> {
    for _ in 0..ROUNDS {
        let id = Uuid::now_v7();
        match creation::insert(db, caller, id, key.as_str(), None, new).await {
            Ok(()) => {}
            Err(error) if violated(&error) == Some("ai_session_pkey") => {}
            Err(error) => return Err(error.into()),
        }
        if let Some(session) = find(db, caller, key).await? {
            let made = session.conversation.id == ConversationId(id);
            return Ok(StoredSession { made, ..session });
        }
        // It was deleted in between.
    }
    Err(StoreError::SessionMoved)
}

async fn rotate(db: &mut PgConnection, caller: Caller, rotation: &Rotation<'_>) -> Result<StoredSession, StoreError> {
    let key = rotation.key.as_str().as_bytes();
    let derived = |request_id: &str| creation::derived_id(caller, [b"rotate", key, request_id.as_bytes()]);
    let id = rotation.request_id.map_or_else(Uuid::now_v7, derived);
    for _ in 0..ROUNDS {
        if rotation.request_id.is_some()
            && let Some(session) = rotated(db, caller, rotation, id).await?
        {
            return Ok(session);
        }
        let tried = match active(db, caller, rotation.key).await? {
            None => begin(db, caller, rotation, id).await?,
            Some(old) => replace(db, caller, rotation, old, id).await?,
        };
        if let Some(session) = tried {
            return Ok(session);
        }
    }
    Err(StoreError::SessionMoved)
}

/// The conversation that this rotation makes, if it is there.
async fn rotated(
    db: &mut PgConnection,
    caller: Caller,
    rotation: &Rotation<'_>,
    id: Uuid,
) -> Result<Option<StoredSession>, StoreError> {
    let row = sqlx::query_file!("sql/find_rotated.sql", caller.tenant().0, id).fetch_optional(db).await?;
    let Some(row) = row else { return Ok(None) };
    if rotation.request_id.is_some() && row.create_digest.as_deref() != Some(rotation.asked.as_slice()) {
        return Err(StoreError::RequestIdReused);
    }
    Ok(Some(session!(row, true)))
}

async fn active(db: &mut PgConnection, caller: Caller, key: &SessionKey) -> Result<Option<ConversationId>, StoreError> {
    let id = sqlx::query_scalar!(
        "select conversation_id from ai_session where tenant_id = $1 and session_key = $2",
        caller.tenant().0,
        key.as_str(),
    )
    .fetch_optional(db)
    .await?;
    Ok(id.map(ConversationId))
}

/// The first conversation of a scope; None: somebody else was faster.
async fn begin(
    db: &mut PgConnection,
    caller: Caller,
    rotation: &Rotation<'_>,
    id: Uuid,
) -> Result<Option<StoredSession>, StoreError> {
    let (Start::AsBefore(new) | Start::As(new)) = &rotation.start;
    let digest = rotation.request_id.map(|_| rotation.asked.as_slice());
    match creation::insert(db, caller, id, rotation.key.as_str(), digest, new).await {
        Ok(()) => rotated(db, caller, rotation, id).await,
        Err(error) if is_late(&error) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// A conversation in the place of the active one, under that one's row lock; None: somebody else was faster.
async fn replace(
    db: &mut PgConnection,
    caller: Caller,
    rotation: &Rotation<'_>,
    old: ConversationId,
    id: Uuid,
) -> Result<Option<StoredSession>, StoreError> {
    let mut tx = db.begin().await?;
    let placed = match conversations::locked(&mut tx, caller, old).await {
        Ok(_) => place(&mut tx, caller, rotation, old, id).await?,
        Err(StoreError::NotFound(_)) => Placed::TooLate,
        Err(error) => return Err(error),
    };
    match placed {
        Placed::Done => {
            // Read before others can see, and delete, it.
            let session = rotated(&mut tx, caller, rotation, id).await?;
            tx.commit().await?;
            Ok(session)
        }
        Placed::TooLate => {
            tx.rollback().await?;
            Ok(None)
        }
    }
}

/// What became of the new conversation.
enum Placed {
    /// It is the active one.
    Done,
    /// Another one has become active meanwhile, or this one was made by the same request.
    TooLate,
}

async fn place(
    tx: &mut PgConnection,
    caller: Caller,
    rotation: &Rotation<'_>,
    old: ConversationId,
    id: Uuid,
) -> Result<Placed, StoreError> {
    let (new, tokens) = match &rotation.start {
        Start::As(counted) => (Some(&counted.new), Some(column(counted.system_prompt_tokens))),
        Start::AsBefore(_) => (None, None),
    };
    let inserted = sqlx::query_file!(
        "sql/rotate_session.sql",
        caller.tenant().0,
        rotation.key.as_str(),
        old.0,
        id,
        new.map(|new| new.agent_id.as_str()),
        new.map(|new| new.user_id.as_str()),
        new.map(|new| new.title.as_str()),
        new.map(|new| new.pinned),
        new.map(|new| json(&new.metadata)),
        new.map(|new| new.system_prompt.as_str()),
        tokens,
        new.map(|new| json(&new.policy)),
        new.map(|new| encoding_code(new.encoding)),
        rotation.request_id.map(|_| rotation.asked.as_slice()),
    )
    .execute(tx)
    .await;
    match inserted {
        Ok(done) if done.rows_affected() == 1 => Ok(Placed::Done),
        Ok(_) => Ok(Placed::TooLate),
        Err(error) if is_late(&error) => Ok(Placed::TooLate),
        Err(error) => Err(error.into()),
    }
}

/// Whether the session, or the conversation of a repeated rotation, was made by somebody else just now.
fn is_late(error: &sqlx::Error) -> bool {
    matches!(violated(error), Some("ai_session_pkey" | "ai_conversation_pkey"))
}
