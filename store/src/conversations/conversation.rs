//! A conversation's types, and reading one conversation.

use std::collections::BTreeMap;

use anneal_core::{
    caller::{Caller, ConversationId},
    chat_options::ChatOptions,
    digest::{self, Digest},
    message::MessageId,
    policy::PolicyOverrides,
    tokens::{Encoding, Tokens},
};
use uuid::Uuid;

use crate::{
    Store,
    connection::BoundedConnection,
    error::{Entity, StoreError},
    policy_defaults,
    rows::{self, Micros, encoding_code, json, tokens},
};

/// Whether a conversation is in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConversationStatus {
    /// In use.
    Active,
    /// Archived.
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

/// The attributes of a conversation to create.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NewConversation {
    /// The application's agent.
    pub agent_id: String,
    /// The application's end user.
    pub user_id: String,
    /// Title, shown in lists.
    pub title: String,
    /// Whether applications should show it first in lists.
    pub pinned: bool,
    /// Labels of the caller.
    pub metadata: BTreeMap<String, String>,
    /// The text with which every context of the conversation begins.
    pub system_prompt: String,
    /// The server's settings that this conversation overrides.
    pub policy: PolicyOverrides,
    /// The encoding that its tokens are counted in.
    pub encoding: Encoding,
    /// Options of its turns; empty: none. Lists and sessions leave them out.
    pub chat_options: ChatOptions,
}

/// A stored conversation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conversation {
    /// Id of the conversation.
    pub id: ConversationId,
    /// The attributes with which it was created, as later updates have changed them.
    pub attributes: NewConversation,
    /// Whether it is in use.
    pub status: ConversationStatus,
    /// A number that changes with every update and with every change of stored messages. The etag
    /// is made from it.
    pub revision: i64,
    /// The session key that it was created for; empty for none.
    pub session_key: String,
    /// Id of the newest message. Ids count up from 1, so this is also the number of messages,
    /// withdrawn ones included.
    pub last_message_id: MessageId,
    /// Number of messages that are withdrawn or erased.
    pub withdrawn: i64,
    /// Where its first messages were copied from; None: it is no fork.
    pub forked_from: Option<ForkOrigin>,
    /// Every message up to this one is counted.
    pub counted: MessageId,
    /// Tokens of all messages: counts, or estimates of messages that are not counted yet.
    pub token_total: Tokens,
    /// The turn of the newest message that stands.
    pub turn: i32,
    /// Time of creation.
    pub created: Micros,
    /// Time at which the newest message was stored; the time of creation if there is none.
    pub last_activity: Micros,
}

/// The place at which a fork leaves its source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ForkOrigin {
    /// The conversation that was forked. It may be deleted since.
    pub conversation: ConversationId,
    /// The newest message that the fork took over.
    pub message: MessageId,
}

/// Changes to a conversation; None leaves a field as it is.
#[derive(Debug, Clone, Default)]
pub struct ConversationChange {
    /// The new title.
    pub title: Option<String>,
    /// The new status.
    pub status: Option<ConversationStatus>,
    /// Whether it is pinned.
    pub pinned: Option<bool>,
    /// The new labels; they replace all old ones.
    pub metadata: Option<BTreeMap<String, String>>,
    /// The new system prompt.
    pub system_prompt: Option<String>,
    /// The new overrides; they replace all old ones.
    pub policy: Option<PolicyOverrides>,
    /// The new options of turns; they replace all old ones. Empty: none.
    pub chat_options: Option<ChatOptions>,
    /// Not a change: the conversation is changed only if this is still its revision. None: it is
    /// changed whatever its revision is.
    pub revision: Option<i64>,
}

impl ConversationChange {
    /// Digest of the change: equal changes have equal digests. A request that a client repeats
    /// after an upgrade must have the same digest, so the names and forms of fields here never
    /// change, and fields that are None are no part of it.
    pub fn digest(&self) -> Digest {
        let status = self.status.map(|status| status.code().to_be_bytes());
        let pinned = self.pinned.map(|pinned| [u8::from(pinned)]);
        let metadata = self.metadata.as_ref().map(json);
        let policy = self.policy.as_ref().map(json);
        let chat_options = self.chat_options.as_ref().map(json);
        let revision = self.revision.map(i64::to_be_bytes);
        let fields = [
            ("title", self.title.as_deref().map(str::as_bytes)),
            ("status", status.as_ref().map(<[u8; 2]>::as_slice)),
            ("pinned", pinned.as_ref().map(<[u8; 1]>::as_slice)),
            ("metadata", metadata.as_deref().map(str::as_bytes)),
            (
                "system_prompt",
                self.system_prompt.as_deref().map(str::as_bytes),
            ),
            ("policy", policy.as_deref().map(str::as_bytes)),
            ("chat_options", chat_options.as_deref().map(str::as_bytes)),
            ("revision", revision.as_ref().map(<[u8; 8]>::as_slice)),
        ];
        let given = fields
            .iter()
            .filter_map(|(name, value)| value.map(|value| [name.as_bytes(), value]));
        digest::of_fields(given.flatten())
    }
}

