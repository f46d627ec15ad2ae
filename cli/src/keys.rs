//! `anneal keys`.

use std::process::ExitCode;

use anneal_core::caller::{Verb, Verbs};
use anneal_server::NewSecret;
use anneal_store::{ListedKey, Micros, NewKey, Owner};
use anyhow::Context as _;
use prost_types::Timestamp;
use uuid::Uuid;

use crate::{
    command::KeysAction,
    config::{Config, without_secrets},
    output,
};

/// Keys read at once.
const PAGE: i64 = 500;

/// Makes, lists or revokes keys.
pub(crate) async fn run(config: &Config, action: KeysAction) -> anyhow::Result<ExitCode> {
    let mut owner = connect(config).await?;
    match action {
        KeysAction::Create { tenant, name, verbs, days } => {
            let verbs = verbs_named(&verbs)?;
            let secret = NewSecret::make().context("the system has no random bytes")?;
            let (name, tenant) = (name.trim(), tenant.as_str());
            anyhow::ensure!(!name.is_empty() && name.len() <= 128, "--name: 1 to 128 bytes that say who uses the key");
            let key = NewKey { id: secret.id, tenant, name, secret_digest: &secret.digest, verbs, days };
            let made = owner.create_key(&key).await?;
            anyhow::ensure!(made, "there is no tenant {tenant:?}: make it with `anneal tenants create`");
            output::note(format_args!(
                "key {} of tenant {tenant}, for {name}: {verbs}. It is shown this once:",
                secret.id
            ));
            output::line(secret.text);
        }
        KeysAction::List { tenant } => list(&mut owner, tenant.as_deref()).await?,
        KeysAction::Revoke { key } => {
            anyhow::ensure!(owner.revoke_key(key).await?, "there is no key {key} that could be revoked");
            output::line(format_args!("revoked {key}; servers that have just seen it take it for ten seconds more"));
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// The database, as its owner has it.
pub(crate) async fn connect(config: &Config) -> anyhow::Result<Owner> {
    let url = config.database_url()?;
    Owner::connect(&config.database).await.with_context(|| format!("cannot reach {}", without_secrets(url)))
}

fn verbs_named(names: &[String]) -> anyhow::Result<Verbs> {
    let verb = |name: &String| {
        Verb::named(name.trim()).with_context(|| format!("there is no verb {name:?}: read, append, admin, operator"))
    };
    names.iter().map(verb).collect()
}

async fn list(owner: &mut Owner, tenant: Option<&str>) -> anyhow::Result<()> {
    let mut after = Uuid::nil();
    loop {
        let keys = owner.keys(tenant, after, PAGE).await?;
        for key in &keys {
            output::line(line(key));
        }
        match keys.last() {
            Some(last) if keys.len() as i64 == PAGE => after = last.id,
            _ => return Ok(()),
        }
    }
}

/// A key in a line: id, tenant, verbs, who uses it, since when, what became of it, and when it was last used.
fn line(key: &ListedKey) -> String {
    let at = |time: Micros| Timestamp { seconds: time.0.div_euclid(1_000_000), nanos: 0 }.to_string();
    let state = match (key.revoked, key.expires) {
        (Some(revoked), _) => format!("revoked {}", at(revoked)),
        (None, Some(expires)) if key.has_expired => format!("expired {}", at(expires)),
        (None, Some(expires)) => format!("until {}", at(expires)),
        (None, None) => "no end".to_owned(),
    };
    let used =
        key.last_used.map_or_else(|| "never used".to_owned(), |hour| format!("last used in the hour of {}", at(hour)));
    format!("{}  {}  {}  {}  made {}, {state}, {used}", key.id, key.tenant, key.verbs, key.name, at(key.created))
}
