//! Whose rows a connection sees. Statements filter by tenant; row-level security stands behind that, so that a filter
//! that was forgotten finds nothing (migrations/0012_row_security.sql).

use anneal_core::caller::{Caller, TenantId};
use uuid::Uuid;

/// What row-level security lets through.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) enum Scope {
    /// No row of any tenant.
    #[default]
    Nobody,
    /// The rows of a tenant.
    Tenant(TenantId),
    /// The rows of a tenant, and of all tenants what the queue is: calls of models are limited for all together.
    TenantInFleet(TenantId),
    /// The rows of several tenants, in order, each once.
    Tenants(Vec<TenantId>),
    /// Of all tenants what the queue is: jobs, leases, what calls have cost, and the parts of unfinished summaries, which are
    /// forgotten by their age. No message, no checkpoint.
    Queue,
}

impl Scope {
    /// The rows of these tenants.
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

    /// The tenant whose rows these are; None: they are nobody's, the queue's, or several tenants'.
    pub(crate) const fn tenant(&self) -> Option<TenantId> {
        match self {
            Self::Tenant(tenant) | Self::TenantInFleet(tenant) => Some(*tenant),
            Self::Nobody | Self::Tenants(_) | Self::Queue => None,
        }
    }

    /// As the policies read it: an array of uuids, the nil one for the queue. Nothing in it needs quoting.
    fn literal(&self) -> String {
        let ids: Vec<String> = match self {
            Self::Nobody => Vec::new(),
            Self::Tenant(tenant) => vec![tenant.to_string()],
            Self::TenantInFleet(tenant) => vec![tenant.to_string(), Uuid::nil().to_string()],
            Self::Tenants(tenants) => tenants.iter().map(TenantId::to_string).collect(),
            Self::Queue => vec![Uuid::nil().to_string()],
        };
        format!("{{{}}}", ids.join(","))
    }

    /// The statement that puts it in force: for the session, or for the transaction alone.
    pub(crate) fn statement(&self, span: Span) -> String {
        let local = if span == Span::Transaction { "local " } else { "" };
        format!("set {local}anneal.tenants = '{}'", self.literal())
    }
}

/// How long a setting holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Span {
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
    fn tenants_are_named_once_and_in_order_and_nobody_is_an_empty_list() {
        let tenant = |n| TenantId(Uuid::from_u128(n));
        assert_eq!(
            Scope::of([tenant(2), tenant(1), tenant(2)].into_iter()),
            Scope::Tenants(vec![tenant(1), tenant(2)])
        );
        assert_eq!(Scope::of([tenant(1), tenant(1)].into_iter()), Scope::Tenant(tenant(1)));
        assert_eq!(Scope::of(std::iter::empty()).literal(), "{}");
        assert_eq!(
            Scope::Tenants(vec![tenant(1), tenant(2)]).statement(Span::Transaction),
            "set local anneal.tenants = '{00000000-0000-0000-0000-000000000001,00000000-0000-0000-0000-000000000002}'"
        );
    }
}
