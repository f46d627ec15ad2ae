//! Sessions of people who have signed in to the page.

use anneal_core::caller::Verb;
use anneal_server::{AuthSettings, WebSettings};
use anneal_store::{OwnerConnection, StoreSettings};
use anneal_testkit::{Folder, HttpResponse, PageClient, TestApp, assert_refused, eventually, pb};
use jsonwebtoken::Algorithm;
use pb::conversation_service_client::ConversationServiceClient;
use serde_json::json;
use sqlx::{Connection as _, PgConnection};
use tonic::Code;

use super::{TALKING, app_with_keys, open_app};
use crate::isolation::credentials::{AUDIENCE, Provider, claims, jwks, seconds_from_now};

/// The value of the browser's cookie.
fn cookie_value(browser: &PageClient) -> String {
    let cookie = browser.cookie.as_deref().expect("has a cookie");
    let (_, value) = cookie.split_once('=').expect("a pair");
    value.to_owned()
}

/// Runs this statement on the sessions in the database.
async fn change_sessions(app: &TestApp, statement: &'static str) {
    let mut db = PgConnection::connect(&app.url).await.expect("connects");
    sqlx::query(statement).execute(&mut db).await.expect("runs");
}

/// Seconds that the only session is still valid.
async fn seconds_left(app: &TestApp) -> f64 {
    let mut db = PgConnection::connect(&app.url).await.expect("connects");
    sqlx::query_scalar("select extract(epoch from expires_ts - now())::float8 from web_session")
        .fetch_one(&mut db)
        .await
        .expect("there is one session")
}

async fn count_sessions(app: &TestApp) -> i64 {
    let mut db = PgConnection::connect(&app.url).await.expect("connects");
    sqlx::query_scalar("select count(*) from web_session")
        .fetch_one(&mut db)
        .await
        .expect("runs")
}

/// Whether the browser is led to the sign-in.
async fn is_signed_out(browser: &mut PageClient) -> bool {
    let answer = browser.get("/conversations").await;
    match answer.status {
        200 => false,
        303 => {
            assert_eq!(answer.header("location"), "/sign-in?next=%2Fconversations");
            true
        }
        _ => panic!("{answer:?}"),
    }
}

#[tokio::test]
async fn a_key_signs_in_and_its_cookie_is_for_the_page_alone() {
    let app = app_with_keys().await;
    let key = app.key("acme", &TALKING).await;
    let mut browser = app.page_client();
    assert!(is_signed_out(&mut browser).await);
    browser
        .get("/sign-in?next=/conversations%3Fagent%3Da")
        .await;
    let form = [
        ("credential", key.text.as_str()),
        ("next", "/conversations?agent=a"),
    ];
    let answer = browser.post("/sign-in", &form).await;
    assert_eq!(
        (answer.status, answer.header("location")),
        (303, "/conversations?agent=a")
    );
    let cookie = answer.header("set-cookie").to_owned();
    assert!(
        cookie.contains("HttpOnly") && cookie.contains("SameSite=Strict"),
        "{cookie}"
    );
    assert!(!cookie.contains(&key.text) && !answer.body.contains(&key.text));
    let page = browser.get("/conversations").await;
    assert_eq!(page.status, 200);
    // The page names key and tenant.
    assert!(
        page.body.contains("a test") && page.body.contains("acme"),
        "{}",
        page.body
    );
    // Neither the cookie nor its value is a credential of another door.
    let session = cookie_value(&browser);
    for header in ["cookie", "authorization"] {
        let value = match header {
            "cookie" => browser.cookie.clone().expect("has one"),
            _ => format!("Bearer {session}"),
        };
        for path in ["/api/agents/a/sessions", "/v1/models", "/metrics"] {
            let request = app
                .http_client()
                .request("GET", path)
                .header(header, &value);
            assert_eq!(
                HttpResponse::send(request).await.status,
                401,
                "{header} {path}"
            );
        }
    }
    let channel = app.authorized_channel(&format!("Bearer {session}"));
    let listed = ConversationServiceClient::new(channel)
        .list_conversations(pb::ListConversationsRequest::default())
        .await;
    assert_refused(listed, Code::Unauthenticated, "UNAUTHENTICATED", "");
    // The page does not take a session for a key.
    let again = browser.post("/sign-in", &[("credential", &session)]).await;
    assert_eq!(again.status, 401, "{again:?}");
}