/// A conversation's columns, as statements read them.
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
    pub(crate) chat_options: Option<String>,
    pub(crate) revision: i64,
    pub(crate) session_key: String,
    pub(crate) last_message_id: i64,
    pub(crate) withdrawn_messages: i64,
    pub(crate) forked_from_id: Option<Uuid>,
    pub(crate) forked_message_id: Option<i64>,
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
            attributes: NewConversation {
                agent_id: row.agent_id,
                user_id: row.user_id,
                title: row.title,
                pinned: row.pinned,
                metadata: rows::labels(Some(&row.metadata))?,
                system_prompt: row.system_prompt,
                policy: policy_defaults::parse_overrides(&row.policy)?,
                encoding: rows::encoding(row.encoding)?,
                chat_options: chat_options(row.chat_options.as_deref())?,
            },
            status: if row.status == 1 {
                ConversationStatus::Active
            } else {
                ConversationStatus::Archived
            },
            revision: row.revision,
            session_key: row.session_key,
            last_message_id: MessageId(row.last_message_id),
            withdrawn: row.withdrawn_messages,
            forked_from: row.forked_from_id.map(|conversation| ForkOrigin {
                conversation: ConversationId(conversation),
                message: MessageId(row.forked_message_id.unwrap_or(0)),
            }),
            counted: MessageId(row.counted_message_id),
            token_total: tokens(row.token_total),
            turn: row.turn,
            created: Micros(row.created_us),
            last_activity: Micros(row.last_activity_us),
        })
    }
}

/// The options of turns in a column; an empty value for null.
fn chat_options(stored: Option<&str>) -> Result<ChatOptions, StoreError> {
    stored.map_or_else(
        || Ok(ChatOptions::default()),
        |stored| {
            serde_json::from_str(stored).map_err(|_| StoreError::Unreadable("options of turns"))
        },
    )
}

/// The value of the column for options of turns; None for empty options.
pub(crate) fn chat_options_column(options: &ChatOptions) -> Option<String> {
    (*options != ChatOptions::default()).then(|| json(options))
}

impl NewConversation {
    /// Digest of the attributes: conversations with equal attributes have equal digests. A request
    /// that a client repeats after an upgrade must have the same digest, so empty options of turns
    /// are no part of it.
    pub fn digest(&self) -> Digest {
        let (metadata, policy) = (json(&self.metadata), json(&self.policy));
        let chat_options = chat_options_column(&self.chat_options);
        let fixed = [
            self.agent_id.as_bytes(),
            self.user_id.as_bytes(),
            self.title.as_bytes(),
            &[u8::from(self.pinned), encoding_code(self.encoding) as u8],
            metadata.as_bytes(),
            self.system_prompt.as_bytes(),
            policy.as_bytes(),
        ];
        digest::of_fields(
            fixed
                .into_iter()
                .chain(chat_options.as_deref().map(str::as_bytes)),
        )
    }

    /// Counts the system prompt's tokens. It has up to 256 KiB, so this may take tens of
    /// milliseconds. Call it before a database connection is taken.
    pub fn counted(self) -> CountedConversation {
        let system_prompt_tokens = self.encoding.counter().count(&self.system_prompt);
        CountedConversation {
            new: self,
            system_prompt_tokens,
        }
    }
}

/// A conversation to create, with the token count of its system prompt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CountedConversation {
    pub(crate) new: NewConversation,
    pub(crate) system_prompt_tokens: Tokens,
}

impl CountedConversation {
    /// Tokens of the system prompt.
    pub const fn system_prompt_tokens(&self) -> Tokens {
        self.system_prompt_tokens
    }

    /// The same conversation with other overrides.
    #[must_use]
    pub fn with_policy(self, policy: PolicyOverrides) -> Self {
        Self {
            new: NewConversation { policy, ..self.new },
            ..self
        }
    }
}

impl Store {
    /// Reads one conversation.
    pub async fn get_conversation(
        &self,
        caller: Caller,
        id: ConversationId,
    ) -> Result<Conversation, StoreError> {
        let mut db = self.reads.checkout(caller).await?;
        let found = select_conversation(&mut db, caller, id).await;
        db.settle(found).await
    }

    /// The tokens of all messages of a conversation. The rest of its row may be large, and is not
    /// read. None: there is no such conversation.
    pub async fn read_token_total(
        &self,
        caller: Caller,
        id: ConversationId,
    ) -> Result<Option<Tokens>, StoreError> {
        let mut db = self.reads.checkout(caller).await?;
        let total = sqlx::query_scalar!(
            "select token_total from ai_conversation where tenant_id = $1 and conversation_id = $2",
            caller.tenant().0,
            id.0,
        )
        .fetch_optional(&mut *db)
        .await?;
        db.release().await?;
        Ok(total.map(tokens))
    }
}

/// Reads one conversation, as the current transaction sees it.
pub(crate) async fn select_conversation(
    db: &mut BoundedConnection,
    caller: Caller,
    id: ConversationId,
) -> Result<Conversation, StoreError> {
    sqlx::query_file_as!(
        ConversationRow,
        "sql/get_conversation.sql",
        caller.tenant().0,
        id.0
    )
    .fetch_optional(db)
    .await?
    .ok_or(StoreError::NotFound(Entity::Conversation))?
    .try_into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_repeated_after_an_upgrade_has_the_same_digest() {
        let change = ConversationChange {
            title: Some("New".into()),
            status: Some(ConversationStatus::Archived),
            pinned: Some(false),
            metadata: Some(BTreeMap::from([("k".into(), "v".into())])),
            system_prompt: Some(String::new()),
            policy: Some(PolicyOverrides {
                max_message_count: Some(40),
                ..PolicyOverrides::default()
            }),
            chat_options: None,
            revision: Some(258),
        };
        let fields: [&[u8]; 14] = [
            b"title",
            b"New",
            b"status",
            &[0, 2],
            b"pinned",
            &[0],
            b"metadata",
            br#"{"k":"v"}"#,
            b"system_prompt",
            b"",
            b"policy",
            br#"{"max_message_count":40}"#,
            b"revision",
            &[0, 0, 0, 0, 0, 0, 1, 2],
        ];
        assert_eq!(change.digest(), digest::of_fields(fields));
        assert_eq!(
            ConversationChange::default().digest(),
            digest::of_fields([])
        );
    }
}
