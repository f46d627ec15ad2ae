//! Traces: a caller's trace continues in the server, in the jobs that its call causes, and at the
//! model's provider. Without a collector nothing is exported; a collector that does not answer
//! delays nothing.

use std::time::Duration;

use anneal_testkit::{
    AnnealBinary, Folder, MODEL, Process, ScriptedModel, TestApp, TraceCollector, TurnOutcome,
    eventually, pb, user,
};
use pb::{chat_service_client::ChatServiceClient, message_service_client::MessageServiceClient};
use serde_json::json;
use tokio::net::TcpListener;
use tonic::{
    Request,
    transport::{Channel, Endpoint},
};

use crate::BINARY;

/// The trace and the span of the caller.
const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const CALLER_SPAN: &str = "b7ad6b7169203331";

/// OTLP's numbers of the kinds of spans.
const SERVER: i32 = 2;
const CLIENT: i32 = 3;
const CONSUMER: i32 = 5;

fn traceparent() -> String {
    format!("00-{TRACE}-{CALLER_SPAN}-01")
}

/// A request of a caller that is traced.
fn in_trace<T>(ask: T) -> Request<T> {
    let mut request = Request::new(ask);
    let traceparent = traceparent().parse().expect("is ASCII");
    request.metadata_mut().insert("traceparent", traceparent);
    request
}

/// The binary with this collector.
fn exporting_to(collector: &str, folder: &Folder, app: &TestApp) -> AnnealBinary {
    AnnealBinary::new(BINARY, folder, &app.url).with_variable("ANNEAL_TRACING_ENDPOINT", collector)
}

fn channel(port: u16) -> Channel {
    Endpoint::from_shared(format!("http://127.0.0.1:{port}"))
        .expect("an address")
        .connect_lazy()
}

/// Runs a turn of a traced caller in a new conversation.
async fn chat(app: &TestApp, port: u16) {
    let ask = pb::ChatRequest {
        conversation_id: app.conversation().await.id,
        messages: vec![user("Anybody?")],
        ..Default::default()
    };
    let stream = ChatServiceClient::new(channel(port))
        .chat(in_trace(ask))
        .await
        .expect("the turn begins")
        .into_inner();
    let outcome = TurnOutcome::read(stream).await;
    outcome.end.expect("the turn ends with an answer");
}

/// Appends a message of a traced caller to this conversation.
async fn append(port: u16, conversation_id: &str) {
    let ask = pb::AppendMessagesRequest {
        conversation_id: conversation_id.to_owned(),
        messages: vec![user("some words to count")],
        ..Default::default()
    };
    MessageServiceClient::new(channel(port))
        .append_messages(in_trace(ask))
        .await
        .expect("the append succeeds");
}

/// Stops a process. All its spans are exported then.
async fn stop(process: Process) {
    process.terminate().await;
    assert_eq!(process.wait_for_exit().await, Some(0));
}

