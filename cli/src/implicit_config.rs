//! Checks an `anneal.toml` that is read only because it is in the current folder: the implicit
//! file. Another person may have written it. It may change settings, but it must not send secrets
//! from the user's environment or from other files to another machine. A file that is named with
//! `--config` is not checked.

use anneal_llm::provider::Providers;
use anneal_process::trace_export::TracingSettings;
use anneal_store::StoreSettings;
use figment::{Figment, value::Value};

use crate::url_secrets::without_secrets;

/// The file that is read if `--config` names none.
pub(crate) const FILE: &str = "anneal.toml";

/// Refuses settings in force (`providers`, `database`) that send a secret to an address from the
/// implicit file. Also refuses `database.insecure` from that file for a database that another
/// source names.
pub(crate) fn check_secrets(
    implicit_file: &Figment,
    providers: &Providers,
    database: &StoreSettings,
) -> anyhow::Result<()> {
    let text = |key: &str| {
        implicit_file
            .find_value(key)
            .ok()
            .and_then(Value::into_string)
    };
    for (name, provider) in providers {
        let destinations: Vec<String> = [("url", &provider.url), ("proxy", &provider.proxy)]
            .into_iter()
            .filter_map(|(key, in_force)| {
                let value = text(&format!("providers.{name}.{key}"))?;
                (in_force.as_ref() == Some(&value)).then(|| without_secrets(&value))
            })
            .collect();
        let has_key = provider.key_env.is_some() || provider.key_file.is_some();
        anyhow::ensure!(
            destinations.is_empty() || !has_key || provider.is_trusted_endpoint(),
            "{FILE} of this folder sends the key of providers.{name} to {}; if that is meant, name the file: --config {FILE}",
            destinations.join(" through ")
        );
    }
    let names_database = text("database.url").is_some_and(|url| url == database.url);
    let password_source =
        ambient_password_source().filter(|_| names_database && !database.is_on_this_machine());
    anyhow::ensure!(
        password_source.is_none(),
        "{FILE} of this folder sends the password in {} to {}; if that is meant, name the file: --config {FILE}",
        password_source.unwrap_or_default(),
        without_secrets(&database.url)
    );
    let insecure = implicit_file
        .find_value("database.insecure")
        .ok()
        .and_then(|value| value.to_bool());
    anyhow::ensure!(
        insecure != Some(true) || names_database || database.url.is_empty(),
        "{FILE} of this folder sets database.insecure for a database that it does not name; if that is meant, name the file: \
         --config {FILE}"
    );
    Ok(())
}

/// Standard variables with headers of the export of traces: credentials of the collector.
const TRACE_HEADER_VARIABLES: [&str; 2] = [
    "OTEL_EXPORTER_OTLP_TRACES_HEADERS",
    "OTEL_EXPORTER_OTLP_HEADERS",
];

/// Refuses settings in force that send headers of the export of traces from other sources to a
/// collector from the implicit file.
pub(crate) fn check_trace_headers(
    implicit_file: &Figment,
    tracing: &TracingSettings,
) -> anyhow::Result<()> {
    let find = |key: &str| implicit_file.find_value(key).ok();
    let endpoint = find("tracing.endpoint").and_then(Value::into_string);
    let names_collector = endpoint.is_some_and(|endpoint| endpoint == tracing.endpoint);
    let in_file = find("tracing.headers")
        .and_then(Value::into_dict)
        .unwrap_or_default();
    let has_other_headers = tracing
        .headers
        .iter()
        .any(|(name, value)| in_file.get(name).and_then(Value::as_str) != Some(value.as_str()));
    let is_set =
        |variable: &&str| std::env::var_os(variable).is_some_and(|value| !value.is_empty());
    let source = TRACE_HEADER_VARIABLES
        .into_iter()
        .find(is_set)
        .or_else(|| has_other_headers.then_some("tracing.headers"));
    anyhow::ensure!(
        source.is_none() || !names_collector || tracing.endpoint.is_empty(),
        "{FILE} of this folder sends the headers in {} to {}; if that is meant, name the file: --config {FILE}",
        source.unwrap_or_default(),
        without_secrets(&tracing.endpoint)
    );
    Ok(())
}

/// The source of a password that sqlx would use although no setting names it: an environment
/// variable, or the file ~/.pgpass, which may hold a password for any host. None: there is none.
fn ambient_password_source() -> Option<&'static str> {
    let is_set =
        |variable: &&str| std::env::var_os(variable).is_some_and(|value| !value.is_empty());
    let has_file = || std::env::home_dir().is_some_and(|home| home.join(".pgpass").exists());
    ["PGPASSWORD", "PGPASSFILE"]
        .into_iter()
        .find(is_set)
        .or_else(|| has_file().then_some("~/.pgpass"))
}
