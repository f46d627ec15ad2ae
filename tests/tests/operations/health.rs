//! Health, reflection, readiness and metrics.

use anneal_server::{AuthSettings, ServerSettings};
use anneal_tests::{House, OwnPostgres, eventually};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};
use tonic_health::pb::{HealthCheckRequest, health_check_response::ServingStatus, health_client::HealthClient};
use tonic_reflection::pb::v1::{
    ServerReflectionRequest, server_reflection_client::ServerReflectionClient,
    server_reflection_request::MessageRequest, server_reflection_response::MessageResponse,
};

/// The status line's code and the body of a GET.
async fn get(house: &House, path: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(house.addresses.http).await.expect("the HTTP port is open");
    let ask = format!("GET {path} HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n");
    stream.write_all(ask.as_bytes()).await.expect("asks");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.expect("answers");
    let code = answer.split(' ').nth(1).and_then(|code| code.parse().ok()).expect("a status");
    let body = answer.split_once("\r\n\r\n").map(|(_, body)| body.to_owned()).unwrap_or_default();
    (code, body)
}

/// What is said of a service; nothing of one that the server does not know.
async fn status(house: &House, service: &str) -> Option<ServingStatus> {
    let ask = HealthCheckRequest { service: service.into() };
    let answer = HealthClient::new(house.channel()).check(ask).await;
    answer.ok().map(|answer| answer.into_inner().status())
}

async fn serving(house: &House, service: &str) -> bool {
    status(house, service).await == Some(ServingStatus::Serving)
}

const SERVICES: [&str; 6] = [
    "",
    "anneal.v1.ConversationService",
    "anneal.v1.MessageService",
    "anneal.v1.ContextService",
    "anneal.v1.ChatService",
    "anneal.v1.OperatorService",
];

#[tokio::test]
async fn a_ready_server_says_so_everywhere() {
    let house = House::start().await;
    assert_eq!(get(&house, "/healthz").await, (200, "ok\n".into()));
    eventually("ready", async || get(&house, "/readyz").await == (200, "ready\n".into())).await;
    for service in SERVICES {
        eventually(service, async || serving(&house, service).await).await;
    }
    assert_eq!(status(&house, "anneal.v1.NoSuchService").await, None);
    assert_eq!(get(&house, "/metrics").await.0, 200);
    assert_eq!(get(&house, "/nothing").await.0, 404);
}

#[tokio::test]
async fn a_server_that_has_not_met_its_database_yet_does_not_say_that_it_serves() {
    let postgres = OwnPostgres::start().await;
    let house = House::at(&postgres.url).await;
    postgres.crash().await;
    let fresh = house.beside_at(&postgres.url).await;
    for service in SERVICES {
        assert_eq!(status(&fresh, service).await, Some(ServingStatus::NotServing), "{service}");
    }
    postgres.restart().await;
    for service in SERVICES {
        eventually(service, async || serving(&fresh, service).await).await;
    }
}

#[tokio::test]
async fn reflection_names_every_service_where_it_is_on_and_none_where_nobody_turned_it_on() {
    let silent = House::start().await;
    let ask = ServerReflectionRequest {
        message_request: Some(MessageRequest::ListServices(String::new())),
        ..Default::default()
    };
    let refused = ServerReflectionClient::new(silent.channel()).server_reflection_info(tokio_stream::once(ask)).await;
    assert_eq!(refused.map(drop).expect_err("it is off").code(), tonic::Code::Unimplemented);
    let settings = ServerSettings { reflection: true, ..ServerSettings::default() };
    let house = House::guarded(settings, AuthSettings::default()).await;
    let ask = ServerReflectionRequest {
        message_request: Some(MessageRequest::ListServices(String::new())),
        ..Default::default()
    };
    let mut client = ServerReflectionClient::new(house.channel());
    let mut answers = client.server_reflection_info(tokio_stream::once(ask)).await.expect("reflects").into_inner();
    let answer = answers.message().await.expect("answers").expect("one answer").message_response;
    let Some(MessageResponse::ListServicesResponse(list)) = answer else { panic!("a list") };
    let names: Vec<String> = list.service.into_iter().map(|service| service.name).collect();
    for service in SERVICES.into_iter().skip(1).chain(["grpc.health.v1.Health"]) {
        assert!(names.iter().any(|name| name == service), "{service} in {names:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_without_its_database_is_alive_but_not_ready_until_it_is_back() {
    let postgres = OwnPostgres::start().await;
    let house = House::at(&postgres.url).await;
    let talk = house.conversation().await;
    eventually("ready", async || get(&house, "/readyz").await.0 == 200).await;
    postgres.crash().await;
    eventually("not ready", async || get(&house, "/readyz").await.0 == 503).await;
    eventually("not serving", async || !serving(&house, "").await).await;
    assert_eq!(get(&house, "/healthz").await.0, 200);
    let refused = talk.append("a").request_id("r1").send().await.expect_err("nobody can store it");
    let said = anneal_tests::refusal(&refused);
    assert_eq!((said.code, said.reason.as_str(), said.retry), (tonic::Code::Unavailable, "DATABASE_UNAVAILABLE", true));
    postgres.restart().await;
    eventually("ready again", async || get(&house, "/readyz").await.0 == 200).await;
    assert!(!talk.append("a").request_id("r1").await.replayed);
    house.run_jobs_until_idle().await;
    talk.verify().await;
}
