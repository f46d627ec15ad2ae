//! The server's `[session]` settings, which conversations override key by key. They are kept in two
//! forms: as a type for decisions in Rust, and as JSON for statements that apply the settings
//! themselves, for example to find the messages that are cool.

use std::sync::Arc;

use anneal_core::policy::{Policy, PolicyOverrides, SessionSettings};
use tokio::sync::watch;

use crate::{error::StoreError, rows::tokens};

/// The server's `[session]` settings, and the parameters of statements that are made from them.
#[derive(Debug, Clone)]
pub(crate) struct PolicyDefaults {
    session: Arc<SessionSettings>,
    bases: String,
    fingerprint: i64,
}

/// The settings in force, which can be replaced while the process runs. Cheap to clone; all clones
/// share them.
#[derive(Clone)]
pub(crate) struct CurrentPolicyDefaults(Arc<watch::Sender<Arc<PolicyDefaults>>>);

impl CurrentPolicyDefaults {
    pub(crate) fn new(session: SessionSettings) -> Self {
        let first = Arc::new(PolicyDefaults::new(session));
        Self(Arc::new(watch::Sender::new(first)))
    }

    /// The settings in force. A transaction gets them once, so that it does not mix old and new
    /// ones.
    pub(crate) fn get(&self) -> Arc<PolicyDefaults> {
        Arc::clone(&self.0.borrow())
    }

    pub(crate) fn replace(&self, session: SessionSettings) {
        self.0.send_replace(Arc::new(PolicyDefaults::new(session)));
    }
}

impl PolicyDefaults {
    pub(crate) fn new(session: SessionSettings) -> Self {
        let (bases, fingerprint) = (session.bases(), session.fingerprint());
        Self {
            session: Arc::new(session),
            bases,
            fingerprint,
        }
    }

    pub(crate) fn session(&self) -> Arc<SessionSettings> {
        Arc::clone(&self.session)
    }

    /// The settings in force for each profile, for statements: a JSON object from the profile's
    /// name to its settings by key. A conversation's overrides are applied to one of them.
    pub(crate) fn bases(&self) -> &str {
        &self.bases
    }

    /// A digest of the settings, which differs when the settings differ.
    pub(crate) const fn fingerprint(&self) -> i64 {
        self.fingerprint
    }

    /// The policy of a conversation. A preview's overrides replace the conversation's stored
    /// overrides, and those replace the server's settings, key by key. `window` is the context
    /// window that the model's provider has reported.
    pub(crate) fn policy(
        &self,
        stored: &str,
        preview: &PolicyOverrides,
        window: Option<i64>,
    ) -> Result<Policy, StoreError> {
        let stored: PolicyOverrides = parse_overrides(stored)?;
        Ok(self
            .session
            .policy(&preview.clone().over(stored), window.map(tokens)))
    }
}

/// Parses a conversation's stored overrides.
pub(crate) fn parse_overrides(stored: &str) -> Result<PolicyOverrides, StoreError> {
    serde_json::from_str(stored).map_err(|_| StoreError::Unreadable("policy"))
}