#[tokio::test]
async fn what_is_no_credential_does_not_sign_in_and_is_not_shown() {
    let app = app_with_keys().await;
    let mut browser = app.page_client();
    browser.get("/sign-in").await;
    let made_up = format!("anneal_{}_wrong", uuid::Uuid::new_v4().simple());
    for credential in ["", "x", "a b", "\"><script>alert(1)</script>", &made_up] {
        let answer = browser
            .post("/sign-in", &[("credential", credential)])
            .await;
        assert_eq!(answer.status, 401, "{credential}: {answer:?}");
        assert!(!answer.body.contains("<script>alert") && !answer.body.contains(&made_up));
        assert!(is_signed_out(&mut browser).await);
        browser.get("/sign-in").await;
    }
    assert_eq!(count_sessions(&app).await, 0);
}

#[tokio::test]
async fn the_sign_in_leads_nowhere_else() {
    let app = app_with_keys().await;
    let key = app.key("a", &TALKING).await;
    for next in [
        "https://evil.example/",
        "//evil.example",
        "/\\evil.example",
        "javascript:x",
        "",
    ] {
        let mut browser = app.page_client();
        browser.get("/sign-in").await;
        let form = [("credential", key.text.as_str()), ("next", next)];
        let answer = browser.post("/sign-in", &form).await;
        assert_eq!(answer.header("location"), "/conversations", "{next}");
    }
}

#[tokio::test]
async fn a_planted_cookie_never_becomes_a_session() {
    let app = app_with_keys().await;
    let key = app.key("a", &TALKING).await;
    // Somebody plants their own cookie, one of nobody and one in the form of a session.
    let mut attacker = app.page_client();
    attacker.get("/sign-in").await;
    let of_nobody = attacker.cookie.clone().expect("has one");
    let of_form = format!("anneal=anneals_{}", "A".repeat(43));
    for planted in [of_nobody, of_form] {
        let mut victim = app.page_client();
        victim.cookie = Some(planted.clone());
        victim.sign_in(&key.text).await;
        assert_ne!(victim.cookie.as_ref(), Some(&planted));
        let mut attacker = app.page_client();
        attacker.cookie = Some(planted);
        assert!(is_signed_out(&mut attacker).await);
        assert!(!is_signed_out(&mut victim).await);
    }
    // Two cookies of the name: one of them was planted for another path or host.
    let mut victim = app.sign_in_to_page(&key.text).await;
    let own = victim.cookie.clone().expect("has one");
    victim.cookie = Some(format!("{own}; anneal=planted"));
    assert_eq!(victim.get("/conversations").await.status, 400);
}

#[tokio::test]
async fn a_cookie_speaks_for_its_own_tenant_whatever_else_a_request_holds() {
    let app = app_with_keys().await;
    let (anna, berta) = (
        app.key("anna", &TALKING).await,
        app.key("berta", &TALKING).await,
    );
    let mut browser = app.sign_in_to_page(&anna.text).await;
    let form = [
        ("agent", "desk-of-anna"),
        ("message", ""),
        ("request_id", "r1"),
    ];
    assert_eq!(browser.post("/conversations", &form).await.status, 303);
    assert!(
        browser
            .get("/conversations")
            .await
            .body
            .contains("desk-of-anna")
    );
    let mut other = app.sign_in_to_page(&berta.text).await;
    assert!(
        !other
            .get("/conversations")
            .await
            .body
            .contains("desk-of-anna")
    );
    // A stolen cookie together with one's own key is refused, not mixed.
    let request = browser
        .request("GET", "/conversations")
        .header("authorization", format!("Bearer {}", berta.text));
    assert_eq!(browser.send(request).await.status, 400);
    // A form with the cookie of one and the token of the other.
    let (cookie, own) = (browser.cookie.clone(), other.csrf.clone());
    other.cookie = cookie;
    other.csrf = own;
    assert_eq!(other.post("/conversations", &form).await.status, 403);
}

