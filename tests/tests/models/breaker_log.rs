//! A breaker that opens or closes is logged once, its state is a metric, and a turn that it refuses
//! names the last failure. A call that hangs is logged with its turn.

use std::time::Duration;

use anneal_testkit::{
    AnnealBinary, Folder, MODEL, Process, Say, Script, ScriptedModel, TestApp, eventually,
};
use sqlx::AssertSqlSafe;
use tonic_types::StatusExt as _;

use crate::BINARY;

/// A model that answers these many calls with status 503, and all later ones.
async fn model_failing_first(failures: usize) -> ScriptedModel {
    ScriptedModel::start(move |request| {
        if request.nth < failures {
            Script::status(503, &[], "{}")
        } else {
            Script::says(request, [Say::text("back")])
        }
    })
    .await
}

/// Starts a server whose breakers open after three failures.
async fn start_server(anneal: &AnnealBinary, folder: &Folder, model: &ScriptedModel) -> Server {
    let settings = format!(
        "{}[breaker]\nmodel_failures = 3\ncooldown_seconds = 900\n",
        model.server_settings()
    );
    folder.file("anneal.toml", &settings);
    let (process, port) = anneal.server().await;
    Server { process, port }
}

struct Server {
    process: Process,
    port: u16,
}

impl Server {
    /// The warnings about breakers so far.
    fn breaker_lines(&self) -> Vec<String> {
        let lines = self.process.lines().into_iter();
        lines
            .filter(|line| line.contains("the breaker of scripted-model"))
            .filter(|line| line.contains("\"level\":\"WARN\""))
            .collect()
    }
}

async fn execute(app: &TestApp, statement: &str) {
    sqlx::query(AssertSqlSafe(statement.to_owned()))
        .execute(&mut app.db().await)
        .await
        .expect("is executed");
}

