//! The server's `[session]` settings, which conversations override key by key. They are kept in two
//! forms: as a type for decisions in Rust, and as JSON for statements that apply the settings
//! themselves, for example to find the messages that are cool.

use std::sync::Arc;

use anneal_core::policy::{Cooling, Policy, PolicyOverrides, SessionSettings};
use tokio::sync::watch;

use crate::{
    error::StoreError,
    rows::{column, tokens},
};

/// The server's `[session]` settings, and the parameters of statements that are made from them.
#[derive(Debug, Clone)]
pub(crate) struct PolicyDefaults {
    session: Arc<SessionSettings>,
    bases: String,
    profiles_without_tool_messages: Vec<&'static str>,
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
        Self {
            bases: session.bases(),
            profiles_without_tool_messages: session.profiles_without_tool_messages(),
            fingerprint: session.fingerprint(),
            session: Arc::new(session),
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

    /// Names of the profiles whose conversations keep no tool messages, unless their overrides say
    /// otherwise; "" for no profile.
    pub(crate) fn profiles_without_tool_messages(&self) -> &[&'static str] {
        &self.profiles_without_tool_messages
    }

    /// A digest of the settings, which differs when the settings differ.
    pub(crate) const fn fingerprint(&self) -> i64 {
        self.fingerprint
    }

    /// The policy of a conversation. A preview's overrides replace the conversation's stored
    /// overrides, and those replace the server's settings, key by key. `window` is the context
    /// window that the model's provider has reported, in tokens.
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

    /// The settings of the same policy that a statement needs to read a context.
    pub(crate) fn swap_settings(
        &self,
        stored: &StoredPolicy,
        preview: &PolicyOverrides,
    ) -> Result<SwapSettings, StoreError> {
        let stored = parse_overrides(stored.text())?;
        let set = self.session.resolved(&preview.clone().over(stored));
        Ok(SwapSettings {
            large_threshold: column(set.large_message_threshold.unwrap_or_default()),
            radius: i64::from(set.hot_zone_radius.unwrap_or(0)),
            stepped: set.cooling == Some(Cooling::Stepped),
            model: set.model,
        })
    }
}

/// The settings that decide which messages of a context are sent as their summaries, and the model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SwapSettings {
    /// A message with more tokens is large.
    pub(crate) large_threshold: i64,
    /// A message more than this many turns old is cool.
    radius: i64,
    /// Whether cooling is stepped; otherwise it is strict.
    pub(crate) stepped: bool,
    /// The model that the settings name. None: they name none.
    pub(crate) model: Option<String>,
}

impl SwapSettings {
    /// The turn before which messages are cool when `turn` is the current one.
    pub(crate) fn cool_turn(&self, turn: i32) -> i64 {
        i64::from(turn) - self.radius
    }
}

/// A conversation's overrides as they are stored: the text of a JSON object. Cheap to clone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredPolicy(Arc<str>);

/// The text of a policy without overrides.
const NO_OVERRIDES: &str = "{}";

impl StoredPolicy {
    pub(crate) fn new(text: &str) -> Self {
        Self(Arc::from(text))
    }

    pub(crate) fn text(&self) -> &str {
        &self.0
    }

    /// The bytes of the text.
    pub fn bytes(&self) -> usize {
        self.text().len()
    }

    /// Whether the conversation has overrides. Most have none.
    pub fn has_overrides(&self) -> bool {
        self.text() != NO_OVERRIDES
    }
}

impl Default for StoredPolicy {
    /// A policy without overrides.
    fn default() -> Self {
        Self::new(NO_OVERRIDES)
    }
}

/// Parses a conversation's stored overrides.
pub(crate) fn parse_overrides(stored: &str) -> Result<PolicyOverrides, StoreError> {
    serde_json::from_str(stored).map_err(|_| StoreError::Unreadable("policy"))
}

#[cfg(test)]
mod tests {
    use anneal_core::policy::Profile;

    use super::*;

    fn swap_settings(stored: &str, preview: &PolicyOverrides) -> SwapSettings {
        PolicyDefaults::new(SessionSettings::default())
            .swap_settings(&StoredPolicy::new(stored), preview)
            .expect("is a policy")
    }

    #[test]
    fn the_settings_of_a_swap_are_those_of_the_policy() {
        let defaults = PolicyDefaults::new(SessionSettings::default());
        let previews = std::iter::once(None).chain(Profile::ALL.into_iter().map(Some));
        for preview in previews {
            let preview = PolicyOverrides {
                profile: preview,
                ..PolicyOverrides::default()
            };
            for stored in [
                "{}",
                r#"{"profile": "agents"}"#,
                r#"{"profile": "claw0", "cooling": "stepped", "hot_zone_radius": 7}"#,
                r#"{"large_message_threshold": 200}"#,
            ] {
                let policy = defaults.policy(stored, &preview, None).expect("a policy");
                let settings = swap_settings(stored, &preview);
                assert_eq!(
                    (settings.large_threshold, settings.stepped),
                    (
                        column(policy.large_message_threshold),
                        policy.cooling == Cooling::Stepped
                    ),
                    "{stored} {preview:?}"
                );
                assert_eq!(
                    settings.cool_turn(9),
                    9 - i64::from(policy.hot_zone_radius),
                    "{stored} {preview:?}"
                );
            }
        }
    }

    #[test]
    fn the_model_of_a_call_replaces_that_of_the_conversation() {
        let preview = PolicyOverrides {
            model: Some("b".into()),
            ..PolicyOverrides::default()
        };
        let stored = r#"{"model": "a"}"#;
        assert_eq!(swap_settings(stored, &preview).model.as_deref(), Some("b"));
        let none = PolicyOverrides::default();
        assert_eq!(swap_settings(stored, &none).model.as_deref(), Some("a"));
        assert_eq!(swap_settings("{}", &none).model, None);
    }
}
