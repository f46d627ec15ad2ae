//! Settings, exit codes and error messages of several commands, among them `anneal migrate`,
//! `anneal verify` and `anneal jobs`.

use anneal_core::caller::Verb;
use anneal_server::LimitSettings;
use anneal_testkit::{
    AnnealBinary, CommandOutput, Folder, TestApp, empty_database, eventually, pb,
};
use serde_json::{Value, json};

use crate::commands::BINARY;

/// The standard output of a command, which must have succeeded.
pub(crate) fn stdout_of(ran: CommandOutput) -> String {
    assert_eq!(ran.code, Some(0), "{ran:?}");
    ran.out
}

#[tokio::test]
async fn the_version_names_the_commit() {
    let folder = Folder::new();
    let anneal = AnnealBinary::new(BINARY, &folder, "");
    // A build without optimization does not know its commit (`process/build.rs`).
    let expected = format!("anneal {} (unknown)\n", env!("CARGO_PKG_VERSION"));
    assert_eq!(stdout_of(anneal.run(&["--version"]).await), expected);
}

#[tokio::test]
async fn migrate_may_run_concurrently_and_repeatedly() {
    let folder = Folder::new();
    let anneal = AnnealBinary::new(BINARY, &folder, &empty_database().await);
    let check = anneal.run(&["migrate", "--check"]).await;
    assert_eq!(check.code, Some(1));
    assert!(check.out.contains("pending: 1 "), "{check:?}");
    let listed = anneal.run(&["migrate", "--check", "--json"]).await;
    assert_eq!(listed.code, Some(1), "{listed:?}");
    assert_eq!(listed.out.lines().count(), check.out.lines().count());
    let first: Value = listed
        .out
        .lines()
        .next()
        .and_then(|line| serde_json::from_str(line).ok())
        .expect("a line of JSON");
    assert_eq!(
        (&first["record"], &first["version"]),
        (&json!("migration"), &json!(1))
    );
    let dry = stdout_of(anneal.run(&["migrate", "--dry-run"]).await);
    assert!(dry.contains("create table ai_message ("), "{dry}");
    assert_eq!(
        anneal.run(&["migrate", "--check"]).await,
        check,
        "a dry run changes nothing"
    );
    let outputs = tokio::join!(
        anneal.run(&["migrate"]),
        anneal.run(&["migrate"]),
        anneal.run(&["migrate"])
    );
    let out = [
        stdout_of(outputs.0),
        stdout_of(outputs.1),
        stdout_of(outputs.2),
    ]
    .concat();
    // The output has a line `applied: VERSION NAME` for each migration.
    assert_eq!(out.matches("applied: 1 ").count(), 1, "{out}");
    assert_eq!(
        stdout_of(anneal.run(&["migrate", "--check"]).await),
        "the schema is up to date\n"
    );
    assert_eq!(
        stdout_of(anneal.run(&["migrate", "--check", "--json"]).await),
        ""
    );
    assert_eq!(
        stdout_of(anneal.run(&["migrate"]).await),
        "the schema is up to date\n"
    );
}

#[tokio::test]
async fn server_and_worker_refuse_unusable_databases_and_open_addresses() {
    let folder = Folder::new();
    let empty = AnnealBinary::new(BINARY, &folder, &empty_database().await);
    for process in ["server", "worker"] {
        let refused = empty.run(&[process]).await;
        assert_eq!(refused.code, Some(1));
        assert!(refused.err.contains("run `anneal migrate`"), "{refused:?}");
    }
    let without_url = AnnealBinary::new(BINARY, &folder, "");
    let refused = without_url.run(&["server"]).await;
    assert!(
        refused.code == Some(1) && refused.err.contains("ANNEAL_DATABASE_URL"),
        "{refused:?}"
    );
    let unreachable = AnnealBinary::new(
        BINARY,
        &folder,
        "postgres://postgres:hunter2@127.0.0.1:1/anneal",
    );
    for command in ["server", "migrate"] {
        let refused = unreachable.run(&[command]).await;
        assert!(
            refused.code == Some(1) && refused.err.contains("cannot reach"),
            "{refused:?}"
        );
        assert!(
            !refused.err.contains("hunter2") && !refused.out.contains("hunter2"),
            "{refused:?}"
        );
    }
    let app = TestApp::start().await;
    let anneal = AnnealBinary::new(BINARY, &folder, &app.url);
    let on_open_address = [
        "server",
        "--set",
        "server.grpc_address=0.0.0.0:0",
        "--set",
        "server.http_address=127.0.0.1:0",
    ];
    let refused = anneal.run(&on_open_address).await;
    assert!(
        refused.code == Some(1) && refused.err.contains("server.insecure"),
        "{refused:?}"
    );
    let insecure = [&on_open_address[..], &["--set", "server.insecure=true"]].concat();
    let server = anneal.start(&insecure);
    server.wait_for_line("serving gRPC on 0.0.0.0:").await;
    server.terminate().await;
    assert_eq!(server.wait_for_exit().await, Some(0));
}

