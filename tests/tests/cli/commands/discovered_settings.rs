//! An `anneal.toml` that is found in the working directory, not named with `--config`. It may set
//! what a process does, but not where the environment's secrets are sent.

use std::{io::ErrorKind, net::TcpListener};

use anneal_server::AuthSettings;
use anneal_testkit::{AnnealBinary, Folder, TestApp};

use crate::commands::BINARY;

/// The URL of a database that cannot be reached. A process that tries to connect has accepted its
/// settings.
const UNREACHABLE: &str = "postgres://postgres@127.0.0.1:1/anneal";

#[tokio::test]
async fn a_discovered_settings_file_does_not_decide_where_a_providers_key_is_sent() {
    let folder = Folder::new();
    let key = folder.file("key", "sk-canary\n").display().to_string();
    let anneal = AnnealBinary::new(BINARY, &folder, UNREACHABLE)
        .with_variable("OPENAI_API_KEY", "sk-canary");
    let elsewhere = "url = \"https://models.elsewhere.example/v1\"";
    for (settings, is_refused) in [
        (format!("{elsewhere}\nkey_env = \"OPENAI_API_KEY\""), true),
        (format!("{elsewhere}\nkey_file = \"{key}\""), true),
        (
            "url = \"http://127.0.0.1:8000/v1\"\nproxy = \"http://models.elsewhere.example\"\nkey_env = \"OPENAI_API_KEY\""
                .to_owned(),
            true,
        ),
        (elsewhere.to_owned(), false),
        ("key_env = \"OPENAI_API_KEY\"".to_owned(), false),
        (
            "url = \"https://api.openai.com/v1\"\nkey_env = \"OPENAI_API_KEY\"".to_owned(),
            false,
        ),
        (
            "url = \"http://127.0.0.1:8000/v1\"\nkey_env = \"OPENAI_API_KEY\"".to_owned(),
            false,
        ),
    ] {
        folder.file(
            "anneal.toml",
            &format!("[providers.p]\napi = \"openai\"\n{settings}\n"),
        );
        for process in ["server", "worker"] {
            let discovered = anneal.run(&[process]).await;
            let refuses = discovered.err.contains("--config anneal.toml")
                && discovered.err.contains("models.elsewhere.example");
            assert_eq!(
                refuses, is_refused,
                "{process} with {settings}: {discovered:?}"
            );
            let explicit = anneal.run(&[process, "--config", "anneal.toml"]).await;
            assert!(
                explicit.err.contains("cannot reach the database"),
                "{settings}: {explicit:?}"
            );
        }
    }
}

#[tokio::test]
async fn a_discovered_settings_file_does_not_decide_where_the_environments_password_is_sent() {
    let (folder, empty_home, pgpass_home) = (Folder::new(), Folder::new(), Folder::new());
    let pgpass = pgpass_home
        .file(".pgpass", "*:*:*:*:canary\n")
        .display()
        .to_string();
    let [empty_home, pgpass_home] =
        [empty_home.path(), pgpass_home.path()].map(|home| home.display().to_string());
    let anneal = AnnealBinary::new(BINARY, &folder, "").with_variable("HOME", &empty_home);
    let settings =
        "[database]\nurl = \"postgres://anneal@db.elsewhere.example/anneal?sslmode=verify-full\"\n";
    folder.file("anneal.toml", settings);
    for (variable, value, named) in [
        ("PGPASSWORD", "canary", "PGPASSWORD"),
        ("PGPASSFILE", pgpass.as_str(), "PGPASSFILE"),
        ("HOME", pgpass_home.as_str(), "~/.pgpass"),
    ] {
        let refused = anneal
            .clone()
            .with_variable(variable, value)
            .run(&["migrate"])
            .await;
        assert!(
            refused.err.contains("--config anneal.toml") && refused.err.contains(named),
            "{refused:?}"
        );
    }
    // Without a password in the environment, the URL in the file is used.
    let accepted = anneal.run(&["migrate"]).await;
    assert!(accepted.err.contains("cannot reach"), "{accepted:?}");
    // If the environment names the database, the file must not disable its certificate check.
    folder.file("anneal.toml", "[database]\ninsecure = true\n");
    let refused = anneal
        .on_database("postgres://anneal@db.elsewhere.example/anneal")
        .run(&["migrate"])
        .await;
    assert!(
        refused.err.contains("--config anneal.toml") && refused.err.contains("database.insecure"),
        "{refused:?}"
    );
}

