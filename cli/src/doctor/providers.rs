//! Whether the providers of models answer, accept their keys and have the configured models. Each
//! is asked for its list of models, which costs no tokens.

use anneal_core::model::Models;
use anneal_llm::provider::{
    CallFailure, ProviderSettings, Providers, Reached, SettingsError, reach,
};
use tokio::task::JoinSet;

use super::{CHECK_DEADLINE, finding::Finding};

/// The name of this check, for programs.
const CHECK: &str = "provider";

/// The same for a model that its provider does not list.
const MODEL_CHECK: &str = "provider.model";

/// Asks all providers at the same time. The findings are in the order of the providers' names.
pub(super) async fn examine(providers: &Providers, models: &Models) -> Vec<Finding> {
    let mut asked = JoinSet::new();
    for (name, settings) in providers {
        let (name, settings) = (name.clone(), settings.clone());
        let served = served_models(&name, models);
        asked.spawn(async move {
            let reached = reach(&settings, CHECK_DEADLINE).await;
            let missing = find_missing_models(&name, &served, &reached);
            let mut findings = vec![judge(&name, &settings, reached)];
            findings.extend(missing);
            (name, findings)
        });
    }
    let mut findings = asked.join_all().await;
    findings.sort_by(|(one, _), (other, _)| one.cmp(other));
    if findings.is_empty() {
        return vec![Finding::ok(
            CHECK,
            "no provider is configured: turns have no model, and summaries are extractive",
        )];
    }
    findings
        .into_iter()
        .flat_map(|(_, findings)| findings)
        .collect()
}

/// The configured models of this provider: their names, and the provider's names for them.
fn served_models(provider: &str, models: &Models) -> Vec<(String, String)> {
    models
        .configured()
        .filter(|(_, settings)| settings.provider.as_deref() == Some(provider))
        .map(|(name, settings)| {
            let served_as = settings.served_as.as_deref().unwrap_or(name);
            (name.to_owned(), served_as.to_owned())
        })
        .collect()
}

/// A warning for each configured model that is not in the provider's list. None if the list is not
/// known.
fn find_missing_models(
    provider: &str,
    served: &[(String, String)],
    reached: &Result<Reached, SettingsError>,
) -> Vec<Finding> {
    let Ok(Reached::Accepted {
        models: Some(listed),
    }) = reached
    else {
        return Vec::new();
    };
    served
        .iter()
        .filter(|(_, served_as)| !listed.contains(served_as))
        .map(|(name, served_as)| {
            Finding::warning(
                MODEL_CHECK,
                format!("the provider {provider} lists no model {served_as:?} (models.{name:?})"),
                format!(
                    "set models.{name:?}.served_as to a name in its list, unless the name is an alias that it does not list"
                ),
            )
        })
        .collect()
}

fn judge(
    name: &str,
    settings: &ProviderSettings,
    reached: Result<Reached, SettingsError>,
) -> Finding {
    let has_key = settings.key_env.is_some() || settings.key_file.is_some();
    match reached {
        Err(error) => Finding::problem(
            CHECK,
            format!("providers.{name} cannot be used: {error}"),
            "change its settings",
        ),
        Ok(Reached::Accepted { .. }) if has_key => Finding::ok(
            CHECK,
            format!("the provider {name} answers and accepts the key"),
        ),
        Ok(Reached::Accepted { .. }) => Finding::ok(CHECK, format!("the provider {name} answers")),
        Ok(Reached::NothingAtUrl { status, url }) => Finding::warning(
            CHECK,
            format!("the provider {name} has no list of models at {url} (status {status})"),
            format!(
                "check the path of providers.{name}.url, which often ends with /v1; nothing is to be done if the provider has no such list"
            ),
        ),
        Ok(Reached::WithoutList { status }) => Finding::ok(
            CHECK,
            format!(
                "the provider {name} answers, without a list of models (status {status}), so its key was not checked"
            ),
        ),
        Ok(Reached::KeyRefused { status }) => Finding::problem(
            CHECK,
            format!("the provider {name} refuses the key (status {status})"),
            if has_key {
                format!(
                    "put a valid key into the variable or file that providers.{name} names, then reload or restart"
                )
            } else {
                format!("set providers.{name}.key_env or key_file")
            },
        ),
        Ok(Reached::Failing { status }) => Finding::warning(
            CHECK,
            format!("the provider {name} answers with an error (status {status})"),
            "try again later; ask the provider if it stays",
        ),
        Ok(Reached::Unreachable { url, failure }) => {
            let why = match failure {
                CallFailure::Unavailable { what, .. } => what,
                failure => failure.to_string(),
            };
            Finding::problem(
                CHECK,
                format!("the provider {name} gives no answer at {url}: {why}"),
                format!(
                    "see whether it runs; check providers.{name}.url and proxy, the network, and the certificate of the \
                     provider"
                ),
            )
        }
    }
}
