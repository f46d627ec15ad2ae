//! Invalid settings of models, workers and watches stop the start of server and worker with a
//! sentence that names the remedy. Keys are neither printed nor logged. The command `anneal models`
//! shows calls and failures.

use anneal_testkit::{AnnealBinary, Folder, TestApp, pb};

use crate::BINARY;

/// Invalid settings, and texts that the refusal must contain.
const INVALID_SETTINGS: [(&str, &[&str]); 18] = [
    (
        "[models.m]\nprovider = \"nobody\"\nwindow_tokens = 8192",
        &["nobody", "[providers."],
    ),
    (
        "[providers.p]\napi = \"openai\"",
        &["providers.p", "key_env or key_file"],
    ),
    (
        "[providers.p]\napi = \"openai\"\nkey_env = \"NOT_SET_ANYWHERE\"",
        &["NOT_SET_ANYWHERE"],
    ),
    (
        "[providers.p]\napi = \"openai\"\nkey_file = \"/nowhere/key\"",
        &["/nowhere/key"],
    ),
    (
        "[providers.p]\napi = \"openai\"\nurl = \"http://models.example.com/v1\"",
        &["allow_http"],
    ),
    (
        "[providers.p]\napi = \"openai\"\nurl = \"http://127.0.0.1:1/v1\"\n[models.m]\nprovider = \"p\"",
        &["window_tokens"],
    ),
    (
        "[providers.p]\napi = \"smoke signals\"",
        &["openai", "anthropic", "gemini"],
    ),
    (
        "[providers.p]\napi = \"openai\"\nurl = \"http://127.0.0.1:1/v1\"\nfirst_byte_timeout_ms = 0",
        &["first_byte_timeout_ms"],
    ),
    (
        "[summarizer]\nmodel = \"m\"",
        &["summarizer.model", "[models.\"m\"]"],
    ),
    ("[chat]\nmodel = \"m\"", &["chat.model", "[models.\"m\"]"]),
    ("[summarizer]\nfallback = \"pray\"", &["pray", "extractive"]),
    ("[breaker]\nfailures = 0", &["breaker.failures is 0"]),
    (
        "[worker]\nsummary_concurrency = 0",
        &["worker.summary_concurrency is 0"],
    ),
    ("[worker]\nsummary_concurrency = 1000", &["from 1 to 128"]),
    (
        "[server]\nconcurrent_watches = 0",
        &["server.concurrent_watches is 0"],
    ),
    (
        "[server]\nwatch_poll_ms = 0",
        &["server.watch_poll_ms is 0"],
    ),
    ("[server]\nwatch_poll_ms = 60001", &["from 1 to 60000"]),
    (
        "[server]\nwatch_stall_seconds = 0",
        &["server.watch_stall_seconds is 0"],
    ),
];

#[tokio::test]
async fn server_and_worker_refuse_invalid_settings() {
    let (folder, app) = (Folder::new(), TestApp::start().await);
    let anneal = AnnealBinary::new(BINARY, &folder, &app.url);
    for (settings, texts) in INVALID_SETTINGS {
        folder.file("anneal.toml", settings);
        for process in ["server", "worker"] {
            let refused = anneal.run(&[process]).await;
            assert_eq!(
                refused.code,
                Some(1),
                "{process} with {settings}: {refused:?}"
            );
            for text in texts {
                assert!(
                    refused.err.contains(text),
                    "{settings}: {} lacks {text}",
                    refused.err
                );
            }
        }
    }
    let with_summarizer = "[providers.p]\napi = \"openai\"\nurl = \"http://127.0.0.1:1/v1\"\n[summarizer]\nmodel = \"m\"\n";
    for (settings, text) in [
        (
            "[models.m]\nprovider = \"p\"\nwindow_tokens = 2048",
            "too small",
        ),
        (
            "[models.m]\nprovider = \"p\"\nwindow_tokens = 8192\n[budget]\ntokens_per_day = 5000",
            "budget.tokens_per_day",
        ),
    ] {
        folder.file("anneal.toml", &format!("{with_summarizer}{settings}"));
        let refused = anneal.run(&["worker"]).await;
        assert!(
            refused.code == Some(1) && refused.err.contains(text),
            "{refused:?}"
        );
    }
}

