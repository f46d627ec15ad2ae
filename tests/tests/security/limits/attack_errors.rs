//! Refused requests. Refusing requests of four megabytes must not delay other tenants, and a
//! missing verb must be reported whatever the body is.

use std::time::Duration;

use anneal_core::caller::Verb;
use anneal_testkit::{HttpResponse, TestApp};
use futures::future::join_all;
use uuid::Uuid;

use crate::limits::attacked_server::AttackedServer;

/// Duration of each attack.
const ATTACK_DURATION: Duration = Duration::from_secs(3);
/// Bytes of a hostile name: the request stays below the limit of 4 MiB.
const NAME_BYTES: usize = 4_000_000;
/// Concurrent requests.
const AT_ONCE: usize = 4;

/// Sends the same request again and again, until the future is dropped.
async fn repeat(
    server: &AttackedServer,
    authorization: &str,
    (method, path): (&str, &str),
    body: String,
) {
    let body = prost::bytes::Bytes::from(body);
    let requests = (0..AT_ONCE).map(|_| async {
        let web = server.http_client();
        loop {
            let request = web
                .request(method, path)
                .header("authorization", authorization);
            let answer = request
                .header("content-type", "application/json")
                .body(body.clone())
                .send()
                .await;
            // If the server refuses a request before it reads the body, sending the body may fail.
            let Ok(answer) = answer else { continue };
            let answer = answer.text().await.expect("the answer is complete");
            assert!(answer.len() < 2_000, "an answer of {} bytes", answer.len());
        }
    });
    join_all(requests).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refused_names_of_four_megabytes_do_not_delay_other_tenants() {
    let server = AttackedServer::start(&[]).await;
    let reader = format!("Bearer {}", server.app.key("eve", &[Verb::Read]).await.text);
    let session = format!("/api/agents/a/sessions/{}", Uuid::new_v4());
    let (many, long) = ("a_".repeat(NAME_BYTES / 2), "x".repeat(NAME_BYTES));
    let attacks = [
        (
            "a label of many words, without the verb",
            &*reader,
            ("PATCH", &*session),
            format!(r#"{{"metadata":{{"{many}":1}}}}"#),
        ),
        (
            "a label of many words",
            &*server.eve,
            ("PATCH", &*session),
            format!(r#"{{"metadata":{{"{many}":1}}}}"#),
        ),
        (
            "a status of four megabytes",
            &*server.eve,
            ("PATCH", &*session),
            format!(r#"{{"status":"{long}"}}"#),
        ),
        (
            "a title that is not a string",
            &*server.eve,
            ("PATCH", &*session),
            format!(r#"{{"title":[{}1]}}"#, "1,".repeat(NAME_BYTES / 2)),
        ),
        (
            "many labels",
            &*server.eve,
            ("PATCH", &*session),
            format!(r#"{{"metadata":{{{}}}}}"#, labels()),
        ),
        (
            "unknown fields",
            &*server.eve,
            ("PATCH", &*session),
            format!(r#"{{{},"title":1}}"#, labels()),
        ),
        (
            "many pictures",
            &*server.eve,
            ("POST", "/api/agents/a/chat"),
            format!(r#"{{"images":[{}1]}}"#, r#""","#.repeat(NAME_BYTES / 3)),
        ),
        (
            "a session of four megabytes",
            &*server.eve,
            ("POST", "/api/agents/a/chat"),
            format!(r#"{{"message":"x","sessionId":"{long}"}}"#),
        ),
    ];
    for (what, authorization, route, body) in attacks {
        server
            .run_attack(
                what,
                ATTACK_DURATION,
                repeat(&server, authorization, route, body),
            )
            .await;
    }
}

/// Labels of 14 bytes each, with the comma. Together they nearly fill a request.
fn labels() -> String {
    (0..NAME_BYTES / 16)
        .map(|n| format!(r#""k{n:07}":"""#))
        .collect::<Vec<_>>()
        .join(",")
}

#[tokio::test]
async fn a_missing_verb_is_reported_whatever_the_body_is() {
    let app = TestApp::with_keys_and_limits(anneal_server::LimitSettings::default()).await;
    let reader = format!("Bearer {}", app.key("eve", &[Verb::Read]).await.text);
    let writer = format!("Bearer {}", app.key("eve", &[Verb::Append]).await.text);
    let session = format!("/api/agents/a/sessions/{}", Uuid::new_v4());
    let cases = [
        (&reader, "PATCH", session.clone(), "append"),
        (&reader, "POST", "/api/agents/a/chat".to_owned(), "append"),
        (&writer, "POST", "/api/agents/a/chat".to_owned(), "read"),
        (&reader, "DELETE", session.clone(), "admin"),
        (&writer, "GET", session.clone(), "read"),
        (&writer, "GET", format!("{session}?after=x"), "read"),
        (&writer, "GET", format!("{session}/events?after=x"), "read"),
        (
            &writer,
            "GET",
            "/api/agents/a/sessions?pageSize=x".to_owned(),
            "read",
        ),
        (
            &writer,
            "GET",
            "/api/agents/%ff/sessions".to_owned(),
            "read",
        ),
    ];
    for (authorization, method, path, verb) in cases {
        for (content_type, body) in [
            ("application/json", "{broken"),
            ("text/plain", "x"),
            ("application/json", "[]"),
        ] {
            let request = app
                .http_client()
                .request(method, &path)
                .header("authorization", authorization);
            let answer =
                HttpResponse::send(request.header("content-type", content_type).body(body)).await;
            answer.assert_problem(403, "VERB_MISSING", "");
            assert_eq!(answer.json()["facts"]["verb"], verb, "{method} {path}");
        }
    }
}
