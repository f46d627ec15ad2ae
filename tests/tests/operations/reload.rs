//! A server and a worker replace settings while they run: at SIGHUP, and when their settings file
//! or a file with a provider's key changes.

use anneal_testkit::{
    AnnealBinary, Folder, Gate, MODEL, Process, Say, Script, ScriptedModel, TestApp, eventually,
    pb, prose,
};
use pb::context_service_client::ContextServiceClient;
use tonic::transport::Channel;

use crate::BINARY;

struct Server {
    process: Process,
    port: u16,
}

impl Server {
    /// Starts a server whose folder holds `anneal.toml` with this text.
    async fn start(app: &TestApp, folder: &Folder, settings: &str) -> Self {
        folder.file("anneal.toml", settings);
        let (process, port) = AnnealBinary::new(BINARY, folder, &app.url).server().await;
        Self { process, port }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn models_and_the_log_filter_change_at_a_signal_and_limits_when_the_file_changes() {
    let (first, second) = (
        ScriptedModel::saying("one").await,
        ScriptedModel::saying("two").await,
    );
    let (app, folder) = (TestApp::start().await, Folder::new());
    let server = Server::start(&app, &folder, &first.server_settings()).await;
    assert_eq!(app.chat_at(server.port).await.expect("is answered"), "one");
    let is_debug = |line: &String| line.contains("\"level\":\"DEBUG\"");
    assert!(!server.process.lines().iter().any(is_debug));

    let settings = format!(
        "{}[log]\nfilter = \"debug,sqlx=warn\"\n",
        second.server_settings()
    );
    folder.file("anneal.toml", &settings);
    server.process.signal("HUP").await;
    let line = server
        .process
        .wait_for_line("reloaded the configuration, replaced: ")
        .await;
    for name in ["log.filter", "providers.scripted.url"] {
        assert!(line.contains(name), "{name}: {line}");
    }
    assert!(!line.contains("models."), "{line}");
    assert_eq!(app.chat_at(server.port).await.expect("is answered"), "two");
    server.process.wait_for_line("\"level\":\"DEBUG\"").await;

    // No signal: the process looks at the file by itself.
    let settings = format!("{settings}[limits]\ntenant_content_bytes = 1\n");
    folder.file("anneal.toml", &settings);
    server
        .process
        .wait_for_line("replaced: limits.tenant_content_bytes")
        .await;
    let refused = app
        .chat_at(server.port)
        .await
        .expect_err("the quota is one byte");
    assert_eq!(refused.code(), tonic::Code::ResourceExhausted, "{refused}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_invalid_configuration_changes_nothing_and_fixed_settings_are_named() {
    let model = ScriptedModel::saying("one").await;
    let (app, folder) = (TestApp::start().await, Folder::new());
    let server = Server::start(&app, &folder, &model.server_settings()).await;
    folder.file(
        "anneal.toml",
        "[models.scripted-model]\nprovider = \"nobody\"\nwindow_tokens = 8192\n",
    );
    server.process.signal("HUP").await;
    let line = server
        .process
        .wait_for_line("the settings in force stay")
        .await;
    assert!(
        line.contains("\"level\":\"WARN\"") && line.contains("nobody"),
        "{line}"
    );
    assert_eq!(app.chat_at(server.port).await.expect("is answered"), "one");

    let settings = format!(
        "{}[server]\nprobe_address = \"127.0.0.1:1\"\n[database]\nread_connections = 5\n\
         [worker]\npoll_ms = 7\n[breaker]\nfailures = 6\n",
        model.server_settings()
    );
    folder.file("anneal.toml", &settings);
    server.process.signal("HUP").await;
    let line = server.process.wait_for_line("need a restart").await;
    assert!(
        line.contains("\"settings\":\"database.read_connections, server.probe_address\"")
            && line.contains("\"level\":\"WARN\""),
        "{line}"
    );
    server
        .process
        .wait_for_line("replaced: breaker.failures")
        .await;
    assert_eq!(app.chat_at(server.port).await.expect("is answered"), "one");
    server.process.terminate().await;
    assert_eq!(server.process.wait_for_exit().await, Some(0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_changed_key_file_is_read_again_and_a_turn_under_way_keeps_its_model() {
    let gate = Gate::default();
    let model = {
        let gate = gate.clone();
        ScriptedModel::start(move |request| {
            let script = Script::says(request, [Say::text("here")]);
            if request.nth == 0 {
                script.after(&gate)
            } else {
                script
            }
        })
        .await
    };
    let other = ScriptedModel::saying("elsewhere").await;
    let (app, folder) = (TestApp::start().await, Folder::new());
    let settings = |url: &str| {
        format!(
            "[providers.scripted]\napi = \"openai\"\nurl = \"{url}\"\nkey_file = \"key\"\n\
             [models.{MODEL}]\nprovider = \"scripted\"\nwindow_tokens = 8192\n[chat]\nmodel = \"{MODEL}\"\n"
        )
    };
    folder.file("key", "old");
    let server = Server::start(&app, &folder, &settings(&model.url())).await;
    let (under_way, ()) = tokio::join!(app.chat_at(server.port), async {
        model.wait_for_calls(1).await;
        folder.file("anneal.toml", &settings(&other.url()));
        server.process.signal("HUP").await;
        server
            .process
            .wait_for_line("replaced: providers.scripted.url")
            .await;
        gate.open_for_ever();
    });
    assert_eq!(under_way.expect("is answered"), "here");
    assert_eq!(
        app.chat_at(server.port).await.expect("is answered"),
        "elsewhere"
    );

    folder.file("key", "replaced");
    server
        .process
        .wait_for_line("the keys of providers were read again")
        .await;
    app.chat_at(server.port).await.expect("is answered");
    let keys: Vec<String> = other
        .requests()
        .iter()
        .map(|request| request.headers["authorization"].clone())
        .collect();
    assert_eq!(keys, ["Bearer old", "Bearer replaced"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reload_that_fails_because_of_a_file_that_is_not_watched_is_tried_again() {
    let model = ScriptedModel::saying("one").await;
    let (app, folder) = (TestApp::start().await, Folder::new());
    let server = Server::start(&app, &folder, "").await;
    // The file is watched only once the settings that name it are in force.
    folder.file(
        "anneal.toml",
        &format!(
            "[providers.scripted]\napi = \"openai\"\nurl = \"{}\"\nkey_file = \"key\"\n",
            model.url()
        ),
    );
    server.process.signal("HUP").await;
    server
        .process
        .wait_for_line("the settings in force stay")
        .await;
    folder.file("key", "secret");
    server
        .process
        .wait_for_line("reloaded the configuration, replaced: ")
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_replaces_its_summarizer_at_a_signal() {
    let model = ScriptedModel::saying("one").await;
    let (app, folder) = (TestApp::start().await, Folder::new());
    folder.file("anneal.toml", &model.server_settings());
    let worker = AnnealBinary::new(BINARY, &folder, &app.url).worker().await;
    let settings = format!(
        "{}[summarizer]\nmodel = \"{MODEL}\"\n[worker]\ncount_batch = 7\n[limits]\ncalls_burst = 7\n",
        model.server_settings()
    );
    folder.file("anneal.toml", &settings);
    worker.signal("HUP").await;
    let line = worker.wait_for_line("need a restart").await;
    assert!(
        line.contains("\"settings\":\"worker.count_batch\""),
        "{line}"
    );
    worker.wait_for_line("replaced: summarizer.model").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_threshold_of_sessions_changes_in_server_and_worker_without_a_restart() {
    const REPLACED: &str = "replaced: session.max_message_count";
    let (app, folder) = (TestApp::start().await, Folder::new());
    let settings = |messages: u32| {
        format!("[session]\nmax_message_count = {messages}\nkeep_recent = \"2 turns\"\n")
    };
    let server = Server::start(&app, &folder, &settings(100)).await;
    let worker = AnnealBinary::new(BINARY, &folder, &app.url).worker().await;
    let channel = Channel::from_shared(format!("http://127.0.0.1:{}", server.port))
        .expect("an address")
        .connect_lazy();
    let conversation = app.conversation().await;
    for n in 0..6 {
        conversation
            .turn(&prose(n * 20, 10), &prose(n * 20 + 10, 10))
            .await;
    }
    let usage = async || {
        let ask = pb::GetContextUsageRequest {
            conversation_id: conversation.id.clone(),
            ..Default::default()
        };
        let answer = ContextServiceClient::new(channel.clone())
            .get_context_usage(ask)
            .await;
        answer.expect("answers").into_inner()
    };
    eventually("the worker has counted the messages", async || {
        !usage().await.estimated
    })
    .await;
    assert_eq!(usage().await.max_message_count, 100);
    assert!(conversation.checkpoints().await.is_empty());

    folder.file("anneal.toml", &settings(8));
    server.process.signal("HUP").await;
    for process in [&server.process, &worker] {
        process.wait_for_line(REPLACED).await;
    }
    assert_eq!(usage().await.max_message_count, 8);
    // The worker evaluates the thresholds when it counts the next message.
    conversation.turn("go on", "done").await;
    eventually("a checkpoint is made", async || {
        !conversation.checkpoints().await.is_empty()
    })
    .await;
}
