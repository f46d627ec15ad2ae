//! Asks a provider whether it can be reached and accepts its key. No model is called, so it costs
//! no tokens: the request is for the list of models, which every protocol has.

use std::time::Duration;

use super::{Api, CallFailure, ProviderSettings, SettingsError, call_limits::Limits, callable};

/// The provider's answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reached {
    /// It accepts the key.
    Accepted,
    /// It answers, but has no list of models, so the key was perhaps not checked.
    WithoutList {
        /// HTTP status.
        status: u16,
    },
    /// It refuses the key (401, 403; Gemini: 400).
    KeyRefused {
        /// HTTP status.
        status: u16,
    },
    /// It answers with an error that may pass.
    Failing {
        /// HTTP status.
        status: u16,
    },
    /// It gives no answer.
    Unreachable(CallFailure),
}

/// Asks the provider of these settings for its list of models, for at most `deadline`. Reads its
/// key. An error if the settings cannot work.
pub async fn reach(
    settings: &ProviderSettings,
    deadline: Duration,
) -> Result<Reached, SettingsError> {
    let mut provider = callable::provider(settings)?;
    provider.limits = Limits {
        silence: deadline,
        total: deadline,
        ..provider.limits
    };
    let status = match provider.get_status("/models").await {
        Ok(status) => status,
        Err(failure) => return Ok(Reached::Unreachable(failure)),
    };
    Ok(match status {
        200..=299 => Reached::Accepted,
        401 | 403 => Reached::KeyRefused { status },
        400 if settings.api == Api::Gemini => Reached::KeyRefused { status },
        408 | 429 | 500.. => Reached::Failing { status },
        _ => Reached::WithoutList { status },
    })
}
