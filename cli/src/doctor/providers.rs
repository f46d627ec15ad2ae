//! Whether the providers of models answer and accept their keys. Each is asked for its list of
//! models, which costs no tokens.

use anneal_llm::provider::{ProviderSettings, Providers, Reached, SettingsError, reach};
use tokio::task::JoinSet;

use super::{CHECK_DEADLINE, finding::Finding};

/// What a finding is about, for programs.
const CHECK: &str = "provider";

/// Asks all providers at the same time. The findings are in the order of the providers' names.
pub(super) async fn examine(providers: &Providers) -> Vec<Finding> {
    let mut asked = JoinSet::new();
    for (name, settings) in providers {
        let (name, settings) = (name.clone(), settings.clone());
        asked.spawn(async move {
            let reached = reach(&settings, CHECK_DEADLINE).await;
            let finding = judge(&name, &settings, reached);
            (name, finding)
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
    findings.into_iter().map(|(_, finding)| finding).collect()
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
        Ok(Reached::Accepted) if has_key => Finding::ok(
            CHECK,
            format!("the provider {name} answers and accepts the key"),
        ),
        Ok(Reached::Accepted) => Finding::ok(CHECK, format!("the provider {name} answers")),
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
        Ok(Reached::Unreachable(failure)) => Finding::problem(
            CHECK,
            format!("the provider {name} gives no answer: {failure}"),
            format!(
                "check providers.{name}.url and proxy, the network, and the certificate of the provider"
            ),
        ),
    }
}
