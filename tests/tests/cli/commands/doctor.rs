//! `anneal doctor` says what is wrong with database, models and jobs, and what to do.

use anneal_testkit::{
    AnnealBinary, CommandOutput, Folder, MODEL, OwnPostgres, Script, ScriptedModel, TestApp,
    empty_database,
};
use serde_json::Value;
use sqlx::{AssertSqlSafe, Connection as _, PgConnection};

use crate::commands::BINARY;

/// The findings of a run with `--json`.
fn findings(ran: &CommandOutput) -> Vec<Value> {
    ran.out
        .lines()
        .map(|line| serde_json::from_str(line).expect("each line is JSON"))
        .collect()
}

/// The finding of this check. Panics if there is none.
fn finding<'a>(findings: &'a [Value], check: &str) -> &'a Value {
    findings
        .iter()
        .find(|finding| finding["check"] == check)
        .unwrap_or_else(|| panic!("no check {check}: {findings:#?}"))
}

/// Asserts the level of a check, and that its finding or remedy contains these words.
#[track_caller]
fn assert_found(findings: &[Value], check: &str, level: &str, words: &str) {
    let finding = finding(findings, check);
    assert_eq!(finding["level"], level, "{finding}");
    assert!(finding.to_string().contains(words), "{words}: {finding}");
}

async fn execute(url: &str, statement: &str) {
    let mut db = PgConnection::connect(url)
        .await
        .expect("the database answers");
    sqlx::raw_sql(AssertSqlSafe(statement.to_owned()))
        .execute(&mut db)
        .await
        .expect("is executed");
}

#[tokio::test]
async fn a_sound_deployment_has_no_problem_and_no_model_is_called() {
    let (postgres, folder) = (OwnPostgres::start().await, Folder::new());
    let model = ScriptedModel::start(|_| Script::status(200, &[], "{}")).await;
    folder.file("anneal.toml", &model.server_settings());
    let anneal = AnnealBinary::on_durable(BINARY, &folder, &postgres.url);
    let ran = anneal.run(&["doctor", "--json"]).await;
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let found = findings(&ran);
    for check in [
        "settings",
        "database.connection",
        "database.disk",
        "database.version",
        "database.durability",
        "database.connections",
        "database.session",
        "database.clock",
        "database.schema",
        "database.row_security",
        "database.tables",
        "queue.waiting",
        "queue.dead",
    ] {
        assert_eq!(finding(&found, check)["level"], "ok", "{found:#?}");
    }
    assert_found(&found, "provider", "ok", "the provider scripted answers");
    // The login of the test is a superuser.
    assert_found(&found, "database.login", "warning", "anneal_app");
    let paths: Vec<String> = model.requests().into_iter().map(|one| one.path).collect();
    assert_eq!(paths, ["/v1/models"]);

    // In words: one line for each check.
    let ran = anneal.run(&["doctor", "--servers", "50"]).await;
    assert_eq!(ran.code, Some(1), "{ran:?}");
    let line = ran
        .out
        .lines()
        .find(|line| line.starts_with("problem  servers: 50, workers: 1"))
        .unwrap_or_else(|| panic!("{ran:?}"));
    assert!(line.contains("raise max_connections"), "{line}");
}

#[tokio::test]
async fn a_database_that_cannot_write_and_a_provider_that_is_gone_are_problems() {
    let (postgres, folder) = (OwnPostgres::start().await, Folder::new());
    let model = ScriptedModel::saying("Hi.").await;
    folder.file("anneal.toml", &model.server_settings());
    let url_of_list = format!("{}/models", model.url());
    drop(model);
    // PostgreSQL then refuses what a full disk would refuse.
    let limit = "alter database anneal set temp_file_limit = '64kB'";
    execute(&postgres.url, limit).await;
    let anneal = AnnealBinary::on_durable(BINARY, &folder, &postgres.url);
    let ran = anneal.run(&["doctor", "--json"]).await;
    assert_eq!(ran.code, Some(1), "{ran:?}");
    let found = findings(&ran);
    assert_found(&found, "database.disk", "problem", "temporary file size");
    let no_answer = format!("no answer at {url_of_list}: no connection (connection refused)");
    assert_found(&found, "provider", "problem", &no_answer);
}

#[tokio::test]
async fn settings_that_only_a_server_refuses_are_no_problem_of_a_worker() {
    let (postgres, folder) = (OwnPostgres::start().await, Folder::new());
    folder.file("anneal.toml", "[server]\ngrpc_address = \"0.0.0.0:0\"\n");
    let anneal = AnnealBinary::on_durable(BINARY, &folder, &postgres.url);
    let cases: [(&[&str], i32, &str, &str); 3] = [
        (&[], 1, "problem", "a server or a worker refuses"),
        (&["--process", "server"], 1, "problem", "a server refuses"),
        (&["--process", "worker"], 0, "ok", "a worker accepts"),
    ];
    for (process, code, level, words) in cases {
        let ran = anneal
            .run(&[&["doctor", "--json"][..], process].concat())
            .await;
        assert_eq!(ran.code, Some(code), "{ran:?}");
        assert_found(&findings(&ran), "settings", level, words);
        let checked = anneal
            .run(&[&["config", "--check"][..], process].concat())
            .await;
        assert_eq!(checked.code, Some(code), "{checked:?}");
    }
}

