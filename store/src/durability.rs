//! Checks of the database's settings: whether a crash can lose acknowledged data, and whether
//! row-level security is active.

use std::fmt;

use crate::{Store, connection::row_security::Scope, error::StoreError};

/// A setting of PostgreSQL with which a crash may lose acknowledged data, as it is in force in this
/// store's sessions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NonDurableSetting {
    /// Its name: `fsync`, `full_page_writes` or `synchronous_commit`.
    pub setting: String,
    /// The value in force.
    pub value: String,
    /// Where the value comes from: the column `source` of pg_settings.
    source: String,
}

impl NonDurableSetting {
    /// Tells the operator how to make the setting durable.
    pub fn remedy(&self) -> String {
        let setting = &self.setting;
        match self.source.as_str() {
            "client" => {
                format!("take {setting} out of the options in database.url and in PGOPTIONS")
            }
            "user" => format!("`alter role … reset {setting}`"),
            "database" => format!("`alter database … reset {setting}`"),
            "database user" => format!("`alter role … in database … reset {setting}`"),
            "command line" => format!("start PostgreSQL without {setting} on its command line"),
            _ => format!("`alter system set {setting} = on`, then `select pg_reload_conf()`"),
        }
    }
}

impl fmt::Display for NonDurableSetting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is {}", self.setting, self.value)
    }
}

/// This store's sessions do not have the configured role, or row-level security does not apply to
/// it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RowSecurityInactive {
    /// The role that the sessions have.
    pub role: String,
}

impl Store {
    /// Checks that sessions have the configured role and that row-level security applies to it.
    /// None: both are so, or no role is configured.
    pub async fn check_row_security(&self) -> Result<Option<RowSecurityInactive>, StoreError> {
        if self.settings.role.is_empty() {
            return Ok(None);
        }
        let mut db = self.writes.checkout(Scope::Nobody).await?;
        let row =
            sqlx::query!(r#"select current_user::text as "role!", row_security_active('ai_message') as "active!""#)
                .fetch_one(&mut *db)
                .await?;
        db.release().await?;
        let holds = row.active && row.role == self.settings.role;
        Ok((!holds).then_some(RowSecurityInactive { role: row.role }))
    }

    /// The settings with which a crash may lose acknowledged data; empty if there are none.
    /// `synchronous_commit` is durable in all values but `off`: the other values wait for this
    /// server's disk, and differ only in which standbys they wait for.
    pub async fn find_non_durable_settings(&self) -> Result<Vec<NonDurableSetting>, StoreError> {
        let mut db = self.writes.checkout(Scope::Nobody).await?;
        let found = sqlx::query_as!(
            NonDurableSetting,
            r#"
            select name as "setting!", setting as "value!", source as "source!"
            from pg_settings
            where name in ('fsync', 'full_page_writes', 'synchronous_commit') and setting = 'off'
            order by name
            limit 3
            "#
        )
        .fetch_all(&mut *db)
        .await?;
        db.release().await?;
        Ok(found)
    }
}
