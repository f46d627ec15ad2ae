//! The doors of other protocols: a key gives no more than its verbs, a missing or revoked key is
//! refused, and refusals have the shape of the door.

use anneal_core::caller::Verb;
use anneal_server::{AuthSettings, ServerSettings};
use anneal_testkit::{HttpResponse, MODEL, ScriptedModel, TestApp};

use crate::isolation::door_calls::{CALLS, Names};

const VERBS: [Verb; 4] = [Verb::Read, Verb::Append, Verb::Admin, Verb::Operator];

#[tokio::test]
async fn a_call_of_a_door_needs_each_of_its_verbs_and_no_other() {
    let model = ScriptedModel::saying("Yes.").await;
    let app = TestApp::with_models_and_keys(model.settings(&[MODEL]), MODEL).await;
    let (web, names) = (app.http_client(), Names::unknown());
    for call in &CALLS {
        let exact = app.key("anna", call.verbs).await;
        let exact = format!("Bearer {}", exact.text);
        let answer = HttpResponse::send(call.request(&web, &names, &exact)).await;
        assert!(
            ![401, 403].contains(&answer.status) && answer.status < 500,
            "{} {}: {answer:?}",
            call.method,
            call.path
        );
        for missing in call.verbs {
            let others: Vec<Verb> = VERBS.into_iter().filter(|verb| verb != missing).collect();
            let lacking = app.key("anna", &others).await;
            let lacking = format!("Bearer {}", lacking.text);
            // A body that is not read cannot be refused.
            for request in [
                call.request(&web, &names, &lacking),
                call.request(&web, &names, &lacking).body("{"),
            ] {
                let answer = HttpResponse::send(request).await;
                call.assert_shape(&answer, 403);
                let words = format!("lacks the verb {}", missing.name());
                assert!(answer.text.contains(&words), "{answer:?}");
                if !call.is_of_ui() {
                    let error = &answer.json()["error"];
                    assert_eq!(error["code"], "insufficient_permissions", "{answer:?}");
                }
            }
        }
    }
}

#[tokio::test]
async fn a_call_of_a_door_without_a_valid_credential_is_refused() {
    let auth = AuthSettings {
        api_keys: true,
        ..AuthSettings::default()
    };
    let app = TestApp::with_auth(ServerSettings::default(), auth).await;
    let (web, names) = (app.http_client(), Names::unknown());
    for call in &CALLS {
        for authorization in ["", "Bearer nobody", "Basic YTpi", "Bearer anneal_1_2"] {
            let answer = HttpResponse::send(call.request(&web, &names, authorization)).await;
            call.assert_shape(&answer, 401);
            assert!(
                answer.header("www-authenticate").starts_with("Bearer"),
                "{answer:?}"
            );
        }
    }
}

#[tokio::test]
async fn without_authentication_a_door_answers_no_unknown_host() {
    let settings = ServerSettings {
        http_address: ([0, 0, 0, 0], 0).into(),
        insecure: true,
        http_hosts: vec!["panel.example".into()],
        ..ServerSettings::default()
    };
    let app = TestApp::with_auth(settings, AuthSettings::default()).await;
    let (web, names) = (app.http_client(), Names::unknown());
    for call in &CALLS {
        for host in ["evil.example", "127.0.0.1.evil.example"] {
            let request = call.request(&web, &names, "").header("host", host);
            call.assert_shape(&HttpResponse::send(request).await, 421);
        }
        let request = call
            .request(&web, &names, "")
            .header("host", "panel.example");
        let answer = HttpResponse::send(request).await;
        assert!(answer.status != 421, "{answer:?}");
    }
}

#[tokio::test]
async fn pages_of_allowed_origins_read_the_refusals_of_a_door_and_others_do_not() {
    let settings = ServerSettings {
        cors_origins: vec!["https://app.example".to_owned()]
            .try_into()
            .expect("is an origin"),
        ..ServerSettings::default()
    };
    let auth = AuthSettings {
        api_keys: true,
        ..AuthSettings::default()
    };
    let app = TestApp::with_auth(settings, auth).await;
    let (web, names) = (app.http_client(), Names::unknown());
    for call in &CALLS {
        for (origin, allowed) in [
            ("https://app.example", "https://app.example"),
            ("https://evil.example", ""),
        ] {
            let request = call.request(&web, &names, "").header("origin", origin);
            let answer = HttpResponse::send(request).await;
            call.assert_shape(&answer, 401);
            let header = answer.header("access-control-allow-origin");
            assert_eq!(header, allowed, "{} {}", call.method, call.path);
        }
    }
}
