//! Which tenants' rows a connection sees. Statements filter by tenant, except those of the queue,
//! which serves all tenants. In addition, row-level security (migrations/0012_row_security.sql)
//! hides all rows outside of the connection's scope, so that a statement with a forgotten filter
//! does no harm. `pool.rs` runs [`Scope::statement`] when a connection is taken.

use anneal_core::caller::{Caller, TenantId};
use uuid::Uuid;

/// The rows that row-level security lets a connection see.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) enum Scope {
    /// No row of any tenant. Rows of tables without row-level security stay visible: `api_key`,
    /// `tenant`, `ai_model_breaker`.
    #[default]
    Nobody,
    /// The rows of a tenant.
    Tenant(TenantId),
    /// The rows of a tenant, and the rows that [`Scope::Queue`] shows. Admission of a model call
    /// needs both, because its limits count the calls of all tenants.
    TenantAndQueue(TenantId),
    /// The rows of several tenants, sorted, without duplicates.
    Tenants(Vec<TenantId>),
    /// The rows of all tenants that the worker needs: jobs, leases and costs of model calls, the
    /// breakers of tenants and conversations, and partial summaries, which it deletes by age. No
    /// messages, no checkpoints.
    Queue,
}

impl Scope {
    /// The scope of these tenants.
    pub(crate) fn of(tenants: impl Iterator<Item = TenantId>) -> Self {
        let mut tenants: Vec<TenantId> = tenants.collect();
        tenants.sort_unstable();
        tenants.dedup();
        match tenants.as_slice() {
            [] => Self::Nobody,
            [tenant] => Self::Tenant(*tenant),
            _ => Self::Tenants(tenants),
        }
    }

    /// The tenant that the scope names. None: it names no tenant, or several.
    pub(crate) const fn tenant(&self) -> Option<TenantId> {
        match self {
            Self::Tenant(tenant) | Self::TenantAndQueue(tenant) => Some(*tenant),
            Self::Nobody | Self::Tenants(_) | Self::Queue => None,
        }
    }

    /// The scope as the policies read it: an array of uuids, with the nil uuid for the queue. It
    /// contains nothing that needs quoting.
    fn literal(&self) -> String {
        let ids: Vec<String> = match self {
            Self::Nobody => Vec::new(),
            Self::Tenant(tenant) => vec![tenant.to_string()],
            Self::TenantAndQueue(tenant) => vec![tenant.to_string(), Uuid::nil().to_string()],
            Self::Tenants(tenants) => tenants.iter().map(TenantId::to_string).collect(),
            Self::Queue => vec![Uuid::nil().to_string()],
        };
        format!("{{{}}}", ids.join(","))
    }

    /// The statement that sets the scope, for the session or for the current transaction.
    pub(crate) fn statement(&self, lifetime: SettingLifetime) -> String {
        let local = if lifetime == SettingLifetime::Transaction {
            "local "
        } else {
            ""
        };
        format!("set {local}anneal.tenants = '{}'", self.literal())
    }
}

/// How long a `set` statement holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SettingLifetime {
    Session,
    Transaction,
}

impl From<Caller> for Scope {
    fn from(caller: Caller) -> Self {
        Self::Tenant(caller.tenant())
    }
}

impl From<TenantId> for Scope {
    fn from(tenant: TenantId) -> Self {
        Self::Tenant(tenant)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scope_lists_each_tenant_once_in_order_and_a_scope_without_tenants_is_an_empty_array() {
        let tenant = |n| TenantId(Uuid::from_u128(n));
        assert_eq!(
            Scope::of([tenant(2), tenant(1), tenant(2)].into_iter()),
            Scope::Tenants(vec![tenant(1), tenant(2)])
        );
        assert_eq!(
            Scope::of([tenant(1), tenant(1)].into_iter()),
            Scope::Tenant(tenant(1))
        );
        assert_eq!(Scope::of(std::iter::empty()).literal(), "{}");
        assert_eq!(
            Scope::Tenants(vec![tenant(1), tenant(2)]).statement(SettingLifetime::Transaction),
            "set local anneal.tenants = '{00000000-0000-0000-0000-000000000001,00000000-0000-0000-0000-000000000002}'"
        );
    }
}