#[tokio::test]
async fn service_links_of_kubernetes_are_ignored_and_logged_once() {
    let folder = Folder::new();
    let unreachable = "postgres://postgres@127.0.0.1:1/anneal";
    let anneal = AnnealBinary::new(BINARY, &folder, unreachable)
        .with_variable("ANNEAL_PORT", "tcp://10.96.0.7:50051")
        .with_variable("ANNEAL_SERVER_SERVICE_HOST", "10.96.0.8");
    let config = anneal.run(&["config"]).await;
    assert_eq!(config.code, Some(0), "{config:?}");
    let server = anneal.run(&["server"]).await;
    assert!(server.err.contains("cannot reach"), "{server:?}");
    let log = format!("{}{}", server.out, server.err);
    assert_eq!(log.matches("ANNEAL_PORT").count(), 1, "{server:?}");
    assert!(
        log.contains("ignored 2 environment variables"),
        "{server:?}"
    );

    let mistyped =
        AnnealBinary::new(BINARY, &folder, unreachable).with_variable("ANNEAL_SERVER_PORT", "8080");
    let refused = mistyped.run(&["config"]).await;
    assert!(
        refused.code == Some(1) && refused.err.contains("port"),
        "{refused:?}"
    );
}

#[tokio::test]
async fn config_shows_settings_without_secrets_and_names_invalid_ones() {
    let folder = Folder::new();
    let anneal = AnnealBinary::new(BINARY, &folder, "postgres://anneal:hunter2@db:5432/anneal");
    let shown = stdout_of(
        anneal
            .run(&["config", "--set", "session.max_message_count=40"])
            .await,
    );
    assert!(
        shown.contains("max_message_count = 40") && shown.contains("postgres://anneal:***@db"),
        "{shown}"
    );
    assert!(!shown.contains("hunter2"));
    let file = folder.file(
        "other.toml",
        "[session]\nmax_message_count = 7\n[worker]\npoll_ms = 5\n",
    );
    let file = file.to_str().expect("a path");
    let shown = stdout_of(
        anneal
            .run(&["config", "--config", file, "--set", "worker.poll_ms=6"])
            .await,
    );
    assert!(
        shown.contains("max_message_count = 7") && shown.contains("poll_ms = 6"),
        "{shown}"
    );
    let wrong = [
        ("session.max_message_cuont=40", "max_message_cuont"),
        ("sessions.max_message_count=40", "sessions"),
        ("session.max_message_count=many", "max_message_count"),
        ("session.token_threshold=0", "token_threshold"),
        ("session.keep_recent_turns=0", "keep_recent_turns"),
        ("server.grpc_address=here", "grpc_address"),
        ("log.format=xml", "format"),
        ("nonsense", "nonsense"),
    ];
    for (setting, named) in wrong {
        let refused = anneal.run(&["config", "--set", setting]).await;
        assert!(
            refused.code == Some(1) && refused.err.contains(named),
            "{setting}: {refused:?}"
        );
        assert!(!refused.err.contains("hunter2"), "{refused:?}");
    }
    let missing = anneal.run(&["config", "--config", "nowhere.toml"]).await;
    assert!(
        missing.code == Some(1) && missing.err.contains("nowhere.toml"),
        "{missing:?}"
    );
    assert_eq!(
        anneal.run(&["cool"]).await.code,
        Some(2),
        "there is no such command"
    );
}

