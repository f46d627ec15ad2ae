//! The settings sections `chat` and `agents`: turns, and the defaults of agents' conversations.

use std::collections::BTreeMap;

use anneal_core::{
    limits::{ID_BYTES, SYSTEM_PROMPT_BYTES},
    policy::{PolicyOverrides, Profile, SessionSettings},
    tokens::Encoding,
};
use serde::{Deserialize, Serialize};

use super::{AgentChatSettings, ModelList};

/// The settings of turns that the server runs itself.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ChatSettings {
    /// The models of turns for which neither the call nor the conversation names one, in the order
    /// in which they are tried.
    pub model: ModelList,
}

/// The defaults of an agent's new conversations. They apply to what the creating call does not set.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AgentSettings {
    /// The profile of the policy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub profile: Option<Profile>,
    /// The system prompt; empty: none.
    pub system_prompt: String,
    /// The model, and those that its conversations' turns try after it.
    pub model: ModelList,
    /// The options of turns. Unlike the other settings they also apply to conversations that exist.
    pub chat: AgentChatSettings,
}

/// The settings of agents by name.
pub type Agents = BTreeMap<String, AgentSettings>;

impl AgentSettings {
    /// The policy that the settings imply.
    pub fn policy(&self) -> PolicyOverrides {
        PolicyOverrides {
            profile: self.profile,
            model: self.model.first().map(str::to_owned),
            ..PolicyOverrides::default()
        }
    }

    /// Checks that a conversation can be created with these settings. The error names the invalid
    /// setting.
    pub fn check(&self, name: &str, session: &SessionSettings) -> Result<(), AgentError> {
        let texts = [
            ("name", name, ID_BYTES),
            (
                "system_prompt",
                self.system_prompt.as_str(),
                SYSTEM_PROMPT_BYTES,
            ),
        ];
        let models = self.model.names().iter();
        let models = models.map(|model| ("model", model.as_str(), ID_BYTES));
        let refused = |key, problem| AgentError {
            agent: name.to_owned(),
            key,
            problem,
        };
        if name.is_empty() {
            return Err(refused("name", "must not be empty".to_owned()));
        }
        for (key, text, most) in texts.into_iter().chain(models) {
            if text.len() > most {
                return Err(refused(
                    key,
                    format!("has {} bytes; at most {most} are allowed", text.len()),
                ));
            }
            if text.contains('\0') {
                return Err(refused(key, "must not contain NUL".to_owned()));
            }
        }
        self.chat
            .check()
            .map_err(|error| refused("chat", format!("is refused: {error}")))?;
        let prompt_tokens = Encoding::of_model(self.model.first().unwrap_or_default())
            .unwrap_or_default()
            .counter()
            .count(&self.system_prompt);
        let checked = session.policy(&self.policy(), None).check(prompt_tokens);
        checked
            .map(|_| ())
            .map_err(|error| refused(error.key, format!("must be {}", error.must_be)))
    }
}

/// An invalid setting of an agent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("agents.{agent:?}: {key} {problem}")]
pub struct AgentError {
    agent: String,
    key: &'static str,
    /// Why the value is refused, as the rest of a sentence that begins with the key.
    problem: String,
}
