//! Creates databases: for `anneal dev`, and for tests that each need their own.

use sqlx::{AssertSqlSafe, Connection as _, Executor as _};

use super::{open::connect_as_login, settings::StoreSettings};
use crate::error::StoreError;

/// Creates the database `name`, as a copy of `template` if one is given. Does nothing if it exists.
///
/// `admin` is the URL of another database of the same server, which this function connects to. Its
/// login must have the right to create databases.
pub async fn create_database(
    admin: &str,
    name: &str,
    template: Option<&str>,
) -> Result<(), StoreError> {
    let mut db = connect_as_login(&StoreSettings::at(admin)).await?;
    let template = template
        .map(|template| format!(" template {}", quoted(template)))
        .unwrap_or_default();
    let created = db
        .execute(AssertSqlSafe(format!(
            "create database {}{template}",
            quoted(name)
        )))
        .await;
    db.close().await?;
    match created {
        // 42P04: the database exists already.
        Err(error)
            if error
                .as_database_error()
                .is_some_and(|error| error.code().as_deref() == Some("42P04")) =>
        {
            Ok(())
        }
        created => created.map(|_| ()).map_err(StoreError::from),
    }
}

/// Quotes a name for a statement, because names cannot be parameters.
fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}