#[tokio::test]
async fn a_revoked_key_ends_its_sessions_and_their_streams() {
    let app = app_with_keys().await;
    let (key, other) = (app.key("a", &TALKING).await, app.key("a", &TALKING).await);
    let mut browser = app.sign_in_to_page(&key.text).await;
    let mut neighbor = app.sign_in_to_page(&other.text).await;
    let made = browser
        .post("/conversations", &[("agent", "a"), ("request_id", "r1")])
        .await;
    let path = made
        .header("location")
        .split(['#', '?'])
        .next()
        .unwrap_or_default();
    let stream = browser
        .request("GET", &format!("{path}/events"))
        .header("accept", "text/event-stream");
    let mut stream = stream.send().await.expect("is answered");
    assert_eq!(stream.status(), 200);
    assert!(stream.chunk().await.expect("is read").is_some());
    let settings = StoreSettings::at(&app.url);
    let mut owner = OwnerConnection::connect(&settings).await.expect("connects");
    assert!(owner.revoke_key(key.id).await.expect("revokes"));
    eventually("the session has ended", async || {
        is_signed_out(&mut browser).await
    })
    .await;
    // The script is led to the sign-in, too, and programs get a problem.
    let request = browser
        .request("GET", "/conversations")
        .header("hx-request", "true");
    let answer = browser.send(request).await;
    assert_eq!(
        (answer.status, answer.header("hx-redirect")),
        (401, "/sign-in")
    );
    let request = browser.form("/conversations", format!("agent=a&csrf={}", browser.csrf));
    assert_eq!(browser.send(request).await.header("location"), "/sign-in");
    let ended = async { while stream.chunk().await.is_ok_and(|chunk| chunk.is_some()) {} };
    tokio::time::timeout(std::time::Duration::from_mins(1), ended)
        .await
        .expect("the stream ends");
    assert!(!is_signed_out(&mut neighbor).await);
    // The key cannot sign in again.
    browser.get("/sign-in").await;
    let again = browser.post("/sign-in", &[("credential", &key.text)]).await;
    assert_eq!(again.status, 401);
}

#[tokio::test]
async fn signing_out_ends_the_session_at_once() {
    let app = app_with_keys().await;
    let key = app.key("a", &TALKING).await;
    let mut browser = app.sign_in_to_page(&key.text).await;
    assert!(!is_signed_out(&mut browser).await);
    let mut thief = app.page_client();
    thief.cookie.clone_from(&browser.cookie);
    let answer = browser.post("/sign-out", &[]).await;
    assert_eq!(
        (answer.status, answer.header("location")),
        (303, "/sign-in?notice=signed-out")
    );
    assert_eq!(answer.header("clear-site-data"), "\"cache\"");
    assert_eq!(browser.cookie, None);
    assert!(is_signed_out(&mut thief).await);
    assert_eq!(count_sessions(&app).await, 0);
}

