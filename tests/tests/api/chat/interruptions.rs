//! Turns while the server stops or the database is down, turns that reach their deadline, and turns
//! whose caller does not read.

use std::time::Duration;

use anneal_llm::ModelAccess;
use anneal_testkit::{
    AnnealBinary, Folder, Gate, MODEL, OwnPostgres, Say, Script, ScriptedModel, TcpProxy, TestApp,
    TestConversation, TurnOutcome, eventually, pb, status_details, user,
};
use pb::{chat_response::Event, chat_service_client::ChatServiceClient};
use tonic::{Code, Streaming, transport::Channel};

use crate::chat::BINARY;

/// Settings of a server that calls this model and gives turns one second when it stops.
fn server_settings(model: &ScriptedModel) -> String {
    format!("[server]\nstop_seconds = 1\n{}", model.server_settings())
}

/// Starts a turn in a new conversation at the server on this port and reads its first event.
async fn begin_turn(app: &TestApp, port: u16) -> Streaming<pb::ChatResponse> {
    let ask = pb::ChatRequest {
        conversation_id: app.conversation().await.id,
        messages: vec![user("Anybody?")],
        ..Default::default()
    };
    let channel = Channel::from_shared(format!("http://127.0.0.1:{port}"))
        .expect("an address")
        .connect_lazy();
    let mut stream = ChatServiceClient::new(channel)
        .chat(ask)
        .await
        .expect("begins")
        .into_inner();
    let first = stream
        .message()
        .await
        .expect("goes on")
        .and_then(|response| response.event);
    assert!(matches!(first, Some(Event::Started(_))), "{first:?}");
    stream
}

/// Counts the leases of model calls. A running turn has one.
async fn count_leases(app: &TestApp) -> i64 {
    let query = "select count(*) from ai_model_lease";
    sqlx::query_scalar(query)
        .fetch_one(&mut app.db().await)
        .await
        .expect("counts")
}

/// Reads how many failures the model's breaker has counted.
async fn read_model_failures(app: &TestApp) -> i32 {
    let query = "select failures from ai_model_breaker";
    sqlx::query_scalar(query)
        .fetch_one(&mut app.db().await)
        .await
        .expect("reads")
}

#[tokio::test]
async fn a_stopping_server_cancels_unfinished_turns_and_frees_their_conversations() {
    let model = ScriptedModel::start(|_| Script::hang()).await;
    let (app, folder) = (TestApp::start().await, Folder::new());
    folder.file("anneal.toml", &server_settings(&model));
    let (server, port) = AnnealBinary::new(BINARY, &folder, &app.url).server().await;
    let turn = begin_turn(&app, port).await;
    model.wait_for_calls(1).await;
    assert_eq!(count_leases(&app).await, 1);
    server.terminate().await;
    let status = TurnOutcome::read(turn)
        .await
        .end
        .expect_err("the server has stopped");
    let details = status_details(&status);
    assert_eq!(
        (details.code, details.reason.as_str(), details.retry),
        (Code::Unavailable, "MODEL_UNAVAILABLE", true)
    );
    assert_eq!(status.message(), "the server is stopping");
    let exit_code = tokio::time::timeout(Duration::from_secs(15), server.wait_for_exit())
        .await
        .expect("within the time limit");
    assert_eq!(
        (
            exit_code,
            count_leases(&app).await,
            read_model_failures(&app).await
        ),
        (Some(0), 0, 0)
    );
}

#[tokio::test]
async fn a_stopping_server_does_not_wait_for_callers_that_do_not_read() {
    let delta =
        serde_json::json!({"choices": [{"index": 0, "delta": {"content": "x".repeat(64 * 1024)}}]});
    let model = ScriptedModel::start(move |_| Script::endless(&format!("data: {delta}\n\n"))).await;
    let (app, folder) = (TestApp::start().await, Folder::new());
    folder.file("anneal.toml", &server_settings(&model));
    let (server, port) = AnnealBinary::new(BINARY, &folder, &app.url).server().await;
    let _unread_stream = begin_turn(&app, port).await;
    model.wait_for_calls(1).await;
    server.terminate().await;
    let exit_code = tokio::time::timeout(Duration::from_secs(15), server.wait_for_exit())
        .await
        .expect("within the time limit");
    assert_eq!((exit_code, count_leases(&app).await), (Some(0), 0));
}

