//! Conversations: made, read, listed, changed, deleted.

use std::collections::BTreeMap;

use anneal_core::{
    caller::{Caller, ConversationId},
    digest::{self, Digest},
    message::MessageId,
    policy::PolicyOverrides,
    tokens::{Encoding, Tokens},
    trigger,
};
use sqlx::{Connection as _, PgConnection};
use uuid::Uuid;

use crate::{
    Store, creation,
    error::{Entity, StoreError, violated},
    failpoint, jobs,
    requests::{self, Earlier, Request},
    rows::{self, Micros, column, encoding_code, json, tokens},
    rules::{self, Rules},
    tail,
};

/// Whether a conversation is in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConversationStatus {
    /// In use.
    Active,
    /// Put away.
    Archived,
}

impl ConversationStatus {
    pub(crate) const fn code(self) -> i16 {
        match self {
            Self::Active => 1,
            Self::Archived => 2,
        }
    }
}

/// A conversation to make.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NewConversation {
    /// The application's agent.
    pub agent_id: String,
    /// The application's end user.
    pub user_id: String,
    /// Shown in lists.
    pub title: String,
    /// Shown first by those who want to.
    pub pinned: bool,
    /// The caller's labels.
    pub metadata: BTreeMap<String, String>,
    /// Sent before everything else.
    pub system_prompt: String,
    /// What it overrides of the server's settings.
    pub policy: PolicyOverrides,
    /// What its tokens are counted in.
    pub encoding: Encoding,
}

/// A stored conversation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conversation {
    /// Its id.
    pub id: ConversationId,
    /// What its creator said.
    pub given: NewConversation,
    /// Whether it is in use.
    pub status: ConversationStatus,
    /// Changes with every update.
    pub revision: i64,
    /// The session that it was made for; '' for none.
    pub session_key: String,
    /// The newest message = the number of messages.
    pub last_message_id: MessageId,
    /// Every message up to this one is counted.
    pub counted: MessageId,
    /// Tokens of all messages.
    pub token_total: Tokens,
    /// The newest message's turn.
    pub turn: i32,
    /// When it was made.
    pub created: Micros,
    /// When its newest message was stored.
    pub last_activity: Micros,
}

/// Changes to a conversation; None leaves a field as it is.
#[derive(Debug, Clone, Default)]
pub struct ConversationChange {
    /// The new title.
    pub title: Option<String>,
    /// The new status.
    pub status: Option<ConversationStatus>,
    /// The new mark.
    pub pinned: Option<bool>,
    /// The new labels, all of them.
    pub metadata: Option<BTreeMap<String, String>>,
    /// The new system prompt.
    pub system_prompt: Option<String>,
    /// The new overrides, all of them.
    pub policy: Option<PolicyOverrides>,
    /// Only when this is still the revision.
    pub revision: Option<i64>,
}

/// A conversation as statements read it.
pub(crate) struct ConversationRow {
    pub(crate) conversation_id: Uuid,
    pub(crate) agent_id: String,
    pub(crate) user_id: String,
    pub(crate) title: String,
    pub(crate) status: i16,
    pub(crate) pinned: bool,
    pub(crate) metadata: String,
    pub(crate) system_prompt: String,
    pub(crate) policy: String,
    pub(crate) encoding: i16,
    pub(crate) revision: i64,
    pub(crate) session_key: String,
    pub(crate) last_message_id: i64,
    pub(crate) counted_message_id: i64,
    pub(crate) token_total: i64,
    pub(crate) turn: i32,
    pub(crate) created_us: i64,
    pub(crate) last_activity_us: i64,
}

impl TryFrom<ConversationRow> for Conversation {
    type Error = StoreError;

    fn try_from(row: ConversationRow) -> Result<Self, StoreError> {
        Ok(Self {
            id: ConversationId(row.conversation_id),
            given: NewConversation {
                agent_id: row.agent_id,
                user_id: row.user_id,
                title: row.title,
                pinned: row.pinned,
                metadata: rows::labels(Some(&row.metadata))?,
                system_prompt: row.system_prompt,
                policy: rules::overrides(&row.policy)?,
                encoding: rows::encoding(row.encoding)?,
            },
            status: if row.status == 1 { ConversationStatus::Active } else { ConversationStatus::Archived },
            revision: row.revision,
            session_key: row.session_key,
            last_message_id: MessageId(row.last_message_id),
            counted: MessageId(row.counted_message_id),
            token_total: tokens(row.token_total),
            turn: row.turn,
            created: Micros(row.created_us),
            last_activity: Micros(row.last_activity_us),
        })
    }
}

impl NewConversation {
    /// Digest of what is asked for: two equal ones ask for the same conversation.
    pub fn digest(&self) -> Digest {
        let (metadata, policy) = (json(&self.metadata), json(&self.policy));
        digest::of_fields([
            self.agent_id.as_bytes(),
            self.user_id.as_bytes(),
            self.title.as_bytes(),
            &[u8::from(self.pinned), encoding_code(self.encoding) as u8],
            metadata.as_bytes(),
            self.system_prompt.as_bytes(),
            policy.as_bytes(),
        ])
    }

    /// Counts the system prompt: up to 256 KiB, so that this may take tens of milliseconds. Nothing of the database is held
    /// meanwhile.
    pub fn counted(self) -> CountedConversation {
        let system_prompt_tokens = self.encoding.counter().count(&self.system_prompt);
        CountedConversation { new: self, system_prompt_tokens }
    }
}

