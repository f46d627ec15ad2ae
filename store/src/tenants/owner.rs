//! Creates and lists tenants; creates, lists and revokes keys. Only the owner of the database can
//! do this.

use anneal_core::caller::{Bound, Verbs};
use sqlx::PgConnection;
use uuid::Uuid;

use super::{
    credentials::{bound, bound_columns, verbs},
    usage::TenantUsage,
};
use crate::{
    connection::{Pooling, StoreSettings, connect_as_login},
    error::StoreError,
    rows::Micros,
};

/// A key as it is listed, without its secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedKey {
    /// Id of the key: its public part.
    pub id: Uuid,
    /// Name of the tenant that the key belongs to.
    pub tenant: String,
    /// Label that says who uses the key.
    pub name: String,
    /// The verbs that the key allows.
    pub verbs: Verbs,
    /// The user, agent or conversation that the key is bound to.
    pub bound: Option<Bound>,
    /// Time of creation.
    pub created: Micros,
    /// Time from which on the key is refused. None: it never expires.
    pub expires: Option<Micros>,
    /// Whether the key has expired, by the database's clock.
    pub has_expired: bool,
    /// Time of its revocation. None: it is not revoked.
    pub revoked: Option<Micros>,
    /// The hour of its last use. None: it was never used.
    pub last_used: Option<Micros>,
}

/// A tenant as it is listed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedTenant {
    /// Name of the tenant.
    pub name: String,
    /// How much the tenant has stored.
    pub usage: TenantUsage,
}

/// A key to store.
#[derive(Debug, Clone)]
pub struct NewKey<'a> {
    /// The public part of the key.
    pub id: Uuid,
    /// Name of the tenant that the key belongs to.
    pub tenant: &'a str,
    /// Label that says who uses the key.
    pub name: &'a str,
    /// SHA-256 of the key's secret part; of a bound key, of secret and binding.
    pub secret_digest: &'a [u8],
    /// The verbs that the key allows.
    pub verbs: Verbs,
    /// The user, agent or conversation that the key is bound to. None: it speaks for the whole
    /// tenant.
    pub bound: Option<Bound>,
    /// Days until the key expires. None: it never expires.
    pub days: Option<i32>,
}

/// One connection outside the pools, whose login must be the owner of the database.
pub struct OwnerConnection {
    db: PgConnection,
}

impl OwnerConnection {
    /// Connects as the login of the URL. If the login is not the owner, later calls fail. There
    /// must be no transaction pooler between this process and the database.
    pub async fn connect(settings: &StoreSettings) -> Result<Self, StoreError> {
        let settings = StoreSettings {
            pooling: Pooling::Session,
            ..settings.clone()
        };
        Ok(Self {
            db: connect_as_login(&settings).await?,
        })
    }

    /// Creates a tenant. Returns false if there is one with this name already.
    pub async fn create_tenant(&mut self, name: &str) -> Result<bool, StoreError> {
        let inserted = sqlx::query!(
            "insert into tenant (tenant_id, name) values ($1, $2) on conflict (name) do nothing",
            Uuid::now_v7(),
            name,
        )
        .execute(&mut self.db)
        .await?;
        Ok(inserted.rows_affected() == 1)
    }

    /// Lists up to `limit` tenants in the order of their names, after the name `after`.
    pub async fn list_tenants(
        &mut self,
        after: &str,
        limit: i64,
    ) -> Result<Vec<ListedTenant>, StoreError> {
        let rows = sqlx::query!(
            r#"select t.name, coalesce(u.messages, 0)::bigint as "messages!",
                   coalesce(u.content_bytes, 0)::bigint as "content_bytes!"
               from tenant as t
               cross join lateral (
                   select sum(messages) as messages, sum(content_bytes) as content_bytes
                   from (
                       select messages, content_bytes from tenant_usage_part where tenant_id = t.tenant_id
                       union all
                       select messages, content_bytes from tenant_usage where tenant_id = t.tenant_id
                   ) as part
               ) as u
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
            usage: TenantUsage::of(row.messages, row.content_bytes),
        });
        Ok(tenants.collect())
    }

    /// Stores a key. Returns false if the tenant does not exist.
    pub async fn create_key(&mut self, key: &NewKey<'_>) -> Result<bool, StoreError> {
        let (bound_kind, bound_id) = bound_columns(key.bound.as_ref());
        let inserted = sqlx::query!(
            "insert into api_key (key_id, tenant_id, name, secret_digest, verbs, expires_ts, bound_kind, bound_id)
             select $1, tenant_id, $3, $4, $5, now() + $6::integer * interval '1 day', $7, $8 from tenant where name = $2",
            key.id,
            key.tenant,
            key.name,
            key.secret_digest,
            i16::from(key.verbs.bits()),
            key.days,
            bound_kind,
            bound_id,
        )
        .execute(&mut self.db)
        .await?;
        Ok(inserted.rows_affected() == 1)
    }

    /// Lists up to `limit` keys, oldest first (their ids begin with the time), after the key `after`.
    /// `tenant`: only keys of the tenant with this name; None: of all tenants.
    pub async fn list_keys(
        &mut self,
        tenant: Option<&str>,
        after: Uuid,
        limit: i64,
    ) -> Result<Vec<ListedKey>, StoreError> {
        let rows = sqlx::query!(
            r#"select k.key_id, t.name as tenant, k.name, k.verbs, k.bound_kind, k.bound_id,
                   (extract(epoch from k.created_ts) * 1000000)::bigint as "created_us!",
                   (extract(epoch from k.expires_ts) * 1000000)::bigint as expires_us,
                   coalesce(k.expires_ts <= now(), false) as "has_expired!",
                   (extract(epoch from k.revoked_ts) * 1000000)::bigint as revoked_us,
                   (extract(epoch from k.last_used_ts) * 1000000)::bigint as last_used_us
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
        let keys = rows.into_iter().map(|row| {
            Ok(ListedKey {
                id: row.key_id,
                tenant: row.tenant,
                name: row.name,
                verbs: verbs(row.verbs),
                bound: bound(row.bound_kind, row.bound_id.as_deref())?,
                created: Micros(row.created_us),
                expires: row.expires_us.map(Micros),
                has_expired: row.has_expired,
                revoked: row.revoked_us.map(Micros),
                last_used: row.last_used_us.map(Micros),
            })
        });
        keys.collect()
    }

    /// Revokes a key, and deletes its sessions of the page. Returns false if it does not exist or is
    /// revoked already.
    pub async fn revoke_key(&mut self, id: Uuid) -> Result<bool, StoreError> {
        let revoked = sqlx::query!(
            "with ended as (delete from web_session where key_id = $1)
             update api_key set revoked_ts = now() where key_id = $1 and revoked_ts is null",
            id,
        )
        .execute(&mut self.db)
        .await?;
        Ok(revoked.rows_affected() == 1)
    }
}