#[tokio::test]
async fn keys_appear_in_no_output() {
    let (folder, app) = (Folder::new(), TestApp::start().await);
    let key = folder.file("key", "sk-planted-canary\n");
    let settings = format!(
        "[providers.p]\napi = \"openai\"\nurl = \"http://127.0.0.1:1/v1\"\nkey_file = \"{}\"\n\
         [models.m]\nprovider = \"p\"\nwindow_tokens = 8192\n[summarizer]\nmodel = \"m\"\n\
         [worker]\nhttp_address = \"127.0.0.1:0\"\n[log]\nfilter = \"trace\"\n",
        key.display()
    );
    folder.file("anneal.toml", &settings);
    let anneal = AnnealBinary::new(BINARY, &folder, &app.url);
    let shown = anneal.run(&["config"]).await;
    assert!(
        shown.code == Some(0) && shown.out.contains("[providers.p]"),
        "{shown:?}"
    );
    assert!(!shown.out.contains("sk-planted-canary"), "{shown:?}");

    let policy = pb::Policy {
        max_message_count: Some(4),
        keep_recent_turns: Some(1),
        ..Default::default()
    };
    let conversation = app.conversation_with_policy(policy).await;
    for number in 0..4 {
        conversation
            .turn(
                &format!("planted content {number}, as long as a sentence is"),
                "I see it, and I shall keep it.",
            )
            .await;
    }
    let worker = anneal.start(&["worker"]);
    worker.wait_for_line("checkpoint job of").await;
    worker.terminate().await;
    let log_lines = worker.lines();
    assert!(
        log_lines
            .iter()
            .any(|line| line.contains("summaries are written by m"))
    );
    assert!(
        !log_lines
            .iter()
            .any(|line| line.contains("sk-planted-canary")),
        "a key was logged"
    );
    assert!(
        !log_lines
            .iter()
            .any(|line| line.contains("planted content")),
        "content was logged"
    );
}

#[tokio::test]
async fn secrets_in_a_url_are_refused_and_not_printed() {
    let folder = Folder::new();
    let anneal = AnnealBinary::new(BINARY, &folder, "postgres://nobody@127.0.0.1:1/none");
    for url in [
        "https://user:sk-canary@models.example.com/v1",
        "https://models.example.com/v1?key=sk-canary",
    ] {
        folder.file(
            "anneal.toml",
            &format!("[providers.p]\napi = \"openai\"\nurl = \"{url}\"\n"),
        );
        for command in ["config", "worker"] {
            let ran = anneal.run(&[command]).await;
            assert!(
                !ran.out.contains("sk-canary") && !ran.err.contains("sk-canary"),
                "{command}: {ran:?}"
            );
            // The worker refuses the URL. `config` only shows the settings.
            assert_eq!(ran.code, Some(i32::from(command == "worker")), "{ran:?}");
        }
    }
}

#[tokio::test]
async fn the_models_command_shows_calls_and_failures() {
    let (folder, app) = (Folder::new(), TestApp::start().await);
    let anneal = AnnealBinary::new(BINARY, &folder, "");
    let address = format!("http://{}", app.addresses.grpc);
    let nothing = anneal.run(&["models", "--address", &address]).await;
    assert_eq!(
        (nothing.code, nothing.out.as_str()),
        (Some(0), "no model was called yet\n")
    );
    let insert_model_breaker = "insert into ai_model_breaker (model, failures, open_until_ts, last_error)
                values ('m', 20, now() + interval '1 minute', 'the provider is unavailable: status 503')";
    sqlx::query(insert_model_breaker)
        .execute(&mut app.db().await)
        .await
        .expect("inserts");
    let insert_tenant_breaker = "insert into ai_tenant_breaker (tenant_id, model, failures, open_until_ts, last_error)
               values ($1, 'm', 7, now() + interval '1 minute', 'the provider refuses the request (status 403)')";
    for (tenant, words) in [
        (
            anneal_core::caller::TenantId::DEFAULT.0,
            "breakers of 1 tenant open",
        ),
        (uuid::Uuid::now_v7(), "breakers of 2 tenants open"),
    ] {
        sqlx::query(insert_tenant_breaker)
            .bind(tenant)
            .execute(&mut app.db().await)
            .await
            .expect("inserts");
        let shown = anneal.run(&["models", "--address", &address]).await;
        assert!(shown.out.contains(words), "{shown:?}");
    }
    let shown = anneal.run(&["models", "--address", &address]).await;
    assert!(
        shown
            .out
            .contains("this tenant; 7 failures in a row, breaker open for"),
        "{shown:?}"
    );
    assert!(
        shown.out.contains("20 failures in a row, breaker open for"),
        "{shown:?}"
    );
    assert!(shown.out.contains("status 503"), "{shown:?}");
}
