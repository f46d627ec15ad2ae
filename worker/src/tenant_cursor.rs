//! Where walks over all tenants start.

use anneal_core::caller::TenantId;
use uuid::Uuid;

/// Sorts before every tenant: claims and audits start here.
pub(crate) const FIRST_TENANT: TenantId = TenantId(Uuid::nil());
