//! Claims and audits go through the tenants in the order of their ids.

use anneal_core::caller::TenantId;
use uuid::Uuid;

/// The position before the first tenant: an id that no tenant has, and that sorts before all ids of
/// tenants.
pub(crate) const BEFORE_FIRST_TENANT: TenantId = TenantId(Uuid::nil());