#[tokio::test]
async fn an_answer_is_stored_after_a_short_database_outage() {
    let gate = Gate::default();
    let model = ScriptedModel::start({
        let gate = gate.clone();
        move |request| Script::says(request, [Say::text("Still here.")]).after(&gate)
    })
    .await;
    let postgres = OwnPostgres::start().await;
    let app = TestApp::with_models_on(
        postgres.url.clone(),
        model.settings(&[MODEL]),
        MODEL,
        ModelAccess::default(),
    )
    .await;
    let conversation = app.conversation().await;
    let stream = conversation.chat("Anybody?").open().await.expect("begins");
    model.wait_for_calls(1).await;
    postgres.crash().await;
    gate.open_for_ever();
    model.wait_until_idle().await;
    postgres.restart().await;
    let outcome = TurnOutcome::read(stream).await;
    assert_eq!(
        (outcome.text().as_str(), &outcome.done().message_ids),
        ("Still here.", &vec![1, 2])
    );
    // The first call on a connection from before the outage may fail, so the list is read again.
    eventually("both messages are stored", async || {
        let ask = pb::ListMessagesRequest {
            conversation_id: conversation.id.clone(),
            page_size: 10,
            ..Default::default()
        };
        app.messages()
            .list_messages(ask)
            .await
            .is_ok_and(|page| page.into_inner().messages.len() == 2)
    })
    .await;
}

#[tokio::test]
async fn a_turn_whose_caller_does_not_read_ends_at_its_deadline() {
    let delta =
        serde_json::json!({"choices": [{"index": 0, "delta": {"content": "x".repeat(64 * 1024)}}]});
    let model = ScriptedModel::start(move |_| Script::endless(&format!("data: {delta}\n\n"))).await;
    let app = TestApp::with_scripted_model_without_timeouts(&model).await;
    let conversation = app.conversation().await;
    let _unread_stream = conversation
        .chat("go")
        .with_deadline(Duration::from_secs(8))
        .open()
        .await
        .expect("begins");
    model.wait_for_closed_calls(1).await;
    eventually("the turn's lease has ended", async || {
        count_leases(&app).await == 0
    })
    .await;
    assert_eq!(conversation.messages().await.len(), 1);
}

