//! The settings that hold for conversations which say nothing themselves, in the two forms that are needed: for decisions in
//! Rust, and as a parameter of the statements that decide about coolness themselves.

use anneal_core::policy::{Policy, PolicyOverrides, Session};

use crate::{error::StoreError, rows::tokens};

/// The server's settings.
#[derive(Debug, Clone)]
pub(crate) struct Rules {
    session: Session,
    bases: String,
    fingerprint: i64,
}

impl Rules {
    pub(crate) fn new(session: Session) -> Self {
        let (bases, fingerprint) = (session.bases(), session.fingerprint());
        Self { session, bases, fingerprint }
    }

    pub(crate) const fn session(&self) -> &Session {
        &self.session
    }

    /// JSON object from profile name to its keys.
    pub(crate) fn bases(&self) -> &str {
        &self.bases
    }

    /// Differs when the settings do.
    pub(crate) const fn fingerprint(&self) -> i64 {
        self.fingerprint
    }

    /// The policy of a conversation: its stored overrides below those of a preview, and the window that its model's
    /// provider has named.
    pub(crate) fn policy(
        &self,
        stored: &str,
        preview: &PolicyOverrides,
        window: Option<i64>,
    ) -> Result<Policy, StoreError> {
        let stored: PolicyOverrides = overrides(stored)?;
        Ok(self.session.policy(&preview.clone().over(stored), window.map(tokens)))
    }
}

/// A conversation's stored overrides.
pub(crate) fn overrides(stored: &str) -> Result<PolicyOverrides, StoreError> {
    serde_json::from_str(stored).map_err(|_| StoreError::Unreadable("policy"))
}
