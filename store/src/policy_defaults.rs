//! The server's `[session]` settings, which conversations override key by key. They are kept in two
//! forms: for decisions in Rust, and as a parameter of statements that decide about coolness
//! themselves.

use anneal_core::policy::{Policy, PolicyOverrides, SessionSettings};

use crate::{error::StoreError, rows::tokens};

/// The server's `[session]` settings, with what statements need of them.
#[derive(Debug, Clone)]
pub(crate) struct PolicyDefaults {
    session: SessionSettings,
    bases: String,
    fingerprint: i64,
}

impl PolicyDefaults {
    pub(crate) fn new(session: SessionSettings) -> Self {
        let (bases, fingerprint) = (session.bases(), session.fingerprint());
        Self {
            session,
            bases,
            fingerprint,
        }
    }

    pub(crate) const fn session(&self) -> &SessionSettings {
        &self.session
    }

    /// JSON object from profile name to the profile's keys.
    pub(crate) fn bases(&self) -> &str {
        &self.bases
    }

    /// Digest of the settings: it differs when they differ.
    pub(crate) const fn fingerprint(&self) -> i64 {
        self.fingerprint
    }

    /// The policy of a conversation: the preview's overrides, then its stored overrides, then the
    /// server's settings; and the window that its model's provider has reported.
    pub(crate) fn policy(
        &self,
        stored: &str,
        preview: &PolicyOverrides,
        window: Option<i64>,
    ) -> Result<Policy, StoreError> {
        let stored: PolicyOverrides = overrides(stored)?;
        Ok(self
            .session
            .policy(&preview.clone().over(stored), window.map(tokens)))
    }
}

/// Parses a conversation's stored overrides.
pub(crate) fn overrides(stored: &str) -> Result<PolicyOverrides, StoreError> {
    serde_json::from_str(stored).map_err(|_| StoreError::Unreadable("policy"))
}
