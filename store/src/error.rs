//! What can go wrong in the store, by what the caller does about it.

use anneal_core::{adoption::Unsound, message::MessageId};
use sqlx::postgres::PgDatabaseError;

/// What was looked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Entity {
    /// A conversation.
    Conversation,
    /// A message.
    Message,
    /// A separator.
    Separator,
    /// A job.
    Job,
}

impl std::fmt::Display for Entity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Conversation => "conversation",
            Self::Message => "message",
            Self::Separator => "separator",
            Self::Job => "job",
        })
    }
}

/// A failed call of the store.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The conversation keeps no tool calls and results, and there are some among the messages to append.
    #[error("the conversation keeps no tool messages")]
    ToolsNotKept,
    /// Not there, or another tenant's: the two cannot be told apart.
    #[error("{0} not found")]
    NotFound(Entity),
    /// The `request_id` was used for something else.
    #[error("request id was used for another request")]
    RequestIdReused,
    /// The conversation has moved on.
    #[error("the newest message is {actual}, not {expected}")]
    NotTheNewest {
        /// What the caller expected.
        expected: MessageId,
        /// What is stored.
        actual: MessageId,
    },
    /// The summary cannot stand for these messages.
    #[error(transparent)]
    Unsound(#[from] Unsound),
    /// The conversation was changed since its etag was read.
    #[error("the conversation was changed in between")]
    EtagMismatch,
    /// Others rotated and deleted the session again and again; a retry can succeed.
    #[error("the session was rotated or deleted by others again and again")]
    SessionMoved,
    /// The job's lease ended, and with it the right to write its results.
    #[error("lease is no longer ours")]
    LeaseLost,
    /// Two transactions were in each other's way; a retry can succeed.
    #[error("transactions were in each other's way")]
    Conflict(#[source] Cause),
    /// Every connection of the pool was busy for too long.
    #[error("no free connection")]
    Busy,
    /// The tenant's share of the pool's connections was in use for too long.
    #[error("the tenant's share of the connections is in use")]
    ShareInUse,
    /// The database cannot be reached, or is shutting down; a retry can succeed.
    #[error("database unavailable")]
    Unavailable(#[source] Cause),
    /// The database has not answered in the time that its asker gives it; a retry can succeed.
    #[error("the database does not answer")]
    Silent,
    /// The statement took longer than it may.
    #[error("statement took too long")]
    Slow(#[source] Cause),
    /// A bug, or a schema that does not fit.
    #[error("database failed")]
    Database(#[source] Cause),
    /// A stored value that the code cannot read: a newer version wrote it, or a bug.
    #[error("stored {0} cannot be read")]
    Unreadable(&'static str),
    /// The settings do not make a connection.
    #[error("database_url cannot be used")]
    BadUrl(#[source] Cause),
    /// The database is beyond this machine, and its certificate would not be verified.
    #[error(
        "the database is at {host}, which is not this machine, and whoever stands in between could answer in its place: add \
         sslmode=verify-full to database.url (with sslrootcert=FILE, where the authority is your own), or set \
         database.insecure where nobody else is on that network"
    )]
    Unprotected {
        /// The host's name or address.
        host: String,
    },
}

impl StoreError {
    /// Whether the data said no: every statement came to its end, the connection is sound.
    pub(crate) const fn is_refusal(&self) -> bool {
        matches!(
            self,
            Self::ToolsNotKept
                | Self::NotFound(_)
                | Self::RequestIdReused
                | Self::NotTheNewest { .. }
                | Self::Unsound(_)
                | Self::EtagMismatch
                | Self::SessionMoved
                | Self::LeaseLost
        )
    }

    /// Whether it says something of this moment alone: the same may be taken at the next try.
    pub const fn may_pass(&self) -> bool {
        matches!(
            self,
            Self::Busy | Self::ShareInUse | Self::Silent | Self::Unavailable(_) | Self::Conflict(_) | Self::Slow(_)
        )
    }
}

impl From<sqlx::Error> for StoreError {
    fn from(error: sqlx::Error) -> Self {
        let Some(code) = error.as_database_error().and_then(|error| error.code().map(std::borrow::Cow::into_owned))
        else {
            return match error {
                sqlx::Error::Io(_) | sqlx::Error::Tls(_) | sqlx::Error::Protocol(_) => Self::Unavailable(error.into()),
                sqlx::Error::PoolTimedOut => Self::Busy,
                other => Self::Database(other.into()),
            };
        };
        match code.as_str() {
            "40001" | "40P01" | "55P03" => Self::Conflict(error.into()),
            "57014" => Self::Slow(error.into()),
            // Read-only: a standby answers. A transaction idle for too long: this process was stopped. Starting up or going down, out of connections, out of resources.
            "25006" | "25P03" | "57P01" | "57P02" | "57P03" => Self::Unavailable(error.into()),
            class if class.starts_with("08") || class.starts_with("53") => Self::Unavailable(error.into()),
            _ => Self::Database(error.into()),
        }
    }
}

/// What the driver says of a failure. Shown, for a reader or for a developer, it is the code, the message, the constraint and
/// the place in PostgreSQL's source: never the row or the value that it speaks of, which may be what somebody said.
pub struct Cause(sqlx::Error);

impl Cause {
    pub(crate) const fn error(&self) -> &sqlx::Error {
        &self.0
    }
}

impl From<sqlx::Error> for Cause {
    fn from(error: sqlx::Error) -> Self {
        Self(error)
    }
}

impl std::error::Error for Cause {}

impl std::fmt::Debug for Cause {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Cause({self})")
    }
}

impl std::fmt::Display for Cause {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Some(error) = self.0.as_database_error() else {
            return match &self.0 {
                sqlx::Error::ColumnDecode { index, .. } => write!(f, "column {index} cannot be decoded"),
                sqlx::Error::Decode(_) => f.write_str("a value cannot be decoded"),
                sqlx::Error::Encode(_) => f.write_str("a value cannot be encoded"),
                other => other.fmt(f),
            };
        };
        let code = error.code().unwrap_or_default();
        // Class 22 is about a value, which its message quotes.
        let message = if code.starts_with("22") { "a value cannot be taken" } else { error.message() };
        write!(f, "{message} ({code}")?;
        if let Some(constraint) = error.constraint() {
            write!(f, ", constraint {constraint}")?;
        }
        if let Some(routine) = error.try_downcast_ref::<PgDatabaseError>().and_then(PgDatabaseError::routine) {
            write!(f, ", {routine}")?;
        }
        f.write_str(")")
    }
}

/// The name of the constraint that a statement violated, if it violated one.
pub(crate) fn violated(error: &sqlx::Error) -> Option<&str> {
    error.as_database_error().and_then(sqlx::error::DatabaseError::constraint)
}