/// A conversation to make, whose system prompt is counted: what is stored of it is all known before a connection is taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CountedConversation {
    pub(crate) new: NewConversation,
    pub(crate) system_prompt_tokens: Tokens,
}

impl CountedConversation {
    /// Tokens of its system prompt.
    pub const fn system_prompt_tokens(&self) -> Tokens {
        self.system_prompt_tokens
    }

    /// The same conversation with these settings.
    #[must_use]
    pub fn under(self, policy: PolicyOverrides) -> Self {
        Self { new: NewConversation { policy, ..self.new }, ..self }
    }
}

impl Store {
    /// Makes a conversation; with a request id the same one however often. `asked` is the digest of what the caller said of
    /// it itself: a repeated request is known by that, whatever the settings have added since.
    pub async fn create_conversation(
        &self,
        caller: Caller,
        request_id: Option<&str>,
        asked: Digest,
        new: &CountedConversation,
    ) -> Result<Conversation, StoreError> {
        let derived = |request_id: &str| creation::derived_id(caller, [b"create", request_id.as_bytes()]);
        let id = request_id.map_or_else(Uuid::now_v7, derived);
        let digest = request_id.map(|_| asked.as_slice());
        let mut db = self.writes.checkout(caller).await?;
        match creation::insert(&mut db, caller, id, "", digest, new).await {
            Ok(()) => {}
            Err(error) if violated(&error) == Some("ai_conversation_pkey") => {
                let stored = sqlx::query_scalar!(
                    "select create_digest from ai_conversation where tenant_id = $1 and conversation_id = $2",
                    caller.tenant().0,
                    id,
                )
                .fetch_optional(&mut *db)
                .await?;
                if stored.flatten().as_deref() != Some(asked.as_slice()) {
                    db.release().await?;
                    return Err(StoreError::RequestIdReused);
                }
            }
            Err(error) => return Err(error.into()),
        }
        failpoint!("create.inserted");
        let made = one(&mut db, caller, ConversationId(id)).await?;
        db.release().await?;
        Ok(made)
    }

    /// One conversation.
    pub async fn conversation(&self, caller: Caller, id: ConversationId) -> Result<Conversation, StoreError> {
        let mut db = self.reads.checkout(caller).await?;
        #[cfg(feature = "sabotage")]
        let caller = crate::sabotage::anybody(&mut db, caller, id).await;
        let found = one(&mut db, caller, id).await;
        db.settle(found).await
    }

    /// Changes a conversation; with a request id once. A new policy makes the triggers look again. A new system prompt comes
    /// counted, in the conversation's encoding, which never changes: nothing is counted under the row lock.
    pub async fn update_conversation(
        &self,
        caller: Caller,
        id: ConversationId,
        request_id: Option<&str>,
        digest: Digest,
        change: &ConversationChange,
        prompt_tokens: Option<Tokens>,
    ) -> Result<Conversation, StoreError> {
        let request = Request { method: "update_conversation", id: request_id, digest };
        let mut db = self.writes.checkout(caller).await?;
        let changed = update(&mut db, caller, id, &request, (change, prompt_tokens), &self.rules).await;
        db.settle(changed).await
    }
}

async fn update(
    db: &mut PgConnection,
    caller: Caller,
    id: ConversationId,
    request: &Request<'_>,
    (change, prompt_tokens): (&ConversationChange, Option<Tokens>),
    rules: &Rules,
) -> Result<Conversation, StoreError> {
    let mut tx = db.begin().await?;
    let revision = locked(&mut tx, caller, id).await?;
    if let Earlier::None = requests::find(&mut tx, caller, id, request).await? {
        if change.revision.is_some_and(|expected| expected != revision) {
            return Err(StoreError::EtagMismatch);
        }
        sqlx::query_file!(
            "sql/update_conversation.sql",
            caller.tenant().0,
            id.0,
            change.title,
            change.status.map(ConversationStatus::code),
            change.pinned,
            change.metadata.as_ref().map(json),
            change.system_prompt,
            prompt_tokens.map(column),
            change.policy.as_ref().map(json),
        )
        .execute(&mut *tx)
        .await?;
        if change.policy.is_some() || change.system_prompt.is_some() {
            let state = tail::state(&mut tx, caller, id, rules).await?;
            jobs::enqueue(&mut tx, caller, id, &trigger::jobs(&state)).await?;
        }
        requests::put(&mut tx, caller, id, request, None).await?;
    }
    let changed = one(&mut tx, caller, id).await?;
    tx.commit().await?;
    Ok(changed)
}

async fn one(db: &mut PgConnection, caller: Caller, id: ConversationId) -> Result<Conversation, StoreError> {
    sqlx::query_file_as!(ConversationRow, "sql/get_conversation.sql", caller.tenant().0, id.0)
        .fetch_optional(db)
        .await?
        .ok_or(StoreError::NotFound(Entity::Conversation))?
        .try_into()
}

/// Takes the conversation's row lock. Every transaction that changes more than one table takes it first: conversation,
/// then messages, then jobs, so that no two wait for each other. Rows that only refer to the conversation are not held up.
/// Returns the conversation's revision.
pub(crate) async fn locked(db: &mut PgConnection, caller: Caller, id: ConversationId) -> Result<i64, StoreError> {
    sqlx::query_scalar!(
        "select revision from ai_conversation where tenant_id = $1 and conversation_id = $2 for no key update",
        caller.tenant().0,
        id.0,
    )
    .fetch_optional(db)
    .await?
    .ok_or(StoreError::NotFound(Entity::Conversation))
}
