//! The headers that say what a tenant's rate of calls leaves.

use anneal_core::caller::Verb;
use anneal_server::LimitSettings;
use anneal_testkit::{HttpResponse, ScriptedModel, TestApp};
use serde_json::json;

use super::{CONVERSATIONS, assert_error, post};

const HEADERS: [&str; 3] = [
    "x-ratelimit-limit-requests",
    "x-ratelimit-remaining-requests",
    "x-ratelimit-reset-requests",
];

/// The figures in the headers of an answer: limit, remaining, and whether it has a reset.
fn figures(answer: &HttpResponse) -> (u64, u64, bool) {
    let [limit, remaining, reset] = HEADERS.map(|name| answer.header(name));
    let number = |text: &str| text.parse().expect("is a number");
    (number(limit), number(remaining), !reset.is_empty())
}

/// Limits of a tenant with a burst of three calls. The next one is free after a second.
fn three_calls() -> LimitSettings {
    LimitSettings {
        calls_per_second: 1,
        calls_burst: 3,
        ..LimitSettings::default()
    }
}

#[tokio::test]
async fn every_answer_of_a_limited_tenant_says_how_many_calls_are_left() {
    let app = TestApp::with_keys_and_limits(three_calls()).await;
    let web = app.http_client();
    let key = format!("Bearer {}", app.key("anna", &Verb::ALL).await.text);
    let send = async |path: &str| {
        let request = web.request("GET", path);
        HttpResponse::send(request.header("authorization", &key)).await
    };
    let mut left = Vec::new();
    let refused = loop {
        let answer = send("/v1/models").await;
        let (limit, remaining, has_reset) = figures(&answer);
        assert_eq!((limit, has_reset), (3, true), "{answer:?}");
        left.push(remaining);
        if answer.status == 429 {
            break answer;
        }
    };
    // A slow machine may pay off a call in between, but the first and the last figures are exact.
    assert_eq!((left.first(), left.last()), (Some(&2), Some(&0)));
    assert_error(&refused, 429, "", "rate_limit_exceeded");
    assert!(!refused.header("retry-after-ms").is_empty());
    let other = send("/api/agents/a/sessions").await;
    assert_eq!(other.header(HEADERS[0]), "", "{other:?}");
}

#[tokio::test]
async fn a_tenant_without_a_rate_gets_no_figures() {
    let unlimited = LimitSettings {
        calls_per_second: 0,
        ..LimitSettings::default()
    };
    let app = TestApp::with_keys_and_limits(unlimited).await;
    let key = format!("Bearer {}", app.key("anna", &Verb::ALL).await.text);
    let request = app.http_client().request("GET", "/v1/models");
    let answer = HttpResponse::send(request.header("authorization", &key)).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    let unknown = HttpResponse::send(app.http_client().request("GET", "/v1/models")).await;
    assert_error(&unknown, 401, "", "invalid_api_key");
    // Without credentials no rate applies, whatever the settings say.
    let model = ScriptedModel::saying("Yes.").await;
    let open = TestApp::with_scripted_model(&model).await;
    let created = post(&open.http_client(), CONVERSATIONS, &json!({})).await;
    assert_eq!(created.status, 200, "{created:?}");
    for (answer, name) in [&answer, &unknown, &created]
        .into_iter()
        .flat_map(|answer| HEADERS.map(|name| (answer, name)))
    {
        assert_eq!(answer.header(name), "", "{answer:?}");
    }
}
