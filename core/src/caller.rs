//! Who asks, and for what.

use uuid::Uuid;

/// The owner of data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TenantId(pub Uuid);

impl TenantId {
    /// The tenant of every caller while the server listens on loopback without authentication.
    pub const DEFAULT: Self = Self(Uuid::from_u128(0x0000_0000_0000_7000_8000_0000_0000_0001));
}

impl std::fmt::Display for TenantId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

/// A conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ConversationId(pub Uuid);

impl std::fmt::Display for ConversationId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

/// Who makes a call, as its credential says. The only way into the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Caller {
    tenant: TenantId,
}

impl Caller {
    /// A caller that acts for `tenant`. Only what reads credentials, or claims a tenant's job, makes one.
    pub const fn of(tenant: TenantId) -> Self {
        Self { tenant }
    }

    /// Whose data it may see.
    pub const fn tenant(self) -> TenantId {
        self.tenant
    }
}
