//! Identities (tenant, conversation), the permissions of a credential, and the caller of a request.

use uuid::Uuid;

/// A tenant: the owner of data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TenantId(pub Uuid);

impl TenantId {
    /// The tenant of every caller when the server listens on loopback without authentication.
    pub const DEFAULT: Self = Self(Uuid::from_u128(0x0000_0000_0000_7000_8000_0000_0000_0001));
}

impl std::fmt::Display for TenantId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

/// A conversation's id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ConversationId(pub Uuid);

impl std::fmt::Display for ConversationId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

/// A permission that a credential grants.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Verb {
    /// Read conversations, messages, contexts and usage.
    Read,
    /// Write conversations, messages, separators, checkpoints and turns.
    Append,
    /// Delete and verify conversations, requeue and discard jobs.
    Admin,
    /// Read the figures of the whole installation: queues and models over all tenants.
    Operator,
}

impl Verb {
    /// Every verb.
    pub const ALL: [Self; 4] = [Self::Read, Self::Append, Self::Admin, Self::Operator];

    /// The name in credentials.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Append => "append",
            Self::Admin => "admin",
            Self::Operator => "operator",
        }
    }

    /// The verb with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|verb| verb.name() == name)
    }
}

/// A set of verbs, one bit for each. No verb implies another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Verbs(u8);

impl Verbs {
    /// Every verb.
    pub const ALL: Self = Self(0b1111);

    /// Whether the set contains this verb.
    pub const fn contains(self, verb: Verb) -> bool {
        self.0 & 1 << verb as u8 != 0
    }

    /// The set as stored: one bit for each verb, in the order of the enum.
    pub const fn bits(self) -> u8 {
        self.0
    }

    /// The set of these bits. Bits of verbs that only a newer version has are dropped.
    pub const fn from_bits(bits: u8) -> Self {
        Self(bits & Self::ALL.0)
    }
}

impl FromIterator<Verb> for Verbs {
    fn from_iter<I: IntoIterator<Item = Verb>>(verbs: I) -> Self {
        Self(
            verbs
                .into_iter()
                .fold(0, |bits, verb| bits | 1 << verb as u8),
        )
    }
}

impl std::fmt::Display for Verbs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names: Vec<&str> = Verb::ALL
            .into_iter()
            .filter(|verb| self.contains(*verb))
            .map(Verb::name)
            .collect();
        f.write_str(&names.join(","))
    }
}

/// The authenticated caller of a request: the tenant whose data it may read and write, and its
/// permissions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Caller {
    tenant: TenantId,
    verbs: Verbs,
}

impl Caller {
    /// A caller with every permission on `tenant`'s data. Used where no credential exists: for a
    /// job or an audit of the tenant, for the import of older tables, and on a server that listens
    /// on loopback without authentication.
    pub const fn of(tenant: TenantId) -> Self {
        Self {
            tenant,
            verbs: Verbs::ALL,
        }
    }

    /// A caller that acts for `tenant` with these verbs. Only authentication makes one.
    pub const fn with(tenant: TenantId, verbs: Verbs) -> Self {
        Self { tenant, verbs }
    }

    /// The tenant whose data the caller may read and write.
    pub const fn tenant(self) -> TenantId {
        self.tenant
    }

    /// Whether the caller has this permission.
    pub const fn may(self, verb: Verb) -> bool {
        self.verbs.contains(verb)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_of_verbs_contains_exactly_its_verbs() {
        for bits in 0..16_u8 {
            let verbs: Verbs = Verb::ALL
                .into_iter()
                .filter(|verb| bits & 1 << *verb as u8 != 0)
                .collect();
            assert_eq!(verbs.bits(), bits);
            assert_eq!(verbs, Verbs::from_bits(bits | 0b1111_0000));
            for verb in Verb::ALL {
                assert_eq!(verbs.contains(verb), bits & 1 << verb as u8 != 0);
                assert_eq!(Verb::from_name(verb.name()), Some(verb));
            }
        }
        assert_eq!(Verb::from_name("root"), None);
        assert_eq!(
            [Verb::Read, Verb::Admin]
                .into_iter()
                .collect::<Verbs>()
                .to_string(),
            "read,admin"
        );
    }
}
