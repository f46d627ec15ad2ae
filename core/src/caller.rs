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

/// What a credential allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Verb {
    /// Look: conversations, messages, contexts, usage.
    Read,
    /// Say and change: conversations, messages, separators, checkpoints, turns.
    Append,
    /// Take away and repair: delete conversations, requeue and discard jobs, verify.
    Admin,
    /// See the figures of the whole installation: queues and models of all tenants together.
    Operator,
}

impl Verb {
    /// Every verb.
    pub const ALL: [Self; 4] = [Self::Read, Self::Append, Self::Admin, Self::Operator];

    /// Its name: what credentials say.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Append => "append",
            Self::Admin => "admin",
            Self::Operator => "operator",
        }
    }

    /// The verb of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|verb| verb.name() == name)
    }
}

/// A set of verbs. None implies another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Verbs(u8);

impl Verbs {
    /// Every verb.
    pub const ALL: Self = Self(0b1111);

    /// Whether this one is among them.
    pub const fn allow(self, verb: Verb) -> bool {
        self.0 & 1 << verb as u8 != 0
    }

    /// The set as a number, a bit for each verb in their order: what is stored.
    pub const fn bits(self) -> u8 {
        self.0
    }

    /// The set of these bits; those of verbs that only a newer version knows are left out.
    pub const fn from_bits(bits: u8) -> Self {
        Self(bits & Self::ALL.0)
    }
}

impl FromIterator<Verb> for Verbs {
    fn from_iter<I: IntoIterator<Item = Verb>>(verbs: I) -> Self {
        Self(verbs.into_iter().fold(0, |bits, verb| bits | 1 << verb as u8))
    }
}

impl std::fmt::Display for Verbs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names: Vec<&str> = Verb::ALL.into_iter().filter(|verb| self.allow(*verb)).map(Verb::name).collect();
        f.write_str(&names.join(","))
    }
}

/// Who makes a call, as its credential says. The only way into the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Caller {
    tenant: TenantId,
    verbs: Verbs,
}

impl Caller {
    /// A caller that may do everything with what is `tenant`'s. Only what claims a tenant's job, and the open door of
    /// loopback, makes one.
    pub const fn of(tenant: TenantId) -> Self {
        Self { tenant, verbs: Verbs::ALL }
    }

    /// A caller that acts for `tenant` within these verbs. Only what reads credentials makes one.
    pub const fn with(tenant: TenantId, verbs: Verbs) -> Self {
        Self { tenant, verbs }
    }

    /// Whose data it may see.
    pub const fn tenant(self) -> TenantId {
        self.tenant
    }

    /// Whether it may do this.
    pub const fn may(self, verb: Verb) -> bool {
        self.verbs.allow(verb)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_of_verbs_hold_what_was_put_in_and_nothing_else() {
        for bits in 0..16_u8 {
            let verbs: Verbs = Verb::ALL.into_iter().filter(|verb| bits & 1 << *verb as u8 != 0).collect();
            assert_eq!(verbs.bits(), bits);
            assert_eq!(verbs, Verbs::from_bits(bits | 0b1111_0000));
            for verb in Verb::ALL {
                assert_eq!(verbs.allow(verb), bits & 1 << verb as u8 != 0);
                assert_eq!(Verb::named(verb.name()), Some(verb));
            }
        }
        assert_eq!(Verb::named("root"), None);
        assert_eq!([Verb::Read, Verb::Admin].into_iter().collect::<Verbs>().to_string(), "read,admin");
    }
}
