//! Asks a provider whether it can be reached and accepts its key. No model is called, so it costs
//! no tokens: the request is for the list of models, which every protocol has.

use std::{collections::BTreeSet, time::Duration};

use serde_json::Value;

use super::{Api, CallFailure, ProviderSettings, SettingsError, call_limits::Limits, callable};

/// Most bytes that are read of a list of models.
const LIST_BYTES: usize = 1024 * 1024;

/// The prefix of the names in Gemini's list.
const GEMINI_PREFIX: &str = "models/";

/// The provider's answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reached {
    /// It accepts the key.
    Accepted {
        /// Its models. None: the answer is no list of models, too long, or only a page of the list.
        models: Option<BTreeSet<String>>,
    },
    /// It has no list of models at this URL (3xx, 404, 405), so the configured URL is perhaps wrong.
    NothingAtUrl {
        /// HTTP status.
        status: u16,
        /// The URL that was asked for.
        url: String,
    },
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
    Unreachable {
        /// The URL that was asked for.
        url: String,
        /// Why there is no answer.
        failure: CallFailure,
    },
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
    let url = format!("{}/models", provider.base_url);
    let (status, body) = match provider.get("/models", LIST_BYTES).await {
        Ok(answer) => answer,
        Err(failure) => return Ok(Reached::Unreachable { url, failure }),
    };
    Ok(match status {
        200..=299 => Reached::Accepted {
            models: listed_models(settings.api, &body),
        },
        300..=399 | 404 | 405 => Reached::NothingAtUrl { status, url },
        401 | 403 => Reached::KeyRefused { status },
        400 if settings.api == Api::Gemini => Reached::KeyRefused { status },
        408 | 429 | 500.. => Reached::Failing { status },
        _ => Reached::WithoutList { status },
    })
}

/// The names of the models in an answer. None: it is not a whole list of models.
fn listed_models(api: Api, body: &[u8]) -> Option<BTreeSet<String>> {
    let answer: Value = serde_json::from_slice(body).ok()?;
    let next_page = answer["nextPageToken"].as_str().unwrap_or_default();
    if answer["has_more"] == true || !next_page.is_empty() {
        return None;
    }
    let (list, name, prefix) = match api {
        Api::OpenAi | Api::Anthropic => ("data", "id", ""),
        Api::Gemini => ("models", "name", GEMINI_PREFIX),
    };
    let models = answer[list].as_array()?.iter();
    models
        .map(|model| {
            let full = model[name].as_str()?;
            Some(full.strip_prefix(prefix).unwrap_or(full).to_owned())
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_whole_list_of_models_is_read_in_each_protocol() {
        let listed = |api, body: &str| listed_models(api, body.as_bytes());
        let one = Some(BTreeSet::from(["one".to_owned()]));
        let by_id = r#"{"data": [{"id": "one", "object": "model"}], "has_more": false}"#;
        assert_eq!(listed(Api::OpenAi, by_id), one);
        assert_eq!(listed(Api::Anthropic, by_id), one);
        let by_name = r#"{"models": [{"name": "models/one"}]}"#;
        assert_eq!(listed(Api::Gemini, by_name), one);
        for page in [
            r#"{"data": [{"id": "one"}], "has_more": true}"#,
            r#"{"data": [{"name": "one"}]}"#,
            r#"{"data": [{"id": "one""#,
            "[]",
            "",
        ] {
            assert_eq!(listed(Api::Anthropic, page), None, "{page}");
        }
        let page = r#"{"models": [{"name": "models/one"}], "nextPageToken": "two"}"#;
        assert_eq!(listed(Api::Gemini, page), None);
    }
}
