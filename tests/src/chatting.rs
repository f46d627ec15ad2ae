//! Houses whose server answers turns itself, with a scripted model.

use anneal_llm::provider::{MediaRule, MediaSettings};

use crate::{House, ScriptedModel};

/// The model that such a house calls.
pub const MODEL: &str = "scripted-model";

impl House {
    /// A house that calls this model, in OpenAI's protocol.
    pub async fn chatting(model: &ScriptedModel) -> Self {
        Self::calling(model.settings(&[MODEL]), MODEL).await
    }

    /// The same, and the model's provider may be told of media at public names.
    pub async fn chatting_of_pictures(model: &ScriptedModel) -> Self {
        let (mut providers, models) = model.settings(&[MODEL]);
        for provider in providers.values_mut() {
            provider.media = Some(MediaSettings::Rule(MediaRule::Https));
        }
        Self::calling((providers, models), MODEL).await
    }

    /// The same, giving a silent provider all the time of the world: whoever ends its calls, it is not impatience.
    pub async fn chatting_patiently(model: &ScriptedModel) -> Self {
        let (mut providers, models) = model.settings(&[MODEL]);
        for provider in providers.values_mut() {
            (provider.first_byte_timeout_ms, provider.total_timeout_ms) = (3_600_000, 3_600_000);
        }
        Self::calling((providers, models), MODEL).await
    }
}