#[tokio::test]
async fn commands_with_a_credential_ignore_the_address_in_a_discovered_file() {
    let auth = AuthSettings {
        api_keys: true,
        ..Default::default()
    };
    let (app, folder) = (
        TestApp::with_auth(anneal_server::ServerSettings::default(), auth).await,
        Folder::new(),
    );
    let key = app.key("anna", &[anneal_core::caller::Verb::Admin]).await;
    let listener = TcpListener::bind("127.0.0.1:0").expect("some port is free");
    listener.set_nonblocking(true).expect("can be set");
    let in_file = listener.local_addr().expect("the socket is bound");
    folder.file(
        "anneal.toml",
        &format!("address = \"http://{in_file}\"\n[server]\ngrpc_address = \"{in_file}\"\n"),
    );
    // Commands take the address of the server from `--address` or `ANNEAL_ADDRESS` only. Without
    // these it is the default, at which there may be another server.
    let address = format!("http://{}", app.addresses.grpc);
    let anna = AnnealBinary::new(BINARY, &folder, "").with_variable("ANNEAL_TOKEN", &key.text);
    let by_default = anna.clone().run(&["jobs"]).await;
    let connected = listener.accept().map_err(|error| error.kind());
    assert!(
        matches!(connected, Err(ErrorKind::WouldBlock)),
        "the credential goes to the address in the file: {by_default:?}"
    );
    let jobs = anna
        .clone()
        .with_variable("ANNEAL_ADDRESS", &address)
        .run(&["jobs"])
        .await;
    assert_eq!(
        (jobs.code, jobs.out.as_str()),
        (Some(0), "no jobs\n"),
        "{jobs:?}"
    );
}

#[tokio::test]
async fn a_discovered_settings_file_does_not_decide_where_the_collectors_credential_is_sent() {
    let folder = Folder::new();
    let anneal = AnnealBinary::new(BINARY, &folder, UNREACHABLE)
        .with_variable("OTEL_EXPORTER_OTLP_HEADERS", "authorization=canary");
    folder.file(
        "anneal.toml",
        "[tracing]\nendpoint = \"https://traces.elsewhere.example:4317\"\n",
    );
    let discovered = anneal.run(&["config"]).await;
    assert!(
        discovered.err.contains("OTEL_EXPORTER_OTLP_HEADERS")
            && discovered.err.contains("traces.elsewhere.example"),
        "{discovered:?}"
    );
    let explicit = anneal.run(&["config", "--config", "anneal.toml"]).await;
    assert_eq!(explicit.code, Some(0), "{explicit:?}");
}

#[tokio::test]
async fn a_header_in_a_discovered_file_does_not_allow_another_value_of_the_same_header() {
    let folder = Folder::new();
    folder.file(
        "anneal.toml",
        "[tracing]\nendpoint = \"https://traces.elsewhere.example:4317\"\n\
         [tracing.headers]\nauthorization = \"of the file\"\n\"x.key\" = \"of the file\"\n",
    );
    let anneal = AnnealBinary::new(BINARY, &folder, UNREACHABLE);
    let of_the_file = anneal.run(&["config"]).await;
    assert_eq!(of_the_file.code, Some(0), "{of_the_file:?}");
    for name in ["authorization", "\"x.key\""] {
        let headers = format!("[tracing.headers]\n{name} = \"canary\"\n");
        let refused = anneal
            .clone()
            .with_variable("ANNEAL_CONFIG_TOML", &headers)
            .run(&["config"])
            .await;
        assert!(
            refused.code == Some(1)
                && refused.err.contains("the headers in tracing.headers")
                && refused.err.contains("traces.elsewhere.example"),
            "{name}: {refused:?}"
        );
    }
}
