//! What every answer of the page forbids, and where there is no page.

use std::collections::BTreeSet;

use anneal_server::{AuthSettings, CorsOrigins, ServerSettings, WebSettings};
use anneal_testkit::{HttpResponse, PageAnswer, TestApp, media, pb};
use pb::message_service_client::MessageServiceClient;

use super::{TALKING, app_with_keys, open_app};
use crate::isolation::{foreign_conversations::create_long_conversation, page_calls::CALLS};

/// Asserts what keeps a page from running or loading what others have written.
fn assert_protected(path: &str, answer: &PageAnswer) {
    let policy = answer.header("content-security-policy");
    for rule in [
        "default-src 'self'",
        "script-src 'self'",
        "style-src 'self'",
        "object-src 'none'",
        "base-uri 'none'",
        "form-action 'self'",
        "frame-ancestors 'none'",
    ] {
        assert!(policy.contains(rule), "{path}: {policy} lacks {rule}");
    }
    assert!(!policy.contains("unsafe"), "{path}: {policy}");
    for (name, value) in [
        ("x-frame-options", "DENY"),
        ("x-content-type-options", "nosniff"),
        ("referrer-policy", "same-origin"),
        ("cross-origin-opener-policy", "same-origin"),
        ("cross-origin-resource-policy", "same-origin"),
    ] {
        assert_eq!(answer.header(name), value, "{path}: {name}");
    }
    for name in [
        "access-control-allow-origin",
        "access-control-allow-credentials",
    ] {
        assert_eq!(answer.header(name), "", "{path}: {name}");
    }
}

#[tokio::test]
async fn every_answer_has_the_headers_and_none_allows_another_origin() {
    let server = ServerSettings {
        cors_origins: CorsOrigins::try_from(vec!["*".to_owned()]).expect("any origin"),
        ..ServerSettings::default()
    };
    let auth = AuthSettings {
        api_keys: true,
        ..AuthSettings::default()
    };
    let app = TestApp::with_auth(server, auth).await;
    let key = app.key("a", &TALKING).await;
    let mut browser = app.sign_in_to_page(&key.text).await;
    let missing = uuid::Uuid::new_v4();
    for (path, status) in [
        ("/", 303),
        ("/sign-in", 200),
        ("/sign-out", 405),
        ("/conversations", 200),
        (&format!("/conversations/{missing}"), 404),
        ("/conversations/x/no/such/page", 404),
        ("/assets/0/none.css", 404),
    ] {
        let request = browser
            .request("GET", path)
            .header("origin", "https://a.example");
        let answer = browser.send(request).await;
        assert_eq!(answer.status, status, "{path}");
        assert_protected(path, &answer);
        assert_eq!(answer.header("cache-control"), "no-store", "{path}");
        if status >= 400 {
            assert!(
                answer.header("content-type").starts_with("text/html"),
                "{path}"
            );
            assert!(answer.body.starts_with("<!doctype html>"), "{path}");
        }
    }
    // The API of the same server allows it.
    let api = HttpResponse::send(
        app.http_client()
            .request("GET", "/openapi.json")
            .header("origin", "https://a.example"),
    );
    assert_eq!(api.await.header("access-control-allow-origin"), "*");
}

