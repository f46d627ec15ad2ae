//! `anneal keys`: creates, lists and revokes API keys.

use std::process::ExitCode;

use anneal_core::caller::{Bound, BoundId, ConversationId, Verb, Verbs};
use anneal_server::GeneratedKey;
use anneal_store::{ListedKey, Micros, NewKey, OwnerConnection};
use anyhow::Context as _;
use prost_types::Timestamp;
use uuid::Uuid;

use crate::{
    command::{BoundArguments, KeysAction},
    config::Config,
    find_by_prefix,
    output::{self, OutputFormat},
    url_secrets::without_secrets,
};

/// Keys per page.
const PAGE: i64 = 500;

/// Runs the command.
pub(crate) async fn run(config: &Config, action: KeysAction) -> anyhow::Result<ExitCode> {
    let mut owner = connect_as_login(config).await?;
    match action {
        KeysAction::Create {
            tenant,
            name,
            verbs,
            days,
            bound,
        } => {
            let verbs = parse_verbs(&verbs)?;
            let bound = parse_bound(&bound)?;
            anyhow::ensure!(
                bound.is_none() || !verbs.contains(Verb::Operator),
                "a key that is bound to a user, an agent or a conversation cannot have the verb operator"
            );
            let generated =
                GeneratedKey::make(bound.as_ref()).context("the system has no random bytes")?;
            let (name, tenant) = (name.trim(), tenant.as_str());
            anyhow::ensure!(
                !name.is_empty() && name.len() <= 128,
                "--name must have 1 to 128 bytes; it says who uses the key"
            );
            let key = NewKey {
                id: generated.id,
                tenant,
                name,
                secret_digest: &generated.digest,
                verbs,
                bound,
                days,
            };
            let made = owner.create_key(&key).await?;
            anyhow::ensure!(
                made,
                "there is no tenant {tenant:?}: create it with `anneal tenants create`"
            );
            output::print_note(format_args!(
                "key {} of tenant {tenant}, for {name}: {verbs}{}. It cannot be shown again:",
                generated.id,
                bound_text(bound.as_ref())
            ));
            output::print_line(generated.text);
        }
        KeysAction::List { tenant, json } => {
            let output_format = OutputFormat::from_argument(json);
            list_keys(&mut owner, tenant.as_deref(), output_format).await?;
        }
        KeysAction::Revoke { key } => {
            let key = resolve(&mut owner, &key).await?;
            anyhow::ensure!(
                owner.revoke_key(key).await?,
                "there is no key {key}, or it is revoked already"
            );
            output::print_line(format_args!(
                "revoked {key}; servers may accept it for 10 seconds more, or 30 if they cannot reach the database"
            ));
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Connects to the database with the login of its URL, not as `database.role`. Changes of keys and
/// tenants need the rights of the tables' owner; whether the login has them is not checked here.
pub(crate) async fn connect_as_login(config: &Config) -> anyhow::Result<OwnerConnection> {
    let url = config.database_url()?;
    OwnerConnection::connect(&config.database)
        .await
        .with_context(|| format!("cannot reach {}", without_secrets(url)))
}

fn parse_verbs(names: &[String]) -> anyhow::Result<Verbs> {
    let verb = |name: &String| {
        Verb::from_name(name.trim()).with_context(|| {
            format!("there is no verb {name:?}; verbs: read, append, admin, operator")
        })
    };
    names.iter().map(verb).collect()
}

fn parse_bound(arguments: &BoundArguments) -> anyhow::Result<Option<Bound>> {
    let id = |name: &str, text: &str| {
        BoundId::new(text).with_context(|| format!("--{name} must have 1 to 128 bytes"))
    };
    Ok(match arguments {
        BoundArguments {
            user: Some(user), ..
        } => Some(Bound::User(id("user", user)?)),
        BoundArguments {
            agent: Some(agent), ..
        } => Some(Bound::Agent(id("agent", agent)?)),
        BoundArguments { conversation, .. } => {
            conversation.map(|id| Bound::Conversation(ConversationId(id)))
        }
    })
}

/// The kind and the id of a binding.
fn bound_parts(bound: &Bound) -> (&'static str, String) {
    match bound {
        Bound::User(id) => ("user", id.as_str().to_owned()),
        Bound::Agent(id) => ("agent", id.as_str().to_owned()),
        Bound::Conversation(id) => ("conversation", id.to_string()),
    }
}

/// What is said of a key's binding, after its verbs.
fn bound_text(bound: Option<&Bound>) -> String {
    bound.map_or_else(String::new, |bound| {
        let (kind, id) = bound_parts(bound);
        format!(", bound to {kind} {id}")
    })
}

/// The id of the key whose id is, or begins with, this text.
async fn resolve(owner: &mut OwnerConnection, text: &str) -> anyhow::Result<Uuid> {
    if let Ok(id) = Uuid::try_parse(text) {
        return Ok(id);
    }
    anyhow::ensure!(
        find_by_prefix::is_id_prefix(text),
        "{text:?} is neither an id of a key nor the beginning of one; `anneal keys list` shows the ids"
    );
    let prefix = text.to_lowercase();
    let mut found = Vec::new();
    for_each_key(owner, None, |key| {
        if key.id.to_string().starts_with(&prefix) {
            found.push((key.id, key_line(key)));
        }
    })
    .await?;
    match found.as_slice() {
        [] => anyhow::bail!("there is no key whose id begins with {text:?}"),
        [(id, _)] => Ok(*id),
        several => {
            let lines: Vec<&str> = several.iter().map(|(_, line)| line.as_str()).collect();
            anyhow::bail!(
                "the ids of {} keys begin with {text:?}:\n{}",
                several.len(),
                lines.join("\n")
            )
        }
    }
}

async fn list_keys(
    owner: &mut OwnerConnection,
    tenant: Option<&str>,
    output_format: OutputFormat,
) -> anyhow::Result<()> {
    for_each_key(owner, tenant, |key| match output_format {
        OutputFormat::Text => output::print_line(key_line(key)),
        OutputFormat::Json => output::print_json(&key_json(key).to_string()),
    })
    .await
}

/// Reads the keys of one tenant, or of all, page by page.
async fn for_each_key(
    owner: &mut OwnerConnection,
    tenant: Option<&str>,
    mut process: impl FnMut(&ListedKey),
) -> anyhow::Result<()> {
    let mut after = Uuid::nil();
    loop {
        let keys = owner.list_keys(tenant, after, PAGE).await?;
        keys.iter().for_each(&mut process);
        match keys.last() {
            Some(last) if keys.len() as i64 == PAGE => after = last.id,
            _ => return Ok(()),
        }
    }
}

/// The time in whole seconds, for example `2026-12-01T10:00:00Z`.
fn timestamp_text(time: Micros) -> String {
    Timestamp {
        seconds: time.0.div_euclid(1_000_000),
        nanos: 0,
    }
    .to_string()
}

fn key_json(key: &ListedKey) -> serde_json::Value {
    let verbs: Vec<&str> = Verb::ALL
        .into_iter()
        .filter(|verb| key.verbs.contains(*verb))
        .map(Verb::name)
        .collect();
    let bound = key.bound.as_ref().map(|bound| {
        let (kind, id) = bound_parts(bound);
        serde_json::json!({ kind: id })
    });
    serde_json::json!({
        "key_id": key.id.to_string(),
        "tenant": key.tenant,
        "name": key.name,
        "verbs": verbs,
        "bound": bound,
        "created_time": timestamp_text(key.created),
        "expire_time": key.expires.map(timestamp_text),
        "has_expired": key.has_expired,
        "revoke_time": key.revoked.map(timestamp_text),
        "last_used_hour": key.last_used.map(timestamp_text),
    })
}

/// A key on one line: id, tenant, verbs, binding, name, creation, state and last use.
fn key_line(key: &ListedKey) -> String {
    let state = match (key.revoked, key.expires) {
        (Some(revoked), _) => format!("revoked {}", timestamp_text(revoked)),
        (None, Some(expires)) if key.has_expired => format!("expired {}", timestamp_text(expires)),
        (None, Some(expires)) => format!("until {}", timestamp_text(expires)),
        (None, None) => "never expires".to_owned(),
    };
    let used = key.last_used.map_or_else(
        || "never used".to_owned(),
        |hour| format!("last used in the hour of {}", timestamp_text(hour)),
    );
    format!(
        "{}  {}  {}{}  {}  made {}, {state}, {used}",
        key.id,
        key.tenant,
        key.verbs,
        bound_text(key.bound.as_ref()),
        key.name,
        timestamp_text(key.created)
    )
}