#[tokio::test]
async fn config_check_refuses_what_a_server_refuses_at_its_start() {
    let folder = Folder::new();
    let anneal = AnnealBinary::new(
        BINARY,
        &folder,
        "postgres://anneal:hunter2@127.0.0.1:1/anneal",
    );
    let provider = "[providers.p]\napi = \"openai\"\nurl = \"http://127.0.0.1:1/v1\"\n";
    // Settings, and words of the problem; None: a server tries to connect to the database.
    let cases = [
        (String::new(), None),
        (provider.to_owned(), None),
        (
            format!("{provider}key_env = \"NO_SUCH_KEY\"\n"),
            Some("NO_SUCH_KEY"),
        ),
        ("[chat]\nmodel = \"m\"\n".to_owned(), Some("chat.model")),
        (
            "[summarizer]\nmodel = \"m\"\n".to_owned(),
            Some("summarizer.model"),
        ),
        (
            "[server]\ngrpc_address = \"0.0.0.0:0\"\n".to_owned(),
            Some("server.insecure"),
        ),
        (
            "[auth]\njwks_file = \"keys.json\"\n".to_owned(),
            Some("auth.audience"),
        ),
        (
            "[log]\nfilter = \"info,anneal=loud\"\n".to_owned(),
            Some("log.filter"),
        ),
        (
            "[database]\nurl = \"mysql://anneal@127.0.0.1:1/anneal\"\n".to_owned(),
            Some("not a postgres:// URL"),
        ),
        (
            "[worker]\npoll_ms = \"often\"\n".to_owned(),
            Some("worker.poll_ms"),
        ),
    ];
    for (settings, problem) in cases {
        folder.file("anneal.toml", &settings);
        let anneal = if settings.contains("mysql") {
            anneal.clone().on_database("")
        } else {
            anneal.clone()
        };
        let checked = anneal.run(&["config", "--check"]).await;
        match problem {
            None => {
                assert_eq!(
                    (checked.code, checked.out.as_str(), checked.err.as_str()),
                    (Some(0), "the configuration is valid\n", ""),
                    "{settings}"
                );
                for process in ["server", "worker"] {
                    let started = anneal.run(&[process]).await;
                    let expected = "cannot reach the database postgres://anneal:***@127.0.0.1:1";
                    assert!(started.err.contains(expected), "{settings}: {started:?}");
                }
            }
            Some(problem) => {
                assert_eq!((checked.code, checked.out.as_str()), (Some(1), ""));
                assert!(checked.err.contains(problem), "{settings}: {checked:?}");
            }
        }
    }
}

#[tokio::test]
async fn config_check_says_what_a_server_says_at_its_start() {
    let folder = Folder::new();
    let unreachable = "postgres://anneal@127.0.0.1:1/anneal";
    let anneal = AnnealBinary::new(BINARY, &folder, unreachable);
    let settings = "[providers.p]\napi = \"openai\"\nkey_env = \"NO_SUCH_KEY\"\n";
    folder.file("anneal.toml", settings);
    let checked = anneal.run(&["config", "--check"]).await;
    for process in ["server", "worker"] {
        let started = anneal.run(&[process]).await;
        assert_eq!(
            (started.code, started.err.as_str()),
            (checked.code, checked.err.as_str())
        );
    }
}

/// A conversation of this many turns in OpenAI's format, as JSON lines.
fn sample_chat(turns: usize) -> String {
    let mut lines = vec![serde_json::json!({"role": "system", "content": "Be brief."})];
    for n in 0..turns {
        lines.push(serde_json::json!({"role": "user", "content": format!("What is the capital of country {n}, and how many live there?")}));
        lines.push(serde_json::json!({"role": "assistant", "content": format!("The capital of country {n} is City-{n}; {n}00,000 people live there.")}));
    }
    lines
        .iter()
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join("\n")
}