#[tokio::test]
async fn every_answer_about_a_conversation_has_the_headers() {
    let app = app_with_keys().await;
    let key = app.key("a", &TALKING).await;
    let channel = app.authorized_channel(&format!("Bearer {}", key.text));
    let ask = pb::CreateConversationRequest::default();
    let conversation = create_long_conversation(&app, &channel, ask).await;
    let picture = "data:image/gif;base64,R0lGODlhAQABAAAAACH5BAEKAAEALAAAAAABAAEAAAICTAEAOw==";
    let ask = pb::AppendMessagesRequest {
        conversation_id: conversation.clone(),
        messages: vec![media(picture)],
        ..Default::default()
    };
    let appended = MessageServiceClient::new(channel)
        .append_messages(ask)
        .await;
    let appended = appended.expect("appends").into_inner().messages;
    let picture = appended[0].message_id;
    let picture = format!("/conversations/{conversation}/messages/{picture}/media/0");
    let mut browser = app.sign_in_to_page(&key.text).await;
    let answer = browser.get(&picture).await;
    assert_eq!(
        (answer.status, answer.header("content-type")),
        (200, "image/gif")
    );
    let policy = answer.header("content-security-policy");
    assert_eq!(policy, "default-src 'none'; sandbox");
    assert_eq!(answer.header("x-frame-options"), "DENY");
    assert_eq!(answer.header("x-content-type-options"), "nosniff");
    assert_eq!(answer.header("cache-control"), "no-store");
    let mut statuses = BTreeSet::new();
    for script in ["false", "true"] {
        for call in &CALLS {
            let path = call.path_of(&conversation);
            let mut request = call.request(&browser, &conversation);
            if script == "true" {
                request = request.header("hx-request", "true");
            }
            // Streams do not end: their headers come first.
            let response = request.send().await.expect("is answered");
            let answer = PageAnswer {
                status: response.status().as_u16(),
                headers: response.headers().clone(),
                body: String::new(),
            };
            let what = format!("{} {path} {}", call.method, answer.status);
            assert_protected(&what, &answer);
            assert_eq!(answer.header("cache-control"), "no-store", "{what}");
            assert_eq!(answer.header("set-cookie"), "", "{what}");
            statuses.insert(answer.status);
        }
    }
    assert!(
        statuses.contains(&200) && statuses.contains(&303),
        "{statuses:?}"
    );
}

#[tokio::test]
async fn the_files_of_a_page_are_there_for_ever_and_compressed() {
    let app = open_app().await;
    let mut browser = app.page_client();
    let page = browser.get("/conversations").await.body;
    let assets: Vec<&str> = page
        .split('"')
        .filter(|text| text.starts_with("/assets/"))
        .collect();
    assert!(assets.len() >= 3, "{assets:?}");
    for path in assets {
        let request = browser
            .request("GET", path)
            .header("accept-encoding", "gzip");
        let answer = browser.send(request).await;
        assert_eq!(answer.status, 200, "{path}");
        assert_eq!(answer.header("content-encoding"), "gzip", "{path}");
        assert!(
            answer.header("cache-control").contains("immutable"),
            "{path}"
        );
        assert_protected(path, &answer);
    }
}

#[tokio::test]
async fn a_refusal_is_a_notice_for_the_script_and_json_for_programs() {
    let app = open_app().await;
    let mut browser = app.page_client();
    let path = format!("/conversations/{}", uuid::Uuid::new_v4());
    let request = browser.request("GET", &path).header("hx-request", "true");
    let notice = browser.send(request).await;
    assert_eq!(
        (notice.status, notice.header("hx-retarget")),
        (404, "#notices")
    );
    assert!(!notice.body.contains("<html"), "{}", notice.body);
    assert!(
        notice.body.contains("CONVERSATION_NOT_FOUND"),
        "{}",
        notice.body
    );
    let problem = HttpResponse::send(app.http_client().request("GET", &path)).await;
    problem.assert_problem(404, "CONVERSATION_NOT_FOUND", "");
}

#[tokio::test]
async fn without_the_page_its_paths_do_not_exist() {
    let off = WebSettings {
        enabled: Some(false),
        ..WebSettings::default()
    };
    let auth = AuthSettings {
        api_keys: true,
        ..AuthSettings::default()
    };
    for app in [
        TestApp::with_page(auth, off).await,
        // Nobody could sign in, and the setting does not ask for it.
        TestApp::with_page(AuthSettings::default(), WebSettings::default()).await,
    ] {
        for path in [
            "/",
            "/sign-in",
            "/conversations",
            "/operations",
            "/assets/0/none.css",
        ] {
            let request = app
                .http_client()
                .request("GET", path)
                .header("accept", "text/html");
            let answer = HttpResponse::send(request).await;
            answer.assert_problem(404, "MALFORMED_REQUEST", "");
            assert_eq!(answer.header("set-cookie"), "", "{path}");
        }
    }
}

#[tokio::test]
async fn a_page_without_sign_in_answers_only_under_names_of_this_machine() {
    let app = open_app().await;
    let mut browser = app.page_client();
    let request = browser
        .request("GET", "/conversations")
        .header("host", "evil.example");
    assert_eq!(browser.send(request).await.status, 421);
    let app = app_with_keys().await;
    let mut browser = app.page_client();
    let request = browser
        .request("GET", "/sign-in")
        .header("host", "anneal.example");
    assert_eq!(browser.send(request).await.status, 200);
}
