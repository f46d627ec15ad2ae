//! `anneal.toml` of the folder that a command happens to run in. Whoever has made the folder has written it: it says what processes
//! do, but not where secrets go that the user has put into the environment or into other files. For that it has to be named.

use figment::{Figment, value::Value};

use crate::config::{Config, without_secrets};

/// The file that is read where none is named.
pub(crate) const FILE: &str = "anneal.toml";

/// Refuses settings in force that send a secret to where only the found file says.
pub(crate) fn check(found: &Figment, config: &Config) -> anyhow::Result<()> {
    let text = |key: &str| found.find_value(key).ok().and_then(Value::into_string);
    for (name, provider) in &config.providers {
        let says = |key: &str, in_force: &Option<String>| {
            let said = text(&format!("providers.{name}.{key}"));
            said.is_some() && said == *in_force
        };
        let is_led = says("url", &provider.url) || says("proxy", &provider.proxy);
        let has_key = provider.key_env.is_some() || provider.key_file.is_some();
        anyhow::ensure!(
            !is_led || !has_key || provider.is_at_home(),
            "{FILE} of this folder sends the key of providers.{name} to {}; if that is meant, name the file: --config {FILE}",
            provider.url.as_deref().map(without_secrets).unwrap_or_default()
        );
    }
    let is_found = text("database.url").is_some_and(|url| url == config.database.url);
    let password = password_elsewhere().filter(|_| is_found && !config.database.is_on_this_machine());
    anyhow::ensure!(
        password.is_none(),
        "{FILE} of this folder sends the password in {} to {}; if that is meant, name the file: --config {FILE}",
        password.unwrap_or_default(),
        without_secrets(&config.database.url)
    );
    let insecure = found.find_value("database.insecure").ok().and_then(|value| value.to_bool());
    anyhow::ensure!(
        insecure != Some(true) || is_found || config.database.url.is_empty(),
        "{FILE} of this folder sets database.insecure for a database that it does not name; if that is meant, name the file: \
         --config {FILE}"
    );
    Ok(())
}

/// Where a password stands that sqlx takes by itself: a variable, or a file of passwords, which may name any host.
fn password_elsewhere() -> Option<&'static str> {
    let is_set = |variable: &&str| std::env::var_os(variable).is_some_and(|value| !value.is_empty());
    let has_file = || std::env::home_dir().is_some_and(|home| home.join(".pgpass").exists());
    ["PGPASSWORD", "PGPASSFILE"].into_iter().find(is_set).or_else(|| has_file().then_some("~/.pgpass"))
}
