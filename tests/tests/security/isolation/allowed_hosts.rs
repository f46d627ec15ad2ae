//! The list of host names under which HTTP answers without authentication. It protects against DNS
//! rebinding: requests of a web page whose domain points at the server are refused.

use anneal_server::{AuthSettings, ServerSettings};
use anneal_testkit::{HttpClient, HttpResponse, TestApp, eventually};

/// Settings of a container whose port is published on the host's loopback.
fn container_settings() -> ServerSettings {
    ServerSettings {
        http_address: ([0, 0, 0, 0], 0).into(),
        insecure: true,
        http_hosts: vec!["panel.example".into()],
        ..Default::default()
    }
}

async fn status(web: &HttpClient, method: &str, path: &str, host: &str) -> u16 {
    HttpResponse::send(web.request(method, path).header("host", host))
        .await
        .status
}

#[tokio::test]
async fn without_authentication_an_unknown_host_is_refused() {
    let app = TestApp::with_auth(container_settings(), AuthSettings::default()).await;
    let web = app.http_client();
    let (sessions, session) = (
        "/api/agents/a/sessions",
        format!("/api/agents/a/sessions/{}", uuid::Uuid::new_v4()),
    );
    for host in [
        "evil.example",
        "evil.example:8080",
        "127.0.0.1.evil.example",
        "panel.example.evil.example",
    ] {
        for (method, path) in [
            ("GET", sessions),
            ("DELETE", session.as_str()),
            ("GET", "/openapi.json"),
        ] {
            let refused = HttpResponse::send(web.request(method, path).header("host", host)).await;
            refused.assert_problem(421, "MALFORMED_REQUEST", "");
        }
    }
    // Addresses, names without a dot, and the configured name.
    for host in [
        "localhost:8080",
        "server:8080",
        "127.0.0.1:8080",
        "10.2.3.4",
        "[fd00::1]",
        "panel.example:443",
    ] {
        assert_eq!(status(&web, "GET", sessions, host).await, 200, "{host}");
    }
    // Health checks are answered under any name.
    eventually("is ready", async || {
        status(&web, "GET", "/readyz", "lb.example").await == 200
    })
    .await;
    for host in ["lb.example", "evil.example:8080"] {
        assert_eq!(status(&web, "GET", "/healthz", host).await, 200, "{host}");
    }
}

#[tokio::test]
async fn with_authentication_the_host_is_not_checked() {
    let app = TestApp::with_auth(
        container_settings(),
        AuthSettings {
            api_keys: true,
            ..Default::default()
        },
    )
    .await;
    assert_eq!(
        status(
            &app.http_client(),
            "GET",
            "/api/agents/a/sessions",
            "anneal.example"
        )
        .await,
        401,
        "the request lacks a credential, whatever its host is"
    );
}
