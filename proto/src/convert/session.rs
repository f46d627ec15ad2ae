//! Parses the scope of a chat, and converts chat types to protobuf.

use anneal_core::{
    limits::ID_BYTES,
    session_key::{ChatType, ResolvedScope, ScopeError, SessionScope},
};

use super::FieldError;
use crate::v1 as pb;

/// The scope of a chat, parsed.
#[derive(Debug)]
pub struct ParsedScope {
    /// The agent of the chat.
    pub agent: String,
    /// The session key and what else the scope resolves to.
    pub resolved: ResolvedScope,
}

/// Parses and resolves the scope in the field `scope`.
pub fn parse_scope(scope: Option<pb::SessionScope>) -> Result<ParsedScope, FieldError> {
    let scope = scope.ok_or_else(|| FieldError::invalid("scope", "must be given"))?;
    let scope = SessionScope {
        agent: scope.agent_id,
        channel: scope.channel,
        account: scope.account_id,
        chat_type: scope.chat_type,
        thread: scope.thread_id,
        group: scope.group_id,
        sender: scope.sender_id,
    };
    let resolved = scope.resolve().map_err(|error| match error {
        ScopeError::TooLong(field) => {
            FieldError::limit(format!("scope.{field}"), ID_BYTES, "bytes")
        }
        ScopeError::Nul(field) => {
            FieldError::invalid(format!("scope.{field}"), "must not contain NUL")
        }
        ScopeError::NoAgent => FieldError::invalid("scope.agent_id", "must not be empty"),
        ScopeError::NoGroup => FieldError::invalid(
            "scope.group_id",
            "must be given if the chat type is a group or thread, unless thread_id is given",
        ),
        ScopeError::NoGroupOrSender => FieldError::invalid(
            "scope.sender_id",
            "must be given if group_id is not, or if the chat is direct",
        ),
    })?;
    Ok(ParsedScope {
        agent: scope.agent,
        resolved,
    })
}

impl From<ChatType> for pb::ChatType {
    fn from(chat_type: ChatType) -> Self {
        match chat_type {
            ChatType::Unknown => Self::Unknown,
            ChatType::Direct => Self::Direct,
            ChatType::Group => Self::Group,
            ChatType::Thread => Self::Thread,
        }
    }
}
