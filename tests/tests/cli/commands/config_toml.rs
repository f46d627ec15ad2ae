//! Settings in the variable `ANNEAL_CONFIG_TOML`, whose value is the text of a settings file.

use anneal_testkit::{AnnealBinary, Folder};

use crate::commands::{BINARY, command_line::stdout_of};

/// The URL of a database that cannot be reached. A process that tries to connect has accepted its
/// settings.
const UNREACHABLE: &str = "postgres://postgres@127.0.0.1:1/anneal";

#[tokio::test]
async fn the_variable_wins_over_the_file_and_loses_to_single_variables_and_arguments() {
    let folder = Folder::new();
    folder.file(
        "anneal.toml",
        "[session]\nmax_message_count = 11\nhot_zone_radius = 12\nhot_zone_calls = 13\n\
         cache_ttl_seconds = 14\n",
    );
    let text = "[session]\nhot_zone_radius = 22\nhot_zone_calls = 23\ncache_ttl_seconds = 24\n";
    let anneal = AnnealBinary::new(BINARY, &folder, UNREACHABLE)
        .with_variable("ANNEAL_CONFIG_TOML", text)
        .with_variable("ANNEAL_SESSION_HOT_ZONE_CALLS", "33")
        .with_variable("ANNEAL_SESSION_CACHE_TTL_SECONDS", "34");
    let set = ["config", "--set", "session.cache_ttl_seconds=44"];
    let found = stdout_of(anneal.run(&set).await);
    let named = stdout_of(
        anneal
            .run(&[&set[..], &["--config", "anneal.toml"]].concat())
            .await,
    );
    for shown in [found, named] {
        for line in [
            "max_message_count = 11",
            "hot_zone_radius = 22",
            "hot_zone_calls = 33",
            "cache_ttl_seconds = 44",
        ] {
            assert!(shown.contains(line), "{line}: {shown}");
        }
    }
    let empty =
        AnnealBinary::new(BINARY, &folder, UNREACHABLE).with_variable("ANNEAL_CONFIG_TOML", "");
    let shown = stdout_of(empty.run(&["config"]).await);
    assert!(shown.contains("hot_zone_radius = 12"), "{shown}");
}

#[tokio::test]
async fn the_variable_can_set_models_providers_and_agents() {
    let folder = Folder::new();
    let text = "[chat]\nmodel = \"small\"\n\
        [providers.local]\napi = \"openai\"\nurl = \"http://127.0.0.1:8000/v1\"\n\
        [models.small]\nprovider = \"local\"\nwindow_tokens = 32768\n\
        [agents.cook]\nsystem_prompt = \"You are a cook.\"\n";
    let anneal =
        AnnealBinary::new(BINARY, &folder, UNREACHABLE).with_variable("ANNEAL_CONFIG_TOML", text);
    let shown = stdout_of(anneal.run(&["config"]).await);
    for line in [
        "[providers.local]",
        "[models.small]",
        "[agents.cook]",
        "window_tokens = 32768",
    ] {
        assert!(shown.contains(line), "{line}: {shown}");
    }
    for process in ["server", "worker"] {
        let started = anneal.run(&[process]).await;
        assert!(started.err.contains("cannot reach"), "{started:?}");
    }
}

#[tokio::test]
async fn errors_name_the_variable_and_the_key() {
    let folder = Folder::new();
    folder.file(
        "anneal.toml",
        "[worker]\npoll_ms = 5\n[log]\nfilter = \"info\"\n",
    );
    for (text, named) in [
        ("[worker\npoll_ms = 6", "line 1"),
        ("[worker]\npol_ms = 6", "pol_ms"),
        ("[wroker]\npoll_ms = 6", "wroker"),
        ("[worker]\npoll_ms = \"often\"", "poll_ms"),
        ("[providers.local]\napi = \"soap\"", "providers.local.api"),
    ] {
        let refused = AnnealBinary::new(BINARY, &folder, UNREACHABLE)
            .with_variable("ANNEAL_CONFIG_TOML", text)
            .with_variable("ANNEAL_WORKER_THREADS", "2")
            .run(&["config"])
            .await;
        assert!(
            refused.code == Some(1)
                && refused.err.contains("the variable ANNEAL_CONFIG_TOML")
                && refused.err.contains(named),
            "{text}: {refused:?}"
        );
    }
}

#[tokio::test]
async fn an_error_of_syntax_or_type_does_not_print_secrets() {
    let folder = Folder::new();
    let broken = "[database]\nurl = \"postgres://anneal:canary@db.example/anneal\n";
    folder.file("broken.toml", broken);
    let anneal = AnnealBinary::new(BINARY, &folder, "");
    let in_variable = anneal.clone().with_variable("ANNEAL_CONFIG_TOML", broken);
    let headers = anneal
        .clone()
        .with_variable("ANNEAL_TRACING_HEADERS", "authorization=Bearer canary");
    let cases: [(&AnnealBinary, &[&str], &str); 3] = [
        (&in_variable, &["config"], "line 2, column "),
        (
            &anneal,
            &["config", "--config", "broken.toml"],
            "line 2, column ",
        ),
        (
            &headers,
            &["config"],
            "tracing.headers must be a section (ANNEAL_TRACING_HEADERS)",
        ),
    ];
    for (anneal, arguments, named) in cases {
        let refused = anneal.run(arguments).await;
        assert!(
            refused.code == Some(1)
                && refused.err.contains(named)
                && !format!("{refused:?}").contains("canary"),
            "{refused:?}"
        );
    }
}

#[tokio::test]
async fn a_discovered_file_does_not_decide_where_a_key_named_by_the_variable_is_sent() {
    let folder = Folder::new();
    folder.file(
        "anneal.toml",
        "[providers.p]\napi = \"openai\"\nurl = \"https://models.elsewhere.example/v1\"\n",
    );
    let anneal = AnnealBinary::new(BINARY, &folder, UNREACHABLE)
        .with_variable("OPENAI_API_KEY", "sk-canary")
        .with_variable(
            "ANNEAL_CONFIG_TOML",
            "[providers.p]\nkey_env = \"OPENAI_API_KEY\"\n",
        );
    let refused = anneal.run(&["server"]).await;
    assert!(
        refused.code == Some(1) && refused.err.contains("--config anneal.toml"),
        "{refused:?}"
    );
}
