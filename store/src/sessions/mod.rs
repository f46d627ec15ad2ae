//! Sessions: which conversation is active in a place (a thread, a group, a person's direct chat).
//!
//! - `resolve`: finds the active conversation of a session key, and creates one if there is none.
//! - `rotate`: replaces the active conversation by a new one.
//!
//! A session's row is locked after its conversation's row, like all rows that belong to a
//! conversation. So a transaction that replaces the active conversation first locks that
//! conversation. If another one has become active meanwhile, the transaction is tried again.

mod resolve;
mod rotate;

pub use rotate::{Rotation, RotationAttributes};

use crate::{conversations::Conversation, rows::Micros};

/// Most tries of one call while other calls rotate or delete the same session. Each failed try
/// means that another call succeeded.
const MAX_TRIES: usize = 64;

/// A session with its active conversation, or with the one that a rotation has created.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredSession {
    /// The active conversation, or the one that a rotation has created.
    pub conversation: Conversation,
    /// When the session was created. None: it no longer exists, because its active conversation has
    /// been deleted.
    pub created: Option<Micros>,
    /// When the session was last rotated. None: never.
    pub rotated: Option<Micros>,
    /// Whether this call created the conversation. A repetition of a rotation with a request id
    /// counts as the call that it repeats.
    pub is_new: bool,
}

/// Builds a `StoredSession` from a row with all columns of a conversation, and `session_created_us`
/// and `rotated_us` of the session.
macro_rules! session {
    ($row:expr, $is_new:expr) => {{
        let row = $row;
        let conversation = $crate::conversations::ConversationRow {
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
            chat_options: None,
            revision: row.revision,
            session_key: row.session_key,
            last_message_id: row.last_message_id,
            withdrawn_messages: row.withdrawn_messages,
            forked_from_id: row.forked_from_id,
            forked_message_id: row.forked_message_id,
            counted_message_id: row.counted_message_id,
            token_total: row.token_total,
            turn: row.turn,
            created_us: row.created_us,
            last_activity_us: row.last_activity_us,
        };
        $crate::sessions::StoredSession {
            conversation: conversation.try_into()?,
            created: row.session_created_us.map($crate::rows::Micros),
            rotated: row.rotated_us.map($crate::rows::Micros),
            is_new: $is_new,
        }
    }};
}

pub(crate) use session;