#[tokio::test]
async fn a_session_ends_with_its_time_and_a_visit_extends_it() {
    let app = app_with_keys().await;
    let key = app.key("a", &TALKING).await;
    let mut browser = app.sign_in_to_page(&key.text).await;
    change_sessions(
        &app,
        "update web_session set expires_ts = now() + interval '20 minutes'",
    )
    .await;
    // A script that looks every few seconds does not keep a session alive.
    let request = browser
        .request("GET", "/conversations")
        .header("hx-request", "true");
    assert_eq!(browser.send(request).await.status, 200);
    assert!(seconds_left(&app).await < 1_201.0);
    assert!(!is_signed_out(&mut browser).await);
    assert!(seconds_left(&app).await > 3_500.0);
    // Never beyond the end that its sign-in set.
    change_sessions(
        &app,
        "update web_session set expires_ts = now() + interval '5 minutes', ends_ts = now() + interval '6 minutes'",
    )
    .await;
    eventually("the visit is seen", async || {
        assert!(!is_signed_out(&mut browser).await);
        seconds_left(&app).await > 301.0
    })
    .await;
    assert!(seconds_left(&app).await < 361.0);
    change_sessions(&app, "update web_session set expires_ts = now()").await;
    eventually("it has ended", async || is_signed_out(&mut browser).await).await;
    // The next sign-in sweeps it away.
    browser.sign_in(&key.text).await;
    assert_eq!(count_sessions(&app).await, 1);
}

#[tokio::test]
async fn a_key_has_at_most_fifty_sessions() {
    let app = app_with_keys().await;
    let key = app.key("a", &TALKING).await;
    let mut oldest = app.sign_in_to_page(&key.text).await;
    let mut second = app.sign_in_to_page(&key.text).await;
    for _ in 0..49 {
        app.sign_in_to_page(&key.text).await;
    }
    assert_eq!(count_sessions(&app).await, 50);
    assert!(is_signed_out(&mut oldest).await);
    assert!(!is_signed_out(&mut second).await);
}

#[tokio::test]
async fn a_token_signs_in_with_its_own_verbs_until_it_expires() {
    let ed = Provider::new(Algorithm::EdDSA, "ed");
    let folder = Folder::new();
    let file = folder.file("jwks.json", &jwks(&[&ed]));
    let auth = AuthSettings {
        jwks_file: file.display().to_string(),
        audience: AUDIENCE.into(),
        ..AuthSettings::default()
    };
    let app = TestApp::with_page(auth, WebSettings::default()).await;
    app.tenant("anna").await;
    let reading = claims(&json!({"exp": seconds_from_now(600), "scope": "anneal.read"}));
    let mut browser = app.sign_in_to_page(&ed.token(&reading)).await;
    assert!(!is_signed_out(&mut browser).await);
    let left = seconds_left(&app).await;
    assert!(left > 500.0 && left < 601.0, "{left}");
    let form = [("agent", "a"), ("request_id", "r1")];
    assert_eq!(browser.post("/conversations", &form).await.status, 403);
    let expired = claims(&json!({"exp": seconds_from_now(-600)}));
    browser.get("/sign-in").await;
    let refused = browser
        .post("/sign-in", &[("credential", &ed.token(&expired))])
        .await;
    assert_eq!(refused.status, 401);
}

#[tokio::test]
async fn where_callers_need_no_credential_the_page_asks_for_none() {
    let app = open_app().await;
    let mut browser = app.page_client();
    let page = browser.get("/conversations").await;
    assert_eq!(page.status, 200);
    // The cookie serves forms alone, and nothing is stored of it.
    assert!(cookie_value(&browser).starts_with("anneala_"));
    assert_eq!(count_sessions(&app).await, 0);
    assert!(!page.body.contains("Sign out"), "{}", page.body);
    let form = [("agent", "a"), ("request_id", "r1")];
    assert_eq!(browser.post("/conversations", &form).await.status, 303);
    assert_eq!(
        browser.get("/sign-in").await.header("location"),
        "/conversations"
    );
}

#[tokio::test]
async fn a_caller_without_the_verb_gets_a_page_that_says_so() {
    let app = app_with_keys().await;
    let key = app.key("a", &[Verb::Append]).await;
    let mut browser = app.sign_in_to_page(&key.text).await;
    let refused = browser.get("/conversations").await;
    assert_eq!(refused.status, 403);
    assert!(refused.body.contains("VERB_MISSING"), "{}", refused.body);
}