#[tokio::test]
async fn a_file_imported_twice_is_stored_once_and_can_be_inspected() {
    let (app, folder) = (TestApp::start().await, Folder::new());
    let anneal = AnnealBinary::new(BINARY, &folder, "");
    let address = format!("http://{}", app.addresses.grpc);
    folder.file("talk.jsonl", &sample_chat(30));
    let import = [
        "import",
        "--address",
        &address,
        "--max-message-count",
        "10",
        "--keep-recent",
        "2 turns",
        "talk.jsonl",
    ];
    let first = stdout_of(anneal.run(&import).await);
    assert!(
        first.contains("1 conversation, 60 messages stored, 0 there already"),
        "{first}"
    );
    let again = stdout_of(anneal.run(&import).await);
    assert!(
        again.contains("1 conversation, 0 messages stored, 60 there already"),
        "{again}"
    );
    let id = first.split_whitespace().next().expect("an id").to_owned();
    let jobs = stdout_of(anneal.run(&["jobs", "--address", &address]).await);
    assert!(
        jobs.contains("1 waiting (1 ready") && jobs.contains(&format!("{id} waiting, 0 attempts")),
        "{jobs}"
    );
    app.run_jobs_until_idle().await;
    let context = stdout_of(anneal.run(&["context", "--address", &address, &id]).await);
    assert!(context.contains("60 messages"), "{context}");
    assert!(
        context.contains("the context starts after the checkpoint at 56"),
        "the last two turns, of two messages each, are kept: {context}"
    );
    assert!(
        context.contains("system prompt") && context.contains("tail, hot"),
        "{context}"
    );
    let lines = stdout_of(
        anneal
            .run(&[
                "context",
                "--address",
                &address,
                "--json",
                "--input",
                "And now?",
                &id,
            ])
            .await,
    );
    for line in lines.lines() {
        let _: serde_json::Value = serde_json::from_str(line).expect("a line of JSON");
    }
    assert!(
        lines
            .trim_end()
            .lines()
            .last()
            .expect("lines")
            .contains("And now?")
    );
    let verified = stdout_of(
        anneal
            .run(&["verify", "--address", &address, "--all"])
            .await,
    );
    assert!(
        verified.contains("1 conversation, 60 messages, 1 checkpoint: every promise is kept"),
        "{verified}"
    );
    sqlx::query("update ai_message set turn = 7 where message_id = 3")
        .execute(&mut app.db().await)
        .await
        .expect("updates");
    let broken = anneal.run(&["verify", "--address", &address, &id]).await;
    assert!(
        broken.code == Some(1) && broken.out.contains("promise 3: stored in turn 7"),
        "{broken:?}"
    );
    let deleted = uuid::Uuid::now_v7();
    app.insert_any_row("ai_request", deleted).await;
    let deleted = deleted.to_string();
    let left = anneal
        .run(&["verify", "--address", &address, &deleted])
        .await;
    assert!(
        left.code == Some(1)
            && left.out.contains("promise 15: ")
            && left.out.contains("ai_request"),
        "{left:?}"
    );
}

