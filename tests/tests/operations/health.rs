//! Health, reflection, readiness and metrics.

use anneal_server::{AuthSettings, ServerSettings};
use anneal_testkit::{OwnPostgres, TestApp, eventually};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};
use tonic_health::pb::{
    HealthCheckRequest, health_check_response::ServingStatus, health_client::HealthClient,
};
use tonic_reflection::pb::v1::{
    ServerReflectionRequest, server_reflection_client::ServerReflectionClient,
    server_reflection_request::MessageRequest, server_reflection_response::MessageResponse,
};

/// Status and body of a GET.
async fn get(app: &TestApp, path: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(app.addresses.http)
        .await
        .expect("the HTTP port is open");
    let ask = format!("GET {path} HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n");
    stream.write_all(ask.as_bytes()).await.expect("is sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.expect("answers");
    let code = answer
        .split(' ')
        .nth(1)
        .and_then(|code| code.parse().ok())
        .expect("a status");
    let body = answer
        .split_once("\r\n\r\n")
        .map(|(_, body)| body.to_owned())
        .unwrap_or_default();
    (code, body)
}

/// Health of a service. None: the check failed, for example because the server does not know the
/// service.
async fn status(app: &TestApp, service: &str) -> Option<ServingStatus> {
    let ask = HealthCheckRequest {
        service: service.into(),
    };
    let answer = HealthClient::new(app.channel()).check(ask).await;
    answer.ok().map(|answer| answer.into_inner().status())
}

async fn is_serving(app: &TestApp, service: &str) -> bool {
    status(app, service).await == Some(ServingStatus::Serving)
}

/// The services whose health is reported. The empty name is the whole server.
const SERVICES: [&str; 6] = [
    "",
    "anneal.v1.ConversationService",
    "anneal.v1.MessageService",
    "anneal.v1.ContextService",
    "anneal.v1.ChatService",
    "anneal.v1.OperatorService",
];

#[tokio::test]
async fn a_ready_server_reports_it_on_every_endpoint() {
    let app = TestApp::start().await;
    assert_eq!(get(&app, "/healthz").await, (200, "ok\n".into()));
    eventually("ready", async || {
        get(&app, "/readyz").await == (200, "ready\n".into())
    })
    .await;
    for service in SERVICES {
        eventually(service, async || is_serving(&app, service).await).await;
    }
    assert_eq!(status(&app, "anneal.v1.NoSuchService").await, None);
    assert_eq!(get(&app, "/metrics").await.0, 200);
    assert_eq!(get(&app, "/nothing").await.0, 404);
}

#[tokio::test]
async fn a_server_that_has_not_reached_its_database_is_not_serving() {
    let postgres = OwnPostgres::start().await;
    let app = TestApp::on_database(&postgres.url).await;
    postgres.crash().await;
    let second_server = app.second_server_at(&postgres.url).await;
    for service in SERVICES {
        assert_eq!(
            status(&second_server, service).await,
            Some(ServingStatus::NotServing),
            "{service}"
        );
    }
    postgres.restart().await;
    for service in SERVICES {
        eventually(service, async || is_serving(&second_server, service).await).await;
    }
}

#[tokio::test]
async fn reflection_is_off_by_default_and_lists_every_service_when_on() {
    let without_reflection = TestApp::start().await;
    let ask = ServerReflectionRequest {
        message_request: Some(MessageRequest::ListServices(String::new())),
        ..Default::default()
    };
    let refused = ServerReflectionClient::new(without_reflection.channel())
        .server_reflection_info(tokio_stream::once(ask))
        .await;
    assert_eq!(
        refused.map(drop).expect_err("it is off").code(),
        tonic::Code::Unimplemented
    );
    let settings = ServerSettings {
        reflection: true,
        ..ServerSettings::default()
    };
    let app = TestApp::with_auth(settings, AuthSettings::default()).await;
    let ask = ServerReflectionRequest {
        message_request: Some(MessageRequest::ListServices(String::new())),
        ..Default::default()
    };
    let mut client = ServerReflectionClient::new(app.channel());
    let mut answers = client
        .server_reflection_info(tokio_stream::once(ask))
        .await
        .expect("reflects")
        .into_inner();
    let answer = answers
        .message()
        .await
        .expect("answers")
        .expect("one answer")
        .message_response;
    let Some(MessageResponse::ListServicesResponse(list)) = answer else {
        panic!("a list")
    };
    let names: Vec<String> = list
        .service
        .into_iter()
        .map(|service| service.name)
        .collect();
    for service in SERVICES
        .into_iter()
        .skip(1)
        .chain(["grpc.health.v1.Health"])
    {
        assert!(
            names.iter().any(|name| name == service),
            "{service} in {names:?}"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_without_its_database_is_alive_but_not_ready_until_it_is_back() {
    let postgres = OwnPostgres::start().await;
    let app = TestApp::on_database(&postgres.url).await;
    let conversation = app.conversation().await;
    eventually("ready", async || get(&app, "/readyz").await.0 == 200).await;
    postgres.crash().await;
    eventually("not ready", async || get(&app, "/readyz").await.0 == 503).await;
    eventually("not serving", async || !is_serving(&app, "").await).await;
    assert_eq!(get(&app, "/healthz").await.0, 200);
    let refused = conversation
        .append("a")
        .request_id("r1")
        .send()
        .await
        .expect_err("the database is down");
    let details = anneal_testkit::status_details(&refused);
    assert_eq!(
        (details.code, details.reason.as_str(), details.retry),
        (tonic::Code::Unavailable, "DATABASE_UNAVAILABLE", true)
    );
    postgres.restart().await;
    eventually("ready again", async || get(&app, "/readyz").await.0 == 200).await;
    assert!(!conversation.append("a").request_id("r1").await.replayed);
    app.run_jobs_until_idle().await;
    conversation.verify().await;
}
