//! Tenants and API keys: what servers look up to know a caller, and what the owner of the database makes.

use anneal_core::caller::{TenantId, Verbs};
use sqlx::PgConnection;
use uuid::Uuid;

use crate::{
    Store,
    error::StoreError,
    pool::{Pooling, connect_as_owner},
    rows::Micros,
    scope::Scope,
    tenant_usage::TenantUsage,
};

/// A key that may be used now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnownKey {
    /// For whom it speaks.
    pub tenant: TenantId,
    /// What it allows.
    pub verbs: Verbs,
    /// SHA-256 of its secret part.
    pub secret_digest: Vec<u8>,
}

/// A key as it is listed: never its secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedKey {
    /// The part of it that may be shown.
    pub id: Uuid,
    /// The name of the tenant for whom it speaks.
    pub tenant: String,
    /// Who uses it.
    pub name: String,
    /// What it allows.
    pub verbs: Verbs,
    /// When it was made.
    pub created: Micros,
    /// From when on it is refused; None: never.
    pub expires: Option<Micros>,
    /// When it was revoked.
    pub revoked: Option<Micros>,
}

/// A tenant as it is listed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedTenant {
    /// Its name.
    pub name: String,
    /// What it has stored.
    pub usage: TenantUsage,
}

/// A key to be stored.
#[derive(Debug, Clone)]
pub struct NewKey<'a> {
    /// The part of it that may be shown.
    pub id: Uuid,
    /// The name of the tenant for whom it speaks.
    pub tenant: &'a str,
    /// Who uses it.
    pub name: &'a str,
    /// SHA-256 of its secret part.
    pub secret_digest: &'a [u8],
    /// What it allows.
    pub verbs: Verbs,
    /// Days until it is refused; None: never.
    pub days: Option<i32>,
}

impl Store {
    /// The key of this id; None where there is none, or it has expired or was revoked.
    pub async fn find_key(&self, id: Uuid) -> Result<Option<KnownKey>, StoreError> {
        let mut db = self.reads.checkout(Scope::Nobody).await?;
        let row = sqlx::query!(
            "select tenant_id, verbs, secret_digest from api_key
             where key_id = $1 and revoked_ts is null and (expires_ts is null or expires_ts > now())",
            id,
        )
        .fetch_optional(&mut *db)
        .await?;
        db.release().await?;
        Ok(row.map(|row| KnownKey {
            tenant: TenantId(row.tenant_id),
            verbs: verbs(row.verbs),
            secret_digest: row.secret_digest,
        }))
    }

    /// The tenant of this name.
    pub async fn find_tenant(&self, name: &str) -> Result<Option<TenantId>, StoreError> {
        let mut db = self.reads.checkout(Scope::Nobody).await?;
        let found =
            sqlx::query_scalar!("select tenant_id from tenant where name = $1", name).fetch_optional(&mut *db).await?;
        db.release().await?;
        Ok(found.map(TenantId))
    }
}

fn verbs(bits: i16) -> Verbs {
    Verbs::from_bits(u8::try_from(bits).unwrap_or_default())
}

/// The database as its owner has it, who alone makes tenants and keys. One connection, no pool.
pub struct Owner {
    db: PgConnection,
}

impl Owner {
    /// Connects to the database of `url`.
    pub async fn connect(url: &str) -> Result<Self, StoreError> {
        Ok(Self { db: connect_as_owner(url, Pooling::Session).await? })
    }

    /// Makes a tenant; false where there is one of this name already.
    pub async fn create_tenant(&mut self, name: &str) -> Result<bool, StoreError> {
        let made = sqlx::query!(
            "insert into tenant (tenant_id, name) values ($1, $2) on conflict (name) do nothing",
            Uuid::now_v7(),
            name,
        )
        .execute(&mut self.db)
        .await?;
        Ok(made.rows_affected() == 1)
    }

    /// Tenants in the order of their names, after this one; at most `limit`.
    pub async fn tenants(&mut self, after: &str, limit: i64) -> Result<Vec<ListedTenant>, StoreError> {
        let rows = sqlx::query!(
            r#"select t.name, u.messages as "messages?", u.content_bytes as "content_bytes?"
               from tenant as t
               left join tenant_usage as u on u.tenant_id = t.tenant_id
               where t.name > $1
               order by t.name
               limit $2"#,
            after,
            limit,
        )
        .fetch_all(&mut self.db)
        .await?;
        let tenants = rows.into_iter().map(|row| ListedTenant {
            name: row.name,
            usage: TenantUsage::of(row.messages.unwrap_or(0), row.content_bytes.unwrap_or(0)),
        });
        Ok(tenants.collect())
    }

    /// Stores a key; false where there is no such tenant.
    pub async fn create_key(&mut self, key: &NewKey<'_>) -> Result<bool, StoreError> {
        let made = sqlx::query!(
            "insert into api_key (key_id, tenant_id, name, secret_digest, verbs, expires_ts)
             select $1, tenant_id, $3, $4, $5, now() + $6::integer * interval '1 day' from tenant where name = $2",
            key.id,
            key.tenant,
            key.name,
            key.secret_digest,
            i16::from(key.verbs.bits()),
            key.days,
        )
        .execute(&mut self.db)
        .await?;
        Ok(made.rows_affected() == 1)
    }

    /// Keys, oldest first, after this one; at most `limit`; of this tenant, or of all.
    pub async fn keys(&mut self, tenant: Option<&str>, after: Uuid, limit: i64) -> Result<Vec<ListedKey>, StoreError> {
        let rows = sqlx::query!(
            r#"select k.key_id, t.name as tenant, k.name, k.verbs,
                   (extract(epoch from k.created_ts) * 1000000)::bigint as "created_us!",
                   (extract(epoch from k.expires_ts) * 1000000)::bigint as expires_us,
                   (extract(epoch from k.revoked_ts) * 1000000)::bigint as revoked_us
               from api_key as k
               join tenant as t on t.tenant_id = k.tenant_id
               where ($1::text is null or t.name = $1) and k.key_id > $2
               order by k.key_id
               limit $3"#,
            tenant,
            after,
            limit,
        )
        .fetch_all(&mut self.db)
        .await?;
        let keys = rows.into_iter().map(|row| ListedKey {
            id: row.key_id,
            tenant: row.tenant,
            name: row.name,
            verbs: verbs(row.verbs),
            created: Micros(row.created_us),
            expires: row.expires_us.map(Micros),
            revoked: row.revoked_us.map(Micros),
        });
        Ok(keys.collect())
    }

    /// Revokes a key; false where there is none that could be revoked.
    pub async fn revoke_key(&mut self, id: Uuid) -> Result<bool, StoreError> {
        let revoked =
            sqlx::query!("update api_key set revoked_ts = now() where key_id = $1 and revoked_ts is null", id)
                .execute(&mut self.db)
                .await?;
        Ok(revoked.rows_affected() == 1)
    }
}
