//! Which tenants' rows a connection sees. Statements filter by tenant, except those of the queue,
//! which serves all tenants. In addition, row-level security (migrations/0012_row_security.sql)
//! hides all rows outside of the connection's scope, so that a statement with a forgotten filter
//! does no harm. A bound caller's scope names its binding, too: a user, an agent or a conversation
//! (migrations/0029_page.sql). So a statement for such a caller needs no filter: a row of others is
//! a missing row. `pool.rs` runs [`Scope::statement`] when a connection is taken.

use anneal_core::caller::{Bound, Caller, TenantId};
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
    /// Of the rows of a tenant, those of a user, an agent or a conversation.
    Bound(TenantId, Bound),
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
            Self::Tenant(tenant) | Self::Bound(tenant, _) | Self::TenantAndQueue(tenant) => {
                Some(*tenant)
            }
            Self::Nobody | Self::Tenants(_) | Self::Queue => None,
        }
    }

    /// The scope as the policies read it: an array of uuids, with the nil uuid for the queue. It
    /// contains nothing that needs quoting.
    fn literal(&self) -> String {
        let ids: Vec<String> = match self {
            Self::Nobody => Vec::new(),
            Self::Tenant(tenant) | Self::Bound(tenant, _) => vec![tenant.to_string()],
            Self::TenantAndQueue(tenant) => vec![tenant.to_string(), Uuid::nil().to_string()],
            Self::Tenants(tenants) => tenants.iter().map(TenantId::to_string).collect(),
            Self::Queue => vec![Uuid::nil().to_string()],
        };
        format!("{{{}}}", ids.join(","))
    }

    /// The statements that set the scope, for the session or for the current transaction. They also
    /// set the binding if there is none, so that a connection does not keep an earlier one.
    pub(crate) fn statement(&self, lifetime: SettingLifetime) -> String {
        let local = if lifetime == SettingLifetime::Transaction {
            "local "
        } else {
            ""
        };
        let bound = match self {
            Self::Bound(_, bound) => bound.setting(),
            _ => String::new(),
        };
        format!(
            "set {local}anneal.tenants = '{}'; set {local}anneal.bound = '{bound}'",
            self.literal()
        )
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
        match caller.bound() {
            Some(bound) => Self::Bound(caller.tenant(), *bound),
            None => Self::Tenant(caller.tenant()),
        }
    }
}

impl From<TenantId> for Scope {
    fn from(tenant: TenantId) -> Self {
        Self::Tenant(tenant)
    }
}

#[cfg(test)]
mod tests {
    use anneal_core::caller::BoundId;

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
            "set local anneal.tenants = '{00000000-0000-0000-0000-000000000001,00000000-0000-0000-0000-000000000002}'; set local anneal.bound = ''"
        );
    }

    #[test]
    fn the_scope_of_a_bound_caller_names_its_binding() {
        let bound = Bound::User(BoundId::new("anna").expect("an id"));
        let scope = Scope::from(Caller::of(TenantId(Uuid::from_u128(1))).bound_to(bound));
        assert_eq!(scope.tenant(), Some(TenantId(Uuid::from_u128(1))));
        assert_eq!(
            scope.statement(SettingLifetime::Session),
            "set anneal.tenants = '{00000000-0000-0000-0000-000000000001}'; set anneal.bound = 'user:616e6e61'"
        );
    }
}