/// The trace contexts of the jobs that wait.
async fn trace_contexts_of_jobs(app: &TestApp) -> Vec<Option<String>> {
    sqlx::query_scalar("select trace_context from ai_job")
        .fetch_all(&mut app.db().await)
        .await
        .expect("the jobs are read")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_turn_continues_its_callers_trace_and_the_provider_continues_the_turns() {
    let (model, collector) = (
        ScriptedModel::saying("Somebody.").await,
        TraceCollector::start().await,
    );
    let (app, folder) = (TestApp::start().await, Folder::new());
    folder.file("anneal.toml", &model.server_settings());
    let (server, port) = exporting_to(&collector.url(), &folder, &app).server().await;
    chat(&app, port).await;
    stop(server).await;
    let turn = collector.only_span("anneal.v1.ChatService/Chat");
    assert_eq!(turn.trace_id, TRACE);
    assert_eq!(turn.parent_span_id, CALLER_SPAN);
    assert_eq!(turn.kind, SERVER);
    assert_eq!(turn.attributes["rpc.system"], "grpc");
    assert_eq!(turn.attributes["rpc.method"], "Chat");
    assert_eq!(turn.attributes["rpc.grpc.status_code"], "0");
    let call = collector.only_span(&format!("chat {MODEL}"));
    assert_eq!(call.trace_id, TRACE);
    assert_eq!(call.parent_span_id, turn.span_id);
    assert_eq!(call.kind, CLIENT);
    assert_eq!(call.attributes["gen_ai.request.model"], MODEL);
    assert!(call.attributes.contains_key("gen_ai.usage.input_tokens"));
    assert!(call.attributes.contains_key("gen_ai.usage.output_tokens"));
    let requests = model.requests();
    assert_eq!(
        requests[0].headers["traceparent"],
        format!("00-{TRACE}-{}-01", call.span_id)
    );
    let spans = collector.spans();
    assert!(
        spans
            .iter()
            .any(|span| span.name == "postgresql" && span.parent_span_id == turn.span_id),
        "{spans:#?}"
    );
    for span in &spans {
        for (name, text) in &span.attributes {
            assert!(
                !text.contains("body?"),
                "{name} of {} has content",
                span.name
            );
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_continues_the_trace_of_the_append_that_caused_it_and_log_lines_name_the_trace() {
    let collector = TraceCollector::start().await;
    let (app, folder) = (TestApp::start().await, Folder::new());
    let anneal = exporting_to(&collector.url(), &folder, &app)
        .with_variable("ANNEAL_LOG_FILTER", "info,anneal_server=debug");
    let (server, port) = anneal.server().await;
    let conversation = app.conversation().await;
    append(port, &conversation.id).await;
    let line = server.wait_for_line("append_messages ended with OK").await;
    assert!(
        line.ends_with(&format!(",\"trace_id\":\"{TRACE}\"}}")),
        "{line}"
    );
    let worker = anneal.worker().await;
    eventually("the message is counted", async || {
        let total = conversation.conversation().await.token_total;
        total.is_some_and(|total| total.estimated_messages == 0)
    })
    .await;
    stop(server).await;
    stop(worker).await;
    let append = collector.only_span("anneal.v1.MessageService/AppendMessages");
    let job = collector.only_span("count_tokens");
    assert_eq!(job.trace_id, TRACE);
    assert_eq!(job.parent_span_id, append.span_id);
    assert_eq!(job.kind, CONSUMER);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_that_several_appends_enqueue_continues_the_trace_of_the_newest() {
    let collector = TraceCollector::start().await;
    let (app, folder) = (TestApp::start().await, Folder::new());
    let (server, port) = exporting_to(&collector.url(), &folder, &app).server().await;
    let conversation = app.conversation().await;
    append(port, &conversation.id).await;
    let first = trace_contexts_of_jobs(&app).await;
    append(port, &conversation.id).await;
    let newest = trace_contexts_of_jobs(&app).await;
    stop(server).await;
    let spans = collector.spans();
    let appends = spans
        .iter()
        .filter(|span| span.name == "anneal.v1.MessageService/AppendMessages");
    let contexts: Vec<_> = appends
        .map(|span| Some(format!("00-{TRACE}-{}-01", span.span_id)))
        .collect();
    assert_eq!([first, newest].concat(), contexts);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_turn_over_http_continues_its_callers_trace() {
    let (model, collector) = (
        ScriptedModel::saying("Somebody.").await,
        TraceCollector::start().await,
    );
    let (app, folder) = (TestApp::start().await, Folder::new());
    folder.file("anneal.toml", &model.server_settings());
    let (server, _) = exporting_to(&collector.url(), &folder, &app).server().await;
    let answered = server
        .http_client()
        .await
        .json(
            "POST",
            "/api/agents/main/chat",
            &json!({"message": "Anybody?"}),
        )
        .header("traceparent", traceparent())
        .send()
        .await
        .expect("the server answers");
    let events = answered.text().await.expect("the events arrive");
    assert!(events.contains("Somebody."), "{events}");
    stop(server).await;
    let turn = collector.only_span("anneal.v1.ChatService/Chat");
    assert_eq!(turn.trace_id, TRACE);
    assert_eq!(turn.attributes["http.route"], "/api/agents/{id}/chat");
    assert_eq!(
        collector.only_span(&format!("chat {MODEL}")).parent_span_id,
        turn.span_id
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_collector_no_trace_context_is_stored_logged_or_given_to_the_provider() {
    let model = ScriptedModel::saying("Somebody.").await;
    let (app, folder) = (TestApp::start().await, Folder::new());
    folder.file("anneal.toml", &model.server_settings());
    let anneal = AnnealBinary::new(BINARY, &folder, &app.url)
        .with_variable("ANNEAL_LOG_FILTER", "info,anneal_server=debug");
    let (server, port) = anneal.server().await;
    chat(&app, port).await;
    server.wait_for_line("chat ended with OK").await;
    assert_eq!(model.requests()[0].headers.get("traceparent"), None);
    let contexts = trace_contexts_of_jobs(&app).await;
    assert!(
        !contexts.is_empty() && contexts.iter().all(Option::is_none),
        "{contexts:?}"
    );
    let lines = server.lines();
    assert!(!lines.concat().contains("trace_id"), "{lines:#?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_collector_that_does_not_answer_delays_neither_calls_nor_the_end() {
    // Connections wait here for ever.
    let silent = TcpListener::bind(("127.0.0.1", 0))
        .await
        .expect("some port is free");
    let address = silent.local_addr().expect("it has an address");
    let (app, folder) = (TestApp::start().await, Folder::new());
    let anneal = exporting_to(&format!("http://{address}"), &folder, &app);
    let (server, port) = anneal.server().await;
    let conversation = app.conversation().await;
    for _ in 0..20 {
        append(port, &conversation.id).await;
    }
    server.terminate().await;
    server
        .wait_for_line("the last spans could not be exported within 3 s")
        .await;
    let ended = tokio::time::timeout(Duration::from_secs(30), server.wait_for_exit()).await;
    assert_eq!(ended.expect("the server ends by itself"), Some(0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_credential_of_the_collector_is_sent_with_exports_and_not_shown() {
    let collector = TraceCollector::start().await;
    let (app, folder) = (TestApp::start().await, Folder::new());
    let by_setting = exporting_to(&collector.url(), &folder, &app).with_variable(
        "ANNEAL_TRACING_HEADERS",
        "{authorization=\"Bearer canary\"}",
    );
    let by_standard_variables = AnnealBinary::new(BINARY, &folder, &app.url)
        .with_variable("OTEL_EXPORTER_OTLP_ENDPOINT", &collector.url())
        .with_variable(
            "OTEL_EXPORTER_OTLP_HEADERS",
            "authorization=Bearer%20canary",
        );
    let mut exports = 0;
    for anneal in [&by_setting, &by_standard_variables] {
        let (server, port) = anneal.server().await;
        append(port, &app.conversation().await.id).await;
        stop(server).await;
        let sent = collector.authorizations();
        assert!(sent.len() > exports, "{sent:?}");
        assert!(sent.iter().all(|sent| sent == "Bearer canary"), "{sent:?}");
        exports = sent.len();
    }
    let shown = by_setting.run(&["config"]).await;
    assert_eq!(shown.code, Some(0), "{shown:?}");
    assert!(shown.out.contains("authorization = "), "{shown:?}");
    assert!(!shown.out.contains("canary"), "{shown:?}");
}

#[tokio::test]
async fn settings_of_traces_that_cannot_work_are_refused_by_name() {
    let (app, folder) = (TestApp::start().await, Folder::new());
    let anneal = AnnealBinary::new(BINARY, &folder, &app.url);
    for (setting, named) in [
        ("tracing.endpoint=127.0.0.1:4317", "tracing.endpoint"),
        ("tracing.sample_ratio=2", "tracing.sample_ratio"),
    ] {
        let checked = anneal.run(&["config", "--check", "--set", setting]).await;
        assert_eq!(checked.code, Some(1), "{checked:?}");
        assert!(checked.err.contains(named), "{checked:?}");
    }
}
