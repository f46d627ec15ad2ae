//! The store's errors, grouped by what the caller does about them.

use std::time::Duration;

use anneal_core::{
    caller::ConversationId, checkpoint_import::InvalidCheckpoint, message::MessageId,
};
use sqlx::{migrate::MigrateError, postgres::PgDatabaseError};

/// The kind of row that was not found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Entity {
    /// A conversation.
    Conversation,
    /// A message.
    Message,
    /// A version of a message.
    Version,
    /// A separator.
    Separator,
    /// An earlier answer to a question.
    Alternative,
    /// A job.
    Job,
    /// A response.
    Response,
    /// An erasure.
    Erasure,
}

impl std::fmt::Display for Entity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Conversation => "conversation",
            Self::Message => "message",
            Self::Version => "version",
            Self::Separator => "separator",
            Self::Alternative => "answer",
            Self::Job => "job",
            Self::Response => "response",
            Self::Erasure => "erasure",
        })
    }
}

/// Error of a call of the store.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The row does not exist or belongs to another tenant. The caller cannot tell the two apart.
    #[error("{0} not found")]
    NotFound(Entity),
    /// The `request_id` was used for a different request.
    #[error("request id was used for another request")]
    RequestIdReused,
    /// The `request_id` was used for a different request, which has created this conversation.
    #[error("request id was used for another request")]
    RequestIdCreated(ConversationId),
    /// The conversation's newest message is not the one that the caller expected.
    #[error("the newest message is {actual}, not {expected}")]
    NotTheNewest {
        /// The newest message that the caller expected.
        expected: MessageId,
        /// The newest message that is stored.
        actual: MessageId,
    },
    /// The conversation has no message with this id, which the call names.
    #[error("message {0} not found")]
    UnknownMessage(MessageId),
    /// The message is withdrawn.
    #[error("message {0} is withdrawn")]
    MessageWithdrawn(MessageId),
    /// The message's content was erased, so it cannot be restored.
    #[error("the content of message {0} was erased")]
    MessageErased(MessageId),
    /// A separator stands after the message, so contexts do not contain it.
    #[error("message {0} stands before a separator")]
    BeforeSeparator(MessageId),
    /// The version of the message that stands is not the one that the caller expected.
    #[error("the message's version is {actual}, not {expected}")]
    VersionMismatch {
        /// The version that the caller expected.
        expected: i32,
        /// The version that stands.
        actual: i32,
    },
    /// The new content of an edited message has another role than the message.
    #[error("the message has another role")]
    OtherRole,
    /// The new content of an edited message has tool calls or results with other ids.
    #[error("the message has other tool calls or results")]
    OtherToolCalls,
    /// A tool result of the message answers no call that stands.
    #[error("a tool result of message {0} answers no call that stands")]
    ToolCallMissing(MessageId),
    /// The call would change more messages than one call may. The other halves of the tool pairs of
    /// the selected messages count.
    #[error("more messages than one call may change")]
    TooManyMessages,
    /// As many compactions as one job makes wait for the conversation's job already.
    #[error("too many compactions wait for one checkpoint")]
    TooManyCompactions,
    /// The newest turn has a tool call without a result, which a separator would part from it.
    #[error("a tool call of the newest turn has no result yet")]
    ToolCallOpen,
    /// A restored message needs a token count that the caller has not given.
    #[error("a restored message needs a token count")]
    CountMissing,
    /// The imported summary cannot replace these messages.
    #[error(transparent)]
    InvalidCheckpoint(#[from] InvalidCheckpoint),
    /// The conversation was changed after its etag was read.
    #[error("the conversation was changed after its etag was read")]
    EtagMismatch,
    /// Other calls rotated or deleted the session again and again; a retry can succeed.
    #[error("the session was rotated or deleted by others again and again")]
    SessionMoved,
    /// The lease of a job or of a turn ended; its results may not be written any more.
    #[error("lease is no longer ours")]
    LeaseLost,
    /// Two transactions were in conflict; a retry can succeed.
    #[error("two transactions were in conflict")]
    Conflict(#[source] Cause),
    /// Every connection of the pool, or every permit to lock a model's row, was in use for too
    /// long.
    #[error("no free connection")]
    Busy,
    /// The tenant's share of the pool's connections was in use for too long.
    #[error("the tenant's share of the connections is in use")]
    ShareInUse,
    /// The database cannot be reached, or cannot work now (it stops or starts, is read-only, or
    /// lacks memory, disk space or connections); a retry can succeed.
    #[error("database unavailable")]
    Unavailable(#[source] Cause),
    /// The database has not answered within the store's deadline; a retry can succeed. The
    /// statement may or may not have been executed.
    #[error("the database does not answer")]
    Unresponsive,
    /// The statement exceeded the statement timeout, or an operator cancelled it.
    #[error("statement took too long")]
    StatementTimeout(#[source] Cause),
    /// A bug, or a schema that does not match this build.
    #[error("database failed")]
    Database(#[source] Cause),
    /// A stored value that this build cannot read: a newer version wrote it, or a bug did.
    #[error("stored {0} cannot be read")]
    Unreadable(&'static str),
    /// The database URL is invalid.
    #[error("database.url cannot be used")]
    BadUrl(#[source] Cause),
    /// The database is on another machine, and its certificate would not be verified.
    #[error(
        "the database is at {host}, which is not this machine, and an attacker between the two could answer in its place: add \
         sslmode=verify-full to database.url (with sslrootcert=FILE, where the authority is your own), or set \
         database.insecure where nobody else is on that network"
    )]
    Unprotected {
        /// The host's name or address.
        host: String,
    },
}

impl StoreError {
    /// Whether the call was refused because of the stored data. Then every statement ended
    /// normally, and the connection is usable.
    pub(crate) const fn is_refusal(&self) -> bool {
        matches!(
            self,
            Self::NotFound(_)
                | Self::RequestIdReused
                | Self::RequestIdCreated(_)
                | Self::NotTheNewest { .. }
                | Self::UnknownMessage(_)
                | Self::MessageWithdrawn(_)
                | Self::MessageErased(_)
                | Self::BeforeSeparator(_)
                | Self::VersionMismatch { .. }
                | Self::OtherRole
                | Self::OtherToolCalls
                | Self::ToolCallMissing(_)
                | Self::TooManyMessages
                | Self::TooManyCompactions
                | Self::ToolCallOpen
                | Self::CountMissing
                | Self::InvalidCheckpoint(_)
                | Self::EtagMismatch
                | Self::SessionMoved
                | Self::LeaseLost
        )
    }

    /// The cause of an outage in a log line: the driver's error if there is one, else this error.
    pub(crate) fn outage_cause(&self) -> String {
        match self {
            Self::Unavailable(cause) | Self::Database(cause) | Self::StatementTimeout(cause) => {
                cause.to_string()
            }
            other => other.to_string(),
        }
    }

    /// Whether the database may answer a ping in spite of this error: it is read-only, or lacks
    /// memory, disk space or connections (SQLSTATE 25006, class 53).
    pub(crate) fn leaves_pings_possible(&self) -> bool {
        let Self::Unavailable(cause) = self else {
            return false;
        };
        let code = cause
            .error()
            .as_database_error()
            .and_then(sqlx::error::DatabaseError::code);
        code.is_some_and(|code| code == "25006" || code.starts_with("53"))
    }

    /// Whether the call could not work at all: the database does not answer, or no connection was
    /// free. The rows that it was about are not the cause.
    pub(crate) const fn is_outage(&self) -> bool {
        matches!(
            self,
            Self::Busy | Self::ShareInUse | Self::Unresponsive | Self::Unavailable(_)
        )
    }

    /// Whether the database or a pool of connections caused the error, so that it may be gone at the
    /// next try.
    pub const fn is_transient(&self) -> bool {
        matches!(
            self,
            Self::Busy
                | Self::ShareInUse
                | Self::Unresponsive
                | Self::Unavailable(_)
                | Self::Conflict(_)
                | Self::StatementTimeout(_)
        )
    }
}

impl From<sqlx::Error> for StoreError {
    fn from(error: sqlx::Error) -> Self {
        let Some(code) = error
            .as_database_error()
            .and_then(|error| error.code().map(std::borrow::Cow::into_owned))
        else {
            return match error {
                sqlx::Error::Io(error) if error.kind() == std::io::ErrorKind::TimedOut => {
                    Self::Unresponsive
                }
                sqlx::Error::Io(_) | sqlx::Error::Tls(_) | sqlx::Error::Protocol(_) => {
                    Self::Unavailable(error.into())
                }
                sqlx::Error::PoolTimedOut => Self::Busy,
                other => Self::Database(other.into()),
            };
        };
        match code.as_str() {
            // A serialization failure, a deadlock, a lock timeout.
            "40001" | "40P01" | "55P03" => Self::Conflict(error.into()),
            // The statement was cancelled, because it took too long or because an operator
            // cancelled it.
            "57014" => Self::StatementTimeout(error.into()),
            // - 25006: read-only, because a standby answers.
            // - 25P03: idle in a transaction for too long, because this process was suspended.
            // - 57P01, 57P02, 57P03: PostgreSQL shuts down, has crashed or starts.
            "25006" | "25P03" | "57P01" | "57P02" | "57P03" => Self::Unavailable(error.into()),
            // Class 08: the connection failed. Class 53: the server lacks memory, disk space or
            // connections.
            code if code.starts_with("08") || code.starts_with("53") => {
                Self::Unavailable(error.into())
            }
            _ => Self::Database(error.into()),
        }
    }
}

/// Why a run of migrations failed.
#[derive(Debug, thiserror::Error)]
pub enum MigrationsError {
    /// The database cannot be reached, or refused a statement.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A migration failed and was rolled back, or its text has changed since it was applied (the
    /// source says which).
    #[error("{}", migration_failure(.0))]
    Failed(#[from] MigrateError),
    /// Another migrator held the lock of migrators for too long, perhaps because a long transaction
    /// blocks that migrator.
    #[error("gave up after {0:?}: another migrator or a long transaction holds a lock")]
    TimedOut(Duration),
    /// A table has the name of one of anneal's tables, but is neither that table nor one of an
    /// older system.
    #[error(
        "{0}: these are neither anneal's tables nor the older ones; rename them, or use another database"
    )]
    Foreign(String),
    /// Rows of the older system's tables cannot be moved without loss, or the tables cannot be
    /// dropped.
    #[error("nothing was changed, because the older tables cannot be moved: {0}")]
    Unmovable(String),
    /// Fewer or more rows were moved than were counted: a bug.
    #[error("nothing was changed: {counted} {what} were counted, but {moved} moved")]
    Miscounted {
        /// What was counted: messages, conversations or separators.
        what: &'static str,
        /// How many rows were counted.
        counted: i64,
        /// How many rows were moved.
        moved: i64,
    },
}

const fn migration_failure(error: &MigrateError) -> &'static str {
    match error {
        MigrateError::VersionMismatch(_) => "the text of an applied migration has changed",
        _ => "a migration failed and was rolled back",
    }
}

impl MigrationsError {
    /// Whether another session was in the way, so that another try can succeed. Of the errors of a
    /// migration's own statements, a lock that was not available in time and a deadlock count.
    pub(crate) fn is_conflict(&self) -> bool {
        let source = match self {
            Self::Store(StoreError::Conflict(_)) => return true,
            Self::Failed(
                MigrateError::Execute(source) | MigrateError::ExecuteMigration(source, _),
            ) => source,
            _ => return false,
        };
        source
            .as_database_error()
            // 40P01: a deadlock with a session that has locked the same tables in another order.
            // 55P03: a lock was not available in time.
            .and_then(|error| error.code().map(|code| code == "40P01" || code == "55P03"))
            .unwrap_or(false)
    }
}

impl From<sqlx::Error> for MigrationsError {
    fn from(error: sqlx::Error) -> Self {
        Self::Store(error.into())
    }
}

/// The database driver's error. Logs and debug output show the code, the message, the constraint
/// and the routine in PostgreSQL's source. They never show the row or the value, which may be
/// content.
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
                sqlx::Error::ColumnDecode { index, .. } => {
                    write!(f, "column {index} cannot be decoded")
                }
                sqlx::Error::Decode(_) => f.write_str("a value cannot be decoded"),
                sqlx::Error::Encode(_) => f.write_str("a value cannot be encoded"),
                sqlx::Error::PoolTimedOut => f.write_str("the connection took too long"),
                // PostgreSQL has ended, or something between it and this process.
                sqlx::Error::Io(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => {
                    f.write_str("the connection was closed")
                }
                sqlx::Error::Io(error) => error.fmt(f),
                other => other.fmt(f),
            };
        };
        let code = error.code().unwrap_or_default();
        // Errors of class 22 quote the value in their message.
        let message = if code.starts_with("22") {
            "a value is invalid"
        } else {
            error.message()
        };
        write!(f, "{message} ({code}")?;
        if let Some(constraint) = error.constraint() {
            write!(f, ", constraint {constraint}")?;
        }
        if let Some(routine) = error
            .try_downcast_ref::<PgDatabaseError>()
            .and_then(PgDatabaseError::routine)
        {
            write!(f, ", {routine}")?;
        }
        f.write_str(")")
    }
}

/// The name of the constraint that a statement violated, if it violated one.
pub(crate) fn violated(error: &sqlx::Error) -> Option<&str> {
    error
        .as_database_error()
        .and_then(sqlx::error::DatabaseError::constraint)
}

#[cfg(test)]
mod tests {
    use std::io::{Error, ErrorKind};

    use super::*;

    #[test]
    fn the_cause_of_a_lost_connection_is_in_words() {
        let cause_of = |error: Error| StoreError::from(sqlx::Error::Io(error)).outage_cause();
        let ended = Error::new(
            ErrorKind::UnexpectedEof,
            "expected to read 5 bytes, got 0 bytes at EOF",
        );
        assert_eq!(cause_of(ended), "the connection was closed");
        let refused = Error::from(ErrorKind::ConnectionRefused);
        assert_eq!(cause_of(refused), "connection refused");
    }
}
