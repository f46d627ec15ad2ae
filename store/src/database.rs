//! Making databases: for `anneal dev`, and for tests that each want their own.

use sqlx::{AssertSqlSafe, Connection as _, Executor as _};

use crate::{
    error::StoreError,
    pool::{StoreSettings, connect_as_owner},
};

/// Makes a database, as a copy of `template` if one is given. One that is there already is left as it is.
///
/// `admin` is the URL of another database of the same server.
pub async fn create_database(admin: &str, name: &str, template: Option<&str>) -> Result<(), StoreError> {
    let mut db = connect_as_owner(&StoreSettings::at(admin)).await?;
    let template = template.map(|template| format!(" template {}", quoted(template))).unwrap_or_default();
    let made = db.execute(AssertSqlSafe(format!("create database {}{template}", quoted(name)))).await;
    db.close().await?;
    match made {
        Err(error) if error.as_database_error().is_some_and(|error| error.code().as_deref() == Some("42P04")) => Ok(()),
        made => made.map(|_| ()).map_err(StoreError::from),
    }
}

/// Names cannot be parameters: quoted as PostgreSQL quotes them.
fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}
