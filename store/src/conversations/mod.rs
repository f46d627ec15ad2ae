//! Conversations: rows of `ai_conversation`.
//!
//! - `conversation`: the types, and reading one conversation.
//! - `create`: creates a conversation, once per request id.
//! - `insert`: the id and the row of a new conversation, for every way to create one.
//! - `update`: changes a conversation, once per request id.
//! - `list`: lists, each kind with its own statement and index.
//! - `lock`: the row locks, and the order in which they are taken.
//! - `delete`: deletes conversations and everything derived from them.
//! - `separators`: the user's marks after which contexts start.

mod conversation;
mod create;
mod delete;
pub(crate) mod insert;
mod list;
mod lock;
pub(crate) mod separators;
mod update;

pub use conversation::{
    Conversation, ConversationChange, ConversationStatus, CountedConversation, ForkOrigin,
    NewConversation,
};
pub use list::{ConversationFilter, ConversationPage};
pub use separators::{OpenToolCalls, Separator};

pub(crate) use conversation::{ConversationRow, select_conversation};
pub(crate) use delete::{DeletedRows, delete_messages_of, delete_rest_of, subtract_usage};
pub(crate) use list::LISTING_STEP_SECONDS;
pub(crate) use lock::{
    AppendHead, ChangeHead, keep_conversation, lift_binding, lock_conversation, lock_for_append,
    lock_for_change, lock_for_deletion,
};
