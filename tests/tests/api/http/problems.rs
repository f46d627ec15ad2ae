//! Refusals over HTTP are problem documents (RFC 9457) with a reason. Other tests are of security
//! headers, and of which hosts and origins are allowed.

use anneal_testkit::{AnnealBinary, Folder, HttpClient, HttpResponse, ScriptedModel, TestApp};
use serde_json::json;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

use crate::http::{BINARY, CHAT};

/// The path of a session that does not exist.
const MISSING_SESSION: &str = "/api/agents/a/sessions/00000000-0000-4000-8000-000000000000";
const JSON: &str = "application/json";

async fn post(web: &HttpClient, content_type: &str, body: impl Into<Vec<u8>>) -> HttpResponse {
    HttpResponse::send(
        web.request("POST", CHAT)
            .header("content-type", content_type)
            .body(body.into()),
    )
    .await
}

#[tokio::test]
async fn missing_paths_and_sessions_answer_with_a_problem() {
    let app = TestApp::start().await;
    let web = app.http_client();
    for path in [
        "/",
        "/api",
        "/api/agents/a",
        "/api/agents/a/sessions/",
        "/nothing",
    ] {
        web.get(path)
            .await
            .assert_problem(404, "MALFORMED_REQUEST", "");
    }
    for (method, path, allow) in [
        ("GET", CHAT, "POST"),
        ("PUT", MISSING_SESSION, "DELETE,GET,HEAD,PATCH"),
        ("POST", "/api/agents/a/sessions", "GET,HEAD"),
        ("DELETE", "/healthz", "GET,HEAD"),
    ] {
        let refused = HttpResponse::send(web.request(method, path)).await;
        refused.assert_problem(405, "MALFORMED_REQUEST", "");
        let mut allowed: Vec<&str> = refused.header("allow").split(',').map(str::trim).collect();
        allowed.sort_unstable();
        assert_eq!(allowed.join(","), allow, "{method} {path}");
    }
    web.get(MISSING_SESSION)
        .await
        .assert_problem(404, "CONVERSATION_NOT_FOUND", "");
    web.get("/api/agents/a/sessions/not-a-uuid")
        .await
        .assert_problem(400, "INVALID_FIELD", "sessionId");
}

#[tokio::test]
async fn the_title_of_a_request_that_is_not_served_is_that_of_its_status() {
    let app = TestApp::start().await;
    let web = app.http_client();
    let post = || web.request("POST", CHAT).header("content-type", JSON);
    for (request, status, title) in [
        (web.request("GET", "/nothing"), 404, "Not found"),
        (web.request("GET", CHAT), 405, "Method not allowed"),
        (web.request("DELETE", "/healthz"), 405, "Method not allowed"),
        (
            web.request("POST", CHAT).body("hi"),
            415,
            "Unsupported media type",
        ),
        (
            post().header("content-encoding", "gzip").body("{}"),
            415,
            "Unsupported media type",
        ),
        (
            web.request("GET", MISSING_SESSION)
                .header("host", "evil.example"),
            421,
            "Misdirected request",
        ),
        (post().body("{"), 400, "Malformed request"),
    ] {
        let refused = HttpResponse::send(request).await;
        refused.assert_problem(status, "MALFORMED_REQUEST", "");
        assert_eq!(refused.json()["title"], title, "{refused:?}");
    }
}

#[tokio::test]
async fn every_answer_forbids_content_type_sniffing() {
    let model = ScriptedModel::saying("Yes.").await;
    let app = TestApp::with_scripted_model(&model).await;
    let web = app.http_client();
    let body = json!({"message": "Hello."});
    let received = web.chat("a", &body).await;
    let session = received[0].data["sessionId"]
        .as_str()
        .expect("named")
        .to_owned();
    let events = format!("/api/agents/a/sessions/{session}/events");
    for request in [
        web.request("GET", "/healthz"),
        web.request("GET", "/readyz"),
        web.request("GET", "/metrics"),
        web.request("GET", "/openapi.json"),
        web.request("GET", "/nothing"),
        web.request("DELETE", "/healthz"),
        web.request("OPTIONS", CHAT)
            .header("origin", "https://panel.example"),
        web.request("GET", MISSING_SESSION),
        web.request("GET", &format!("/api/agents/a/sessions/{session}")),
        web.request("GET", &events),
        web.json("POST", CHAT, &body),
        web.request("POST", CHAT)
            .header("last-event-id", &received.last().expect("done").id),
        web.request("GET", "/api/agents/a/sessions")
            .header("host", "elsewhere.example"),
    ] {
        let answer = request.send().await.expect("answers");
        let header = answer
            .headers()
            .get("x-content-type-options")
            .map(|value| value.as_bytes().to_vec());
        assert_eq!(header.as_deref(), Some(&b"nosniff"[..]), "{answer:?}");
    }
}