#[tokio::test]
async fn weak_settings_a_refused_key_and_an_old_schema_are_problems_with_remedies() {
    let folder = Folder::new();
    let model = ScriptedModel::start(|_| Script::status(401, &[], "{}")).await;
    folder.file("anneal.toml", &model.server_settings());
    // Migrates another database, which creates the role of the sessions for the whole cluster.
    let _app = TestApp::start().await;
    // The test cluster turns off what makes commits durable.
    let url = empty_database().await;
    let anneal = AnnealBinary::new(BINARY, &folder, &url);
    let ran = anneal.run(&["doctor", "--json"]).await;
    assert_eq!(ran.code, Some(1), "{ran:?}");
    let found = findings(&ran);
    assert_found(&found, "database.durability", "problem", "fsync is off");
    assert_found(
        &found,
        "provider",
        "problem",
        "refuses the key (status 401)",
    );
    assert_found(&found, "database.schema", "problem", "run `anneal migrate`");

    let settings = format!(
        "[providers.scripted]\napi = \"openai\"\nurl = \"{}\"\nkey_env = \"DOCTOR_TEST_KEY\"\n\
         [models.{MODEL}]\nprovider = \"scripted\"\nwindow_tokens = 8192\n",
        model.url()
    );
    folder.file("anneal.toml", &settings);
    let found = findings(&anneal.run(&["doctor", "--json"]).await);
    assert_found(&found, "settings", "problem", "DOCTOR_TEST_KEY");
    assert_found(&found, "provider", "problem", "DOCTOR_TEST_KEY");
}

#[tokio::test]
async fn a_url_without_a_list_of_models_and_an_unlisted_model_are_warnings() {
    let (app, folder) = (TestApp::start().await, Folder::new());
    let anneal = AnnealBinary::new(BINARY, &folder, &app.url);
    for status in [301, 404, 405] {
        let model = ScriptedModel::start(move |_| Script::status(status, &[], "{}")).await;
        folder.file("anneal.toml", &model.server_settings());
        let found = findings(&anneal.run(&["doctor", "--json"]).await);
        let words = format!("{}/models (status {status})", model.url());
        assert_found(&found, "provider", "warning", &words);
    }

    let list = format!("{{\"data\": [{{\"id\": \"{MODEL}\"}}]}}");
    let model = ScriptedModel::start(move |_| Script::status(200, &[], &list)).await;
    let settings = format!(
        "{}[models.other]\nprovider = \"scripted\"\nserved_as = \"absent\"\nwindow_tokens = 8192\n",
        model.server_settings()
    );
    folder.file("anneal.toml", &settings);
    let found = findings(&anneal.run(&["doctor", "--json"]).await);
    assert_found(&found, "provider", "ok", "the provider scripted answers");
    assert_found(&found, "provider.model", "warning", "absent");
    let checks = found.iter().map(|finding| &finding["check"]);
    let missing = checks.filter(|check| *check == "provider.model").count();
    assert_eq!(missing, 1, "the listed model is not reported: {found:#?}");
}

#[tokio::test]
async fn late_and_dead_jobs_are_found() {
    let (app, folder) = (TestApp::start().await, Folder::new());
    app.conversation().await.append("hello").await;
    execute(
        &app.url,
        "update ai_job set due_ts = now() - interval '10 minutes';
         insert into ai_job_dead (tenant_id, kind, conversation_id, generation, attempts, dirty_ts)
         select tenant_id, kind, conversation_id, 1, 12, now() from ai_job",
    )
    .await;
    let anneal = AnnealBinary::new(BINARY, &folder, &app.url);
    let ran = anneal.run(&["doctor", "--json"]).await;
    assert_eq!(ran.code, Some(1), "{ran:?}");
    let found = findings(&ran);
    assert_found(&found, "queue.waiting", "problem", "start `anneal worker`");
    assert_found(&found, "queue.dead", "warning", "1 count_tokens");
}

#[tokio::test]
async fn a_database_that_does_not_answer_is_named_without_its_password() {
    let folder = Folder::new();
    let anneal = AnnealBinary::new(BINARY, &folder, "postgres://me:secret@127.0.0.1:1/anneal");
    let ran = anneal.run(&["doctor", "--json"]).await;
    assert_eq!(ran.code, Some(1), "{ran:?}");
    let found = findings(&ran);
    assert_found(
        &found,
        "database.connection",
        "problem",
        "postgres://me:***@127.0.0.1:1/anneal",
    );
    assert!(!ran.out.contains("secret"), "{ran:?}");
    assert_found(&found, "provider", "ok", "no provider is configured");
}