#[tokio::test]
async fn a_call_delayed_by_a_caller_that_does_not_read_does_not_count_as_a_model_failure() {
    // About 12 MiB, more than the buffers between the model and the caller hold.
    let piece = "x".repeat(64 * 1024);
    let model = ScriptedModel::start(move |request| {
        Script::says(request, Say::texts(&[piece.as_str(); 192])).hanging_after(192)
    })
    .await;
    let (mut providers, models) = model.settings(&[MODEL]);
    for provider in providers.values_mut() {
        (provider.first_byte_timeout_ms, provider.total_timeout_ms) = (60_000, 8_000);
    }
    let app = TestApp::with_models((providers, models), MODEL).await;
    let conversation = app.conversation().await;
    let turn = conversation.chat("go").open().await.expect("begins");
    let closed = tokio::time::timeout(Duration::from_secs(9), model.wait_for_closed_calls(1)).await;
    assert!(
        closed.is_err(),
        "the model call waits for its caller, longer than its time limit"
    );
    let status = TurnOutcome::read(turn)
        .await
        .end
        .expect_err("the call's time limit has passed");
    let details = status_details(&status);
    assert_eq!(
        (details.code, details.reason.as_str(), details.retry),
        (Code::Unavailable, "MODEL_UNAVAILABLE", true)
    );
    assert_eq!(
        status.message(),
        "the answer was cut off while its caller did not read"
    );
    assert_eq!(
        (count_leases(&app).await, read_model_failures(&app).await),
        (0, 0)
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_is_stored_although_all_database_connections_died_during_the_call() {
    let gate = Gate::default();
    let model = ScriptedModel::start({
        let gate = gate.clone();
        move |request| Script::says(request, [Say::text("Late.")]).after(&gate)
    })
    .await;
    let app = TestApp::start().await;
    let (proxy, url) = TcpProxy::to_database(&app.url).await;
    let proxied_app =
        TestApp::with_models_on(url, model.settings(&[MODEL]), MODEL, ModelAccess::default()).await;
    let conversation = app.conversation().await;
    // The same conversation, at a server whose database connections go through the proxy.
    let behind_proxy = TestConversation {
        app: &proxied_app,
        id: conversation.id.clone(),
    };
    let stream = behind_proxy
        .chat("Is anybody there?")
        .open()
        .await
        .expect("begins");
    model.wait_for_calls(1).await;
    proxy.stall();
    gate.open_for_ever();
    let outcome = tokio::time::timeout(Duration::from_mins(1), TurnOutcome::read(stream))
        .await
        .expect("the turn ends");
    assert_eq!(
        (outcome.text().as_str(), &outcome.done().message_ids[..]),
        ("Late.", &[1, 2][..])
    );
    assert_eq!(conversation.texts_by_role().await[1].1, "Late.");
}

/// An app whose model answers nothing, with this `first_byte_timeout_ms`.
async fn app_with_silent_model(model: &ScriptedModel, first_byte_timeout_ms: u32) -> TestApp {
    let (mut providers, models) = model.settings(&[MODEL]);
    for provider in providers.values_mut() {
        provider.first_byte_timeout_ms = first_byte_timeout_ms;
    }
    TestApp::with_models((providers, models), MODEL).await
}

#[tokio::test]
async fn a_turn_that_ends_at_its_deadline_without_a_byte_of_an_answer_counts_as_a_model_failure() {
    // Neither a head nor a body, and a head without a body.
    let silent: [fn() -> Script; 2] = [Script::hang, || {
        Script::events(Vec::<String>::new()).hanging_after(0)
    }];
    for script in silent {
        let model = ScriptedModel::start(move |_| script()).await;
        // A call hangs after a quarter of this time. The deadline is far above that.
        let app = app_with_silent_model(&model, 6_000).await;
        let conversation = app.conversation().await;
        let turn = conversation
            .chat("go")
            .with_deadline(Duration::from_secs(5));
        let status = turn.await.end.expect_err("the deadline ends");
        assert_eq!(status.code(), Code::DeadlineExceeded, "{status}");
        eventually("the call is settled", async || {
            count_leases(&app).await == 0
        })
        .await;
        assert_eq!(read_model_failures(&app).await, 1);
        let last_error: String = sqlx::query_scalar("select last_error from ai_tenant_breaker")
            .fetch_one(&mut app.db().await)
            .await
            .expect("reads");
        assert!(
            last_error.contains("no answer before its caller gave up"),
            "{last_error}"
        );
    }
}

#[tokio::test]
async fn a_caller_that_gives_up_early_does_not_count_as_a_model_failure() {
    let model = ScriptedModel::start(|_| Script::hang()).await;
    // A call hangs after a quarter of an hour.
    let app = app_with_silent_model(&model, 3_600_000).await;
    let conversation = app.conversation().await;
    let turn = conversation.chat("go").open().await.expect("begins");
    model.wait_for_calls(1).await;
    drop(turn);
    model.wait_for_closed_calls(1).await;
    eventually("the call is settled", async || {
        count_leases(&app).await == 0
    })
    .await;
    assert_eq!(read_model_failures(&app).await, 0);
}