#[tokio::test]
async fn a_body_above_the_limit_is_refused_with_or_without_a_content_length() {
    let app = TestApp::start().await;
    let web = app.http_client();
    let large = json!({"message": "x".repeat(4 * 1024 * 1024)}).to_string();
    let refused = post(&web, JSON, large).await;
    refused.assert_problem(413, "LIMIT_EXCEEDED", "body");
    let mut stream = TcpStream::connect(app.addresses.http)
        .await
        .expect("connects");
    let head = format!(
        "POST {CHAT} HTTP/1.1\r\nHost: localhost\r\nContent-Type: {JSON}\r\nTransfer-Encoding: chunked\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).await.expect("asks");
    // Five chunks of 1 MiB; a body may have 4 MiB.
    let chunk = format!("100000\r\n{}\r\n", "x".repeat(0x10_0000));
    for _ in 0..5 {
        // The server may have closed the connection before everything was sent.
        if stream.write_all(chunk.as_bytes()).await.is_err() {
            break;
        }
    }
    let mut answer = [0; 16];
    let read = stream.read(&mut answer).await.expect("answers");
    assert!(String::from_utf8_lossy(&answer[..read]).starts_with("HTTP/1.1 413"));
}

#[tokio::test]
async fn host_names_that_are_not_allowed_are_refused_to_prevent_dns_rebinding() {
    let app = TestApp::start().await;
    let web = app.http_client();
    let sessions = "/api/agents/a/sessions";
    for host in [
        "evil.example",
        "evil.example:8080",
        "localhost.evil.example",
        "127.0.0.1.evil.example",
        "10.0.0.1",
    ] {
        for path in [sessions, "/openapi.json"] {
            let refused = HttpResponse::send(web.request("GET", path).header("host", host)).await;
            refused.assert_problem(421, "MALFORMED_REQUEST", "");
        }
    }
    for host in [
        "localhost",
        "LocalHost:1",
        "127.0.0.1:99",
        "[::1]:8080",
        "panel.localhost",
    ] {
        assert_eq!(
            HttpResponse::send(web.request("GET", sessions).header("host", host))
                .await
                .status,
            200,
            "{host}"
        );
    }
}

#[tokio::test]
async fn by_default_no_answer_lets_a_page_of_another_origin_read_it() {
    let app = TestApp::start().await;
    let web = app.http_client();
    let request = web
        .request("OPTIONS", CHAT)
        .header("origin", "https://evil.example");
    let preflight =
        HttpResponse::send(request.header("access-control-request-method", "POST")).await;
    let read = web
        .request("GET", "/api/agents/a/sessions")
        .header("origin", "https://evil.example");
    for answered in [preflight, HttpResponse::send(read).await] {
        assert!(
            !answered
                .headers
                .keys()
                .any(|name| name.as_str().starts_with("access-control")),
            "{answered:?}"
        );
    }
}

#[tokio::test]
async fn configured_origins_are_allowed_and_invalid_origins_stop_the_start() {
    let (folder, app) = (Folder::new(), TestApp::start().await);
    let anneal = AnnealBinary::new(BINARY, &folder, &app.url);
    for (origins, message) in [
        (
            r#"["*", "https://panel.example"]"#,
            "must be the only entry",
        ),
        (r#"["panel.example"]"#, "is no origin"),
        (r#"["https://panel.example/"]"#, "is no origin"),
    ] {
        folder.file(
            "anneal.toml",
            &format!("[server]\ncors_origins = {origins}\n"),
        );
        let refused = anneal.run(&["server"]).await;
        assert!(
            refused.code == Some(1) && refused.err.contains(message),
            "{origins}: {refused:?}"
        );
    }
    folder.file(
        "anneal.toml",
        "[server]\ncors_origins = [\"https://panel.example\"]\n",
    );
    let (server, _) = anneal.server().await;
    let line = server.wait_for_line("\"http\":\"").await;
    let address = line
        .split("\"http\":\"")
        .nth(1)
        .and_then(|rest| rest.split('"').next())
        .expect("an address");
    let web = HttpClient::at(address.parse().expect("an address"));
    for (origin, allowed) in [
        ("https://panel.example", "https://panel.example"),
        ("https://evil.example", ""),
    ] {
        let request = web.request("OPTIONS", CHAT).header("origin", origin);
        let request = request.header("access-control-request-method", "POST");
        let preflight = HttpResponse::send(request.header(
            "access-control-request-headers",
            "content-type,last-event-id,idempotency-key,anneal-conversation",
        ))
        .await;
        assert_eq!(
            (
                preflight.status,
                preflight.header("access-control-allow-origin")
            ),
            (200, allowed),
            "{origin}"
        );
        let missing_session =
            HttpResponse::send(web.request("GET", MISSING_SESSION).header("origin", origin)).await;
        for (answer, list, names) in [
            (
                &preflight,
                "access-control-allow-headers",
                &["idempotency-key", "anneal-conversation"][..],
            ),
            (
                &missing_session,
                "access-control-expose-headers",
                &[
                    "x-request-id",
                    "retry-after-ms",
                    "anneal-conversation",
                    "x-anneal-ignored-parameters",
                    "x-ratelimit-remaining-requests",
                ],
            ),
        ] {
            let listed: Vec<&str> = answer.header(list).split(',').map(str::trim).collect();
            let has_all = names.iter().all(|name| listed.contains(name));
            assert!(has_all, "{origin}: {answer:?}");
        }
        missing_session.assert_problem(404, "CONVERSATION_NOT_FOUND", "");
        assert_eq!(
            missing_session.header("access-control-allow-origin"),
            allowed,
            "{origin}"
        );
        let unknown_path =
            HttpResponse::send(web.request("GET", "/nothing").header("origin", origin)).await;
        unknown_path.assert_problem(404, "MALFORMED_REQUEST", "");
        let other_host = web
            .request("GET", MISSING_SESSION)
            .header("origin", origin)
            .header("host", "evil.example");
        let other_host = HttpResponse::send(other_host).await;
        other_host.assert_problem(421, "MALFORMED_REQUEST", "");
        for refused in [unknown_path, other_host] {
            assert_eq!(
                refused.header("access-control-allow-origin"),
                allowed,
                "{origin}: {refused:?}"
            );
        }
        let metrics =
            HttpResponse::send(web.request("GET", "/metrics").header("origin", origin)).await;
        assert_eq!(
            metrics.header("access-control-allow-origin"),
            "",
            "web pages may not read metrics"
        );
    }
    server.terminate().await;
    assert_eq!(server.wait_for_exit().await, Some(0));
}