/// Starts a worker, and waits until it reports this metric of the model with this value.
async fn assert_metric(anneal: &AnnealBinary, name: &str, value: &str) {
    let worker = anneal.worker().await;
    let web = worker.http_client().await;
    let line = format!("{name}{{model=\"{MODEL}\"}} {value}");
    eventually(&line, async || {
        web.get("/metrics")
            .await
            .text
            .lines()
            .any(|one| one == line)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tenants_breaker_that_opens_and_closes_is_logged_once_each() {
    let model = model_failing_first(4).await;
    let (app, folder) = (TestApp::start().await, Folder::new());
    let anneal = AnnealBinary::new(BINARY, &folder, &app.url);
    let server = start_server(&anneal, &folder, &model).await;
    for _ in 0..3 {
        app.chat_at(server.port).await.expect_err("the model fails");
    }
    let failed = server
        .process
        .wait_for_line("failed, because of its model")
        .await;
    for words in [
        "\"model\":\"scripted-model\"",
        "\"failure\":\"limited\"",
        "\"status\":503",
    ] {
        assert!(failed.contains(words), "{words}: {failed}");
    }
    let opened = server
        .process
        .wait_for_line("opened for the tenant default")
        .await;
    for words in [
        "\"scope\":\"tenant\"",
        "\"failures\":3",
        "\"failure\":\"limited\"",
        "\"status\":503",
        "\"open_seconds\":900",
        "no call is made for 900 s",
    ] {
        assert!(opened.contains(words), "{words}: {opened}");
    }
    let refused = app
        .chat_at(server.port)
        .await
        .expect_err("the breaker is open");
    let last_failure = "the provider limits its calls (status 503)";
    assert!(
        refused
            .message()
            .contains("the breaker of this tenant is open")
            && refused.message().contains("it opened ")
            && refused.message().ends_with(last_failure),
        "{refused}"
    );
    let details = refused.get_error_details();
    let facts = &details.error_info().expect("facts").metadata;
    assert_eq!(facts["breaker"], "tenant");
    assert_eq!(facts["last_failure"], last_failure);
    assert_metric(&anneal, "anneal_model_tenant_breakers_open", "1").await;

    // The first trial call fails, which opens the breaker again. It has not closed meanwhile.
    let end_cooldown = "update ai_tenant_breaker set open_until_ts = now()";
    execute(&app, end_cooldown).await;
    app.chat_at(server.port)
        .await
        .expect_err("the trial call fails");
    execute(&app, end_cooldown).await;
    assert_eq!(app.chat_at(server.port).await.expect("is answered"), "back");
    server
        .process
        .wait_for_line("closed for the tenant default")
        .await;
    assert_eq!(app.chat_at(server.port).await.expect("is answered"), "back");
    assert_eq!(
        server.breaker_lines().len(),
        2,
        "{:?}",
        server.breaker_lines()
    );
    assert_metric(&anneal, "anneal_model_tenant_breakers_open", "0").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_models_breaker_that_opens_and_closes_is_logged_once_each() {
    let model = model_failing_first(1).await;
    let (app, folder) = (TestApp::start().await, Folder::new());
    // Two calls of another tenant have failed.
    execute(
        &app,
        "insert into ai_model_breaker (model, failures, evidence, last_error)
         values ('scripted-model', 2, 2, 'no connection')",
    )
    .await;
    let anneal = AnnealBinary::new(BINARY, &folder, &app.url);
    let server = start_server(&anneal, &folder, &model).await;
    assert_metric(&anneal, "anneal_model_breaker_state", "0").await;
    app.chat_at(server.port).await.expect_err("the model fails");
    let opened = server.process.wait_for_line("opened for all tenants").await;
    assert!(
        opened.contains("\"scope\":\"model\"") && opened.contains("\"failures\":3"),
        "{opened}"
    );
    let refused = app
        .chat_at(server.port)
        .await
        .expect_err("the breaker is open");
    assert!(
        refused
            .message()
            .contains("the breaker of this model is open")
            && refused.message().contains("status 503"),
        "{refused}"
    );
    assert_metric(&anneal, "anneal_model_breaker_state", "2").await;
    execute(&app, "update ai_model_breaker set open_until_ts = now()").await;
    assert_metric(&anneal, "anneal_model_breaker_state", "1").await;
    assert_eq!(app.chat_at(server.port).await.expect("is answered"), "back");
    server.process.wait_for_line("closed for all tenants").await;
    assert_eq!(
        server.breaker_lines().len(),
        2,
        "{:?}",
        server.breaker_lines()
    );
    assert_metric(&anneal, "anneal_model_breaker_state", "0").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_turn_whose_request_the_provider_refuses_is_logged_at_level_debug() {
    let model = ScriptedModel::start(|_| Script::status(400, &[], "{}")).await;
    let (app, folder) = (TestApp::start().await, Folder::new());
    let anneal = AnnealBinary::new(BINARY, &folder, &app.url)
        .with_variable("ANNEAL_LOG_FILTER", "info,anneal_server=debug");
    let server = start_server(&anneal, &folder, &model).await;
    app.chat_at(server.port)
        .await
        .expect_err("the model refuses");
    let line = server.process.wait_for_line("a turn of ").await;
    assert!(
        line.contains("\"level\":\"DEBUG\"") && line.contains("status 400"),
        "{line}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_last_failure_that_is_not_known_is_absent() {
    let model = model_failing_first(0).await;
    let (app, folder) = (TestApp::start().await, Folder::new());
    execute(
        &app,
        "insert into ai_model_breaker (model, failures, evidence, last_error, open_until_ts)
         values ('scripted-model', 3, 3, '', now() + interval '1 hour')",
    )
    .await;
    let anneal = AnnealBinary::new(BINARY, &folder, &app.url);
    let server = start_server(&anneal, &folder, &model).await;
    let refused = app
        .chat_at(server.port)
        .await
        .expect_err("the breaker is open");
    let details = refused.get_error_details();
    let facts = &details.error_info().expect("facts").metadata;
    assert_eq!(facts["breaker"], "model");
    assert_eq!(facts.get("last_failure"), None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_turn_whose_caller_gives_up_while_the_model_hangs_is_logged() {
    let model = ScriptedModel::start(|_| Script::hang()).await;
    let (app, folder) = (TestApp::start().await, Folder::new());
    let anneal = AnnealBinary::new(BINARY, &folder, &app.url);
    // A call hangs after a quarter of this time.
    let settings = model
        .server_settings()
        .replace("[models.", "first_byte_timeout_ms = 6000\n[models.");
    folder.file("anneal.toml", &settings);
    let (server, port) = anneal.server().await;
    tokio::time::timeout(Duration::from_secs(5), app.chat_at(port))
        .await
        .expect_err("the caller gives up");
    let line = server.wait_for_line("failed, because of its model").await;
    for words in [
        "\"level\":\"INFO\"",
        "\"model\":\"scripted-model\"",
        "\"failure\":\"unavailable\"",
        "no answer before its caller gave up",
    ] {
        assert!(line.contains(words), "{words}: {line}");
    }
}
