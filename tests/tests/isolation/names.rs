//! Names under which the HTTP port answers who needs no credential: a page whose name was pointed at it is not among them.

use anneal_server::{AuthSettings, ServerSettings};
use anneal_tests::{Answered, House, Web, eventually};

/// Settings of a container whose port is published on its machine's loopback.
fn everywhere() -> ServerSettings {
    ServerSettings {
        http_address: ([0, 0, 0, 0], 0).into(),
        insecure: true,
        http_hosts: vec!["panel.example".into()],
        ..Default::default()
    }
}

async fn status(web: &Web, method: &str, path: &str, host: &str) -> u16 {
    Answered::to(web.request(method, path).header("host", host)).await.status
}

#[tokio::test]
async fn a_domain_that_was_pointed_at_an_open_port_is_not_listened_to() {
    let house = House::guarded(everywhere(), AuthSettings::default()).await;
    let web = house.web();
    let (sessions, session) = ("/api/agents/a/sessions", format!("/api/agents/a/sessions/{}", uuid::Uuid::new_v4()));
    for host in ["evil.example", "evil.example:8080", "127.0.0.1.evil.example", "panel.example.evil.example"] {
        for (method, path) in [("GET", sessions), ("DELETE", session.as_str()), ("GET", "/openapi.json")] {
            let refused = Answered::to(web.request(method, path).header("host", host)).await;
            refused.assert_problem(421, "MALFORMED_REQUEST", "");
        }
    }
    for host in ["localhost:8080", "server:8080", "127.0.0.1:8080", "10.2.3.4", "[fd00::1]", "panel.example:443"] {
        assert_eq!(status(&web, "GET", sessions, host).await, 200, "{host}");
    }
    // Load balancers ask by whatever name they have.
    eventually("is ready", async || status(&web, "GET", "/readyz", "lb.example").await == 200).await;
    for host in ["lb.example", "evil.example:8080"] {
        assert_eq!(status(&web, "GET", "/healthz", host).await, 200, "{host}");
    }
}

#[tokio::test]
async fn where_callers_show_credentials_any_name_will_do() {
    let house = House::guarded(everywhere(), AuthSettings { api_keys: true, ..Default::default() }).await;
    assert_eq!(status(&house.web(), "GET", "/api/agents/a/sessions", "anneal.example").await, 401);
}