#[tokio::test]
async fn commands_name_the_problem_in_their_errors() {
    let (app, folder) = (TestApp::start().await, Folder::new());
    let anneal = AnnealBinary::new(BINARY, &folder, "");
    let address = format!("http://{}", app.addresses.grpc);
    folder.file(
        "broken.jsonl",
        "{\"role\":\"user\",\"content\":\"a\"}\n{oops\n",
    );
    folder.file("empty.json", "");
    let unknown = "0190aaaa-0000-7000-8000-000000000000";
    let cases: [(&[&str], &str); 8] = [
        (
            &["import", "--address", &address, "--strict", "broken.jsonl"],
            "line 2: it is not JSON",
        ),
        (
            &["import", "--address", &address, "empty.json"],
            "empty.json",
        ),
        (
            &["import", "--address", &address, "missing.json"],
            "missing.json",
        ),
        (&["context", "--address", &address, unknown], "not found"),
        (&["verify", "--address", &address, unknown], "not found"),
        (
            &[
                "jobs",
                "--address",
                &address,
                "requeue",
                "checkpoint",
                unknown,
            ],
            "not found",
        ),
        (
            &["context", "--address", "http://127.0.0.1:1", unknown],
            "anneal dev",
        ),
        (
            &["context", "--address", "127.0.0.1:1", unknown],
            "127.0.0.1:1 is not an address such as http://127.0.0.1:50051\n",
        ),
    ];
    for (arguments, message) in cases {
        let refused = anneal.run(arguments).await;
        assert_eq!(refused.code, Some(1), "{arguments:?} {refused:?}");
        assert!(
            refused.err.contains(message) && refused.err.starts_with("anneal: "),
            "{arguments:?} {refused:?}"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_import_that_was_killed_continues_where_it_stopped() {
    let (app, folder) = (TestApp::start().await, Folder::new());
    let anneal = AnnealBinary::new(BINARY, &folder, "");
    let address = format!("http://{}", app.addresses.grpc);
    folder.file("long.jsonl", &sample_chat(1_500));
    let import = ["import", "--address", &address, "long.jsonl"];
    let killed = anneal.start(&import);
    let count_messages = async || {
        let listed = app
            .conversations()
            .list_conversations(pb::ListConversationsRequest::default())
            .await;
        listed
            .expect("lists")
            .into_inner()
            .conversations
            .first()
            .map_or(0, |row| row.message_count)
    };
    eventually("some messages are stored", async || {
        count_messages().await > 0
    })
    .await;
    killed.kill().await;
    let before = count_messages().await;
    assert!(before < 3_000, "the import ended before it was killed");
    let resumed = stdout_of(anneal.run(&import).await);
    assert!(
        resumed.contains("1 conversation,") && !resumed.contains(" 0 there already"),
        "{resumed}"
    );
    assert_eq!(
        count_messages().await,
        3_000,
        "each message is stored once; {before} were stored before the kill"
    );
    let again = stdout_of(anneal.run(&import).await);
    assert!(
        again.contains("0 messages stored, 3000 there already"),
        "{again}"
    );
}

#[tokio::test]
async fn a_command_whose_standard_output_is_closed_ends_without_an_error_message() {
    let (app, folder) = (TestApp::start().await, Folder::new());
    let conversation = app.conversation().await;
    conversation.append("said").await;
    let address = format!("http://{}", app.addresses.grpc);
    let export = [
        "export",
        "--format",
        "openai",
        "--address",
        &address,
        &conversation.id,
    ];
    let anneal = AnnealBinary::new(BINARY, &folder, "");
    for command in [
        &["config"][..],
        &["context", "--address", &address, &conversation.id],
        &export,
    ] {
        // 141 is 128 plus the number of SIGPIPE.
        let ran = anneal.run_with_closed_output(command).await;
        assert_eq!((ran.code, ran.err.as_str()), (Some(141), ""), "{command:?}");
    }
}

#[tokio::test]
async fn the_command_jobs_shows_a_tenant_only_its_own_jobs() {
    let (app, folder) = (
        TestApp::with_keys_and_limits(LimitSettings::default()).await,
        Folder::new(),
    );
    let run_as = async |tenant: &str, verbs: &[Verb], arguments: &[&str]| {
        let key = app.key(tenant, verbs).await;
        AnnealBinary::new(BINARY, &folder, "")
            .with_variable("ANNEAL_TOKEN", key.text.as_str())
            .run(arguments)
            .await
    };
    let verbs = [Verb::Read, Verb::Append, Verb::Admin];
    let address = format!("http://{}", app.addresses.grpc);
    folder.file("talk.jsonl", &sample_chat(1));
    let import = ["import", "--address", &address, "talk.jsonl"];
    stdout_of(run_as("ann", &verbs, &import).await);
    let jobs = ["jobs", "--address", &address];
    let listed = stdout_of(run_as("ann", &verbs, &jobs).await);
    assert!(
        listed.lines().count() == 1 && listed.contains("waiting, 0 attempts"),
        "{listed}"
    );
    assert_eq!(stdout_of(run_as("bob", &verbs, &jobs).await), "no jobs\n");
    let refused = run_as("ann", &[Verb::Read], &jobs).await;
    assert!(
        refused.code == Some(1) && refused.err.contains("VERB_MISSING"),
        "{refused:?}"
    );
}
