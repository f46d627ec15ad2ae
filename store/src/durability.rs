//! Whether the database keeps what it has acknowledged, whatever crashes.

use std::fmt;

use crate::{Store, error::StoreError, scope::Scope};

/// A setting of the database, as it holds in this store's sessions, with which a crash may cost what was acknowledged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Weakness {
    /// Its name: `fsync`, `full_page_writes` or `synchronous_commit`.
    pub setting: String,
    /// Its value.
    pub value: String,
    /// Where the value comes from, in the words of pg_settings.
    source: String,
}

impl Weakness {
    /// What to do about it.
    pub fn remedy(&self) -> String {
        let setting = &self.setting;
        match self.source.as_str() {
            "client" => format!("take {setting} out of the options in database.url and in PGOPTIONS"),
            "user" => format!("`alter role … reset {setting}`"),
            "database" => format!("`alter database … reset {setting}`"),
            "database user" => format!("`alter role … in database … reset {setting}`"),
            "command line" => format!("start PostgreSQL without {setting} on its command line"),
            _ => format!("`alter system set {setting} = on`, then `select pg_reload_conf()`"),
        }
    }
}

impl fmt::Display for Weakness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is {}", self.setting, self.value)
    }
}

/// Why row-level security holds nothing back in this store's sessions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unsecured {
    /// The role that they work in.
    pub role: String,
}

impl Store {
    /// Whether the sessions work in the role that they should, and row-level security holds for it; None: it does, or the
    /// settings name no role.
    pub async fn unsecured(&self) -> Result<Option<Unsecured>, StoreError> {
        if self.settings.role.is_empty() {
            return Ok(None);
        }
        #[cfg(feature = "sabotage")]
        if crate::sabotage::is_without_row_security() {
            return Ok(None);
        }
        let mut db = self.writes.checkout(Scope::Nobody).await?;
        let row =
            sqlx::query!(r#"select current_user::text as "role!", row_security_active('ai_message') as "active!""#)
                .fetch_one(&mut *db)
                .await?;
        db.release().await?;
        let holds = row.active && row.role == self.settings.role;
        Ok((!holds).then_some(Unsecured { role: row.role }))
    }

    /// The settings with which a crash may cost what was acknowledged; none where nothing is lost. `synchronous_commit` is
    /// durable in all its values but `off`: the others say which standbys are waited for, beyond this server's own disk.
    pub async fn weaknesses(&self) -> Result<Vec<Weakness>, StoreError> {
        #[cfg(feature = "sabotage")]
        if crate::sabotage::breaks(crate::sabotage::Sabotage::AsynchronousCommit) {
            return Ok(Vec::new());
        }
        let mut db = self.writes.checkout(Scope::Nobody).await?;
        let weaknesses = sqlx::query_as!(
            Weakness,
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
        Ok(weaknesses)
    }
}
