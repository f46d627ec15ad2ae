//! The older tables: those of an older system, called `ai_conversation` and `ai_message` like ours.
//! In them, separators and summaries were stored among the messages. Their rows are moved into the
//! present schema, in the transaction that creates it.
//!
//! - `shape`: whether there are older tables, and which optional parts they have.
//! - `counts`: how many rows there are of each kind, and which cannot be moved.
//! - `walk`: moves the rows, conversation by conversation.
//!
//! sqlx cannot check statements on the older tables at compile time, because it checks against the
//! present schema, which has no such tables. Older tables differ in the types of their columns; the
//! views of `sql/legacy_views.sql` hide the differences.

mod counts;
mod shape;
mod walk;

pub use counts::LegacyCounts;
pub(crate) use shape::{Shape, find};

use sqlx::raw_sql;

use crate::{connection::BoundedConnection, error::MigrationsError};

/// Progress of moving the rows of older tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LegacyProgress {
    /// Number of messages moved so far.
    pub messages: i64,
    /// Number of messages that are to be moved.
    pub total: i64,
}

/// Counts the rows that a move would move or leave out. Creates temporary views, so the caller must
/// roll its transaction back.
pub(crate) async fn survey(
    db: &mut BoundedConnection,
    shape: Shape,
) -> Result<LegacyCounts, MigrationsError> {
    sqlx::query("set transaction isolation level repeatable read")
        .execute(&mut *db)
        .await?;
    pin_search_path(db).await?;
    raw_sql(include_str!("../../sql/legacy_views.sql"))
        .execute(&mut *db)
        .await?;
    counts::count(db, shape).await
}

/// Locks the older tables, checks that all rows can be moved, and renames the tables.
pub(crate) async fn put_aside(
    db: &mut BoundedConnection,
    shape: Shape,
) -> Result<LegacyCounts, MigrationsError> {
    // Minutes may pass between two statements of this transaction, while a message of 64 MiB is
    // prepared.
    sqlx::query("set local idle_in_transaction_session_timeout = '10min'")
        .execute(&mut *db)
        .await?;
    // The new tables are empty at first. A cached plan that was made for an empty table would scan
    // the table in every statement.
    sqlx::query("set local plan_cache_mode = force_custom_plan")
        .execute(&mut *db)
        .await?;
    pin_search_path(db).await?;
    sqlx::query("lock table ai_conversation, ai_message in access exclusive mode")
        .execute(&mut *db)
        .await?;
    if shape.checkpoints {
        sqlx::query("lock table ai_conversation_checkpoint in access exclusive mode")
            .execute(&mut *db)
            .await?;
    }
    raw_sql(include_str!("../../sql/legacy_views.sql"))
        .execute(&mut *db)
        .await?;
    let counts = counts::count(db, shape).await?;
    counts.check()?;
    raw_sql(include_str!("../../sql/legacy_aside.sql"))
        .execute(&mut *db)
        .await?;
    Ok(counts)
}

/// Restricts name lookup in this transaction to the schema of the older tables: other schemas on
/// the search path may have tables of the same names.
async fn pin_search_path(db: &mut BoundedConnection) -> Result<(), MigrationsError> {
    sqlx::query("select set_config('search_path', quote_ident(current_schema()), true)")
        .execute(db)
        .await?;
    Ok(())
}

/// Moves the rows of the renamed tables into the present schema, and drops the older tables.
pub(crate) async fn move_rows(
    db: &mut BoundedConnection,
    counts: &LegacyCounts,
    on_progress: &(dyn Fn(LegacyProgress) + Send + Sync),
) -> Result<(), MigrationsError> {
    let total = counts.messages();
    let moved_rows = walk::move_conversations(db, &|messages| {
        on_progress(LegacyProgress { messages, total });
    })
    .await?;
    let all = [
        ("messages", total, moved_rows.messages),
        (
            "conversations",
            counts.conversations,
            moved_rows.conversations,
        ),
        (
            "separators",
            counts.separators - counts.separators_joined,
            moved_rows.separators,
        ),
    ];
    for (what, counted, moved) in all {
        if moved != counted {
            return Err(MigrationsError::Miscounted {
                what,
                counted,
                moved,
            });
        }
    }
    raw_sql(include_str!("../../sql/legacy_drop.sql"))
        .execute(db)
        .await?;
    Ok(())
}
