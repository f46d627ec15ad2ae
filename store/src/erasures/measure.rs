//! Counts the conversations of a user or of a tenant, and their messages.

use anneal_core::caller::Caller;

use crate::{connection::BoundedConnection, error::StoreError};

/// The number of conversations of a user, or of the tenant if `user` is None, and of their
/// messages.
pub(super) async fn measure_conversations(
    db: &mut BoundedConnection,
    caller: Caller,
    user: Option<&str>,
) -> Result<(i64, i64), StoreError> {
    let tenant = caller.tenant().0;
    if let Some(user) = user {
        let row = sqlx::query_file!("sql/measure_conversations_of_user.sql", tenant, user)
            .fetch_one(db)
            .await?;
        Ok((row.conversations, row.messages))
    } else {
        let row = sqlx::query_file!("sql/measure_conversations.sql", tenant)
            .fetch_one(db)
            .await?;
        Ok((row.conversations, row.messages))
    }
}
