//! Floods of creates over the doors of other protocols: a tenant beyond its limits is told when to
//! come back, in the shape of the door, and others are served.

use std::cell::Cell;

use anneal_core::caller::Verb;
use anneal_server::LimitSettings;
use anneal_testkit::{HttpClient, HttpResponse, MODEL, ScriptedModel, TestApp};
use futures::future::join_all;
use serde_json::{Value, json};

use crate::{
    isolation::door_calls::{CALLS, Names, assert_error_object},
    limits::attacked_server::{AttackedServer, flood_duration},
};

/// More calls than a burst of five plus one call per second allows.
const MANY: usize = 50;
/// Concurrent creates of the attacker.
const SIDE_BY_SIDE: usize = 64;

#[tokio::test]
async fn a_rate_limited_tenant_is_told_when_to_come_back_in_the_shape_of_the_door() {
    let limits = LimitSettings {
        calls_per_second: 1,
        calls_burst: 5,
        ..LimitSettings::default()
    };
    let model = ScriptedModel::saying("OK.").await;
    let app = TestApp::with_models_keys_and_limits(model.settings(&[MODEL]), MODEL, limits).await;
    let eve = format!("Bearer {}", app.key("eve", &Verb::ALL).await.text);
    let anna = format!("Bearer {}", app.key("anna", &Verb::ALL).await.text);
    let (web, names) = (app.http_client(), Names::unknown());
    for call in &CALLS {
        let mut refused = None;
        for _ in 0..MANY {
            let answer = HttpResponse::send(call.request(&web, &names, &eve)).await;
            if answer.status == 429 {
                refused = Some(answer);
                break;
            }
        }
        let what = format!("{} {}", call.method, call.path);
        let refused = refused.unwrap_or_else(|| panic!("{what} is never refused"));
        call.assert_shape(&refused, 429);
        assert_eq!(refused.header("retry-after"), "1", "{what}: {refused:?}");
        if !call.is_of_ui() {
            let wait: Option<u32> = refused.header("retry-after-ms").parse().ok();
            assert!(
                wait.is_some_and(|wait| (1..=1_000).contains(&wait)),
                "{refused:?}"
            );
            let code = &refused.json()["error"]["code"];
            assert_eq!(code, "rate_limit_exceeded", "{what}");
        }
    }
    // Another tenant is not disturbed.
    let models = web
        .request("GET", "/v1/models")
        .header("authorization", &anna);
    assert_eq!(HttpResponse::send(models).await.status, 200);
}

/// Posts this body again and again, and counts the answers. Asserts that each is a success, or says
/// when to come back.
async fn flood(
    web: &HttpClient,
    authorization: &str,
    (path, body): (&str, &Value),
    answers: &Cell<u32>,
) {
    loop {
        let request = web
            .json("POST", path, body)
            .header("authorization", authorization);
        // A large body is refused before it is read, and the connection is closed.
        let Some(answer) = HttpResponse::try_send(request).await else {
            continue;
        };
        answers.set(answers.get() + 1);
        if answer.status == 200 {
            continue;
        }
        assert!(
            matches!(answer.status, 429 | 503) && !answer.header("retry-after").is_empty(),
            "{path}: {answer:?}"
        );
        if path.starts_with("/v1/") {
            assert_error_object(&answer, path);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn creates_side_by_side_over_the_doors_do_not_delay_other_tenants() {
    let model = ScriptedModel::saying("OK.").await;
    let server = AttackedServer::start_with_model(&model, &[]).await;
    let web = server.http_client();
    let item = json!({"role": "user", "content": "x".repeat(1_000)});
    let items = json!({"items": vec![item.clone(); 20]});
    let chain = json!({"model": MODEL, "input": "a"});
    let in_background = json!({"model": MODEL, "input": "a", "background": true});
    let many = json!({"model": MODEL, "store": false, "input": vec![item.clone(); 1_000]});
    let completion = json!({"model": MODEL, "messages": [item], "store": true});
    for (what, path, body) in [
        ("conversations", "/v1/conversations", &items),
        ("responses", "/v1/responses", &chain),
        (
            "responses in the background",
            "/v1/responses",
            &in_background,
        ),
        ("responses of 1,000 items", "/v1/responses", &many),
        ("counts of 1,000 items", "/v1/responses/input_tokens", &many),
        ("chat completions", "/v1/chat/completions", &completion),
    ] {
        let answers = Cell::new(0);
        let attacks = (0..SIDE_BY_SIDE).map(|_| flood(&web, &server.eve, (path, body), &answers));
        let attack = async { drop(join_all(attacks).await) };
        server.run_attack(what, flood_duration(), attack).await;
        assert!(answers.get() > 0, "{what}");
        // The door itself answers another tenant, too.
        let request = web
            .json("POST", path, body)
            .header("authorization", &server.anna);
        let answer = HttpResponse::send(request).await;
        assert_eq!(answer.status, 200, "{what}: {answer:?}");
    }
}
