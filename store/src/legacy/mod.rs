//! Tables of older systems: two tables with names of ours, in which separators and summaries were
//! stored among the messages. Their rows are moved into the present schema, in the transaction that
//! creates it.
//!
//! - `shape`: whether the tables are older ones, and which optional parts they have.
//! - `counts`: how many rows there are of each kind, and which cannot be moved.
//! - `walk`: moves the rows, conversation by conversation.
//!
//! sqlx does not check statements on the older tables at compile time: it checks against the
//! present schema, which has no such tables. The statements are static all the same; views hide the
//! differences between older tables (`sql/legacy_views.sql`).

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
    /// Messages moved so far.
    pub messages: i64,
    /// Messages to move in total.
    pub of: i64,
}

/// Counts what moving would do. Changes nothing: the caller rolls its transaction back.
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
    // Minutes may pass between two statements here: a message of 64 MiB is prepared in between.
    sqlx::query("set local idle_in_transaction_session_timeout = '10min'")
        .execute(&mut *db)
        .await?;
    // The tables are empty at first. A cached plan for an empty table would scan it for every
    // statement.
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
    watch: &(dyn Fn(LegacyProgress) + Send + Sync),
) -> Result<(), MigrationsError> {
    let of = counts.messages();
    let moved_rows =
        walk::move_conversations(db, &|messages| watch(LegacyProgress { messages, of })).await?;
    let all = [
        ("messages", of, moved_rows.messages),
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
