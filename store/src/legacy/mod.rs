//! What older systems of this kind left behind: two tables with the names of ours, in which separators and summaries stood among
//! the messages. Their rows are moved into the schema of today, in the transaction that makes it.
//!
//! Statements on the older tables are texts that sqlx does not check while compiling: it checks against the schema of today,
//! where those tables are not. They are static all the same; what differs from table to table is hidden by views
//! (`sql/legacy_views.sql`).

mod counts;
mod shape;
mod walk;

pub use counts::LegacyCounts;
pub(crate) use shape::{Shape, find};

use sqlx::{PgConnection, raw_sql};

use crate::migrate::MigrationsError;

/// Rows of the older tables that were moved, and how many there are: what progress is shown by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moved {
    /// Messages that were moved.
    pub messages: i64,
    /// Messages to move.
    pub of: i64,
}

/// What moving would do. Changes nothing; the caller's transaction is to be rolled back.
pub(crate) async fn survey(db: &mut PgConnection, shape: Shape) -> Result<LegacyCounts, MigrationsError> {
    sqlx::query("set transaction isolation level repeatable read").execute(&mut *db).await?;
    look_nowhere_else(db).await?;
    raw_sql(include_str!("../../sql/legacy_views.sql")).execute(&mut *db).await?;
    counts::count(db, shape).await
}

/// Takes the older tables for this transaction alone, looks whether everything can be moved, and puts them aside.
pub(crate) async fn put_aside(db: &mut PgConnection, shape: Shape) -> Result<LegacyCounts, MigrationsError> {
    // A statement of ours may follow the one before only after minutes: a message of 64 MiB is prepared in between.
    sqlx::query("set local idle_in_transaction_session_timeout = '10min'").execute(&mut *db).await?;
    // Tables grow from nothing while they are filled: a plan that was made for an empty one would read them whole each time.
    sqlx::query("set local plan_cache_mode = force_custom_plan").execute(&mut *db).await?;
    look_nowhere_else(db).await?;
    sqlx::query("lock table ai_conversation, ai_message in access exclusive mode").execute(&mut *db).await?;
    if shape.checkpoints {
        sqlx::query("lock table ai_conversation_checkpoint in access exclusive mode").execute(&mut *db).await?;
    }
    raw_sql(include_str!("../../sql/legacy_views.sql")).execute(&mut *db).await?;
    let counts = counts::count(db, shape).await?;
    counts.check()?;
    raw_sql(include_str!("../../sql/legacy_aside.sql")).execute(&mut *db).await?;
    Ok(counts)
}

/// Binds every name of this transaction to the schema where the older tables are: those of another schema on the search path are
/// not this one's.
async fn look_nowhere_else(db: &mut PgConnection) -> Result<(), MigrationsError> {
    sqlx::query("select set_config('search_path', quote_ident(current_schema()), true)").execute(db).await?;
    Ok(())
}

/// Moves the rows that were put aside into the schema of today, and drops the older tables.
pub(crate) async fn move_rows(
    db: &mut PgConnection,
    counts: &LegacyCounts,
    watch: &(dyn Fn(Moved) + Send + Sync),
) -> Result<(), MigrationsError> {
    let of = counts.messages();
    let arrived = walk::walk(db, &|messages| watch(Moved { messages, of })).await?;
    let all = [
        ("messages", of, arrived.messages),
        ("conversations", counts.conversations, arrived.conversations),
        ("separators", counts.separators - counts.separators_joined, arrived.separators),
    ];
    for (what, counted, moved) in all {
        if moved != counted {
            return Err(MigrationsError::Miscounted { what, counted, moved });
        }
    }
    raw_sql(include_str!("../../sql/legacy_drop.sql")).execute(db).await?;
    Ok(())
}
