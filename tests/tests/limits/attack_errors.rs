//! Requests that are refused: what the refusal costs must not grow faster than the request, and who may not make a call is
//! told so before anything of its body is read.

use std::time::Duration;

use anneal_core::caller::Verb;
use anneal_tests::{Answered, House};
use futures::future::join_all;
use uuid::Uuid;

use crate::besieged::Besieged;

/// How long each attack lasts.
const LASTS: Duration = Duration::from_secs(3);
/// Bytes of a hostile name, so that the request stays below the limit of 4 MiB.
const NAME_BYTES: usize = 4_000_000;
/// Requests under way at once: more than the machine has cores.
const AT_ONCE: usize = 4;

/// Sends the same request again and again.
async fn repeat(server: &Besieged, authorization: &str, (method, path): (&str, &str), body: String) {
    let body = prost::bytes::Bytes::from(body);
    let requests = (0..AT_ONCE).map(|_| async {
        let web = server.web();
        loop {
            let request = web.request(method, path).header("authorization", authorization);
            let answer = request.header("content-type", "application/json").body(body.clone()).send().await;
            let answer = answer.expect("is answered").text().await.expect("the answer is whole");
            assert!(answer.len() < 2_000, "an answer of {} bytes", answer.len());
        }
    });
    join_all(requests).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn names_of_four_megabytes_in_what_is_refused_keep_nobody_waiting() {
    let server = Besieged::start(&[]).await;
    let reader = format!("Bearer {}", server.house.key("eve", &[Verb::Read]).await.text);
    let session = format!("/api/agents/a/sessions/{}", Uuid::new_v4());
    let (many, long) = ("a_".repeat(NAME_BYTES / 2), "x".repeat(NAME_BYTES));
    let attacks = [
        (
            "a label of many words, without the verb",
            &*reader,
            ("PATCH", &*session),
            format!(r#"{{"metadata":{{"{many}":1}}}}"#),
        ),
        ("a label of many words", &*server.eve, ("PATCH", &*session), format!(r#"{{"metadata":{{"{many}":1}}}}"#)),
        ("a status of four megabytes", &*server.eve, ("PATCH", &*session), format!(r#"{{"status":"{long}"}}"#)),
        (
            "a title that is no text",
            &*server.eve,
            ("PATCH", &*session),
            format!(r#"{{"title":[{}1]}}"#, "1,".repeat(NAME_BYTES / 2)),
        ),
        ("labels without end", &*server.eve, ("PATCH", &*session), format!(r#"{{"metadata":{{{}}}}}"#, labels())),
        ("unknown fields", &*server.eve, ("PATCH", &*session), format!(r#"{{{},"title":1}}"#, labels())),
        (
            "pictures without end",
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
        server.endures(what, LASTS, repeat(&server, authorization, route, body)).await;
    }
}

/// As many labels as fit.
fn labels() -> String {
    (0..NAME_BYTES / 16).map(|n| format!(r#""k{n:07}":"""#)).collect::<Vec<_>>().join(",")
}

#[tokio::test]
async fn who_lacks_the_verb_is_told_so_whatever_the_body_holds() {
    let house = House::limited(anneal_server::LimitSettings::default()).await;
    let reader = format!("Bearer {}", house.key("eve", &[Verb::Read]).await.text);
    let writer = format!("Bearer {}", house.key("eve", &[Verb::Append]).await.text);
    let session = format!("/api/agents/a/sessions/{}", Uuid::new_v4());
    let cases = [
        (&reader, "PATCH", session.clone(), "append"),
        (&reader, "POST", "/api/agents/a/chat".to_owned(), "append"),
        (&writer, "POST", "/api/agents/a/chat".to_owned(), "read"),
        (&reader, "DELETE", session.clone(), "admin"),
        (&writer, "GET", session.clone(), "read"),
        (&writer, "GET", format!("{session}?after=x"), "read"),
        (&writer, "GET", format!("{session}/events?after=x"), "read"),
        (&writer, "GET", "/api/agents/a/sessions?pageSize=x".to_owned(), "read"),
        (&writer, "GET", "/api/agents/%ff/sessions".to_owned(), "read"),
    ];
    for (authorization, method, path, verb) in cases {
        for (kind, body) in [("application/json", "{broken"), ("text/plain", "x"), ("application/json", "[]")] {
            let request = house.web().request(method, &path).header("authorization", authorization);
            let answer = Answered::to(request.header("content-type", kind).body(body)).await;
            answer.assert_problem(403, "VERB_MISSING", "");
            assert_eq!(answer.json()["facts"]["verb"], verb, "{method} {path}");
        }
    }
}
