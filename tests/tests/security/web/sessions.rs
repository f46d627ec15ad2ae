//! Sessions of people who have signed in to the page.

use anneal_core::caller::{Bound, BoundId, Verb};
use anneal_server::{AuthSettings, WebSettings};
use anneal_store::{OwnerConnection, StoreSettings};
use anneal_testkit::{Folder, HttpResponse, PageClient, TestApp, assert_refused, eventually, pb};
use jsonwebtoken::Algorithm;
use pb::{
    conversation_service_client::ConversationServiceClient,
    erasure_service_client::ErasureServiceClient,
};
use reqwest::header::HeaderValue;
use serde_json::json;
use sqlx::{Connection as _, PgConnection};
use tonic::Code;

use super::{TALKING, app_with_keys, open_app};
use crate::isolation::credentials::{AUDIENCE, Provider, claims, jwks, seconds_from_now};

/// The value of the cookie of the browser's session.
fn session_of(browser: &PageClient) -> String {
    let (_, value) = browser.session().expect("is signed in");
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
    let session = session_of(&browser);
    for header in ["cookie", "authorization"] {
        let value = match header {
            "cookie" => browser.cookie_header(),
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
    browser.get("/sign-in").await;
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
    let signed_in = app.sign_in_to_page(&key.text).await;
    let (name, own) = signed_in.session().expect("is signed in");
    // Somebody plants their own cookie for forms, and one in the form of a session.
    let mut attacker = app.page_client();
    attacker.get("/sign-in").await;
    let of_forms = attacker.cookies.clone();
    assert_eq!((of_forms.len(), attacker.session()), (1, None));
    let of_session = format!("anneals_{}", "A".repeat(43));
    let of_session = [(name.to_owned(), of_session)].into();
    for planted in [of_forms, of_session] {
        let mut victim = app.page_client();
        victim.cookies.clone_from(&planted);
        victim.sign_in(&key.text).await;
        let mut attacker = app.page_client();
        attacker.cookies = planted;
        assert!(is_signed_out(&mut attacker).await);
        assert!(!is_signed_out(&mut victim).await);
    }
    // The planted secret of forms makes no token for the forms of a session.
    let mut victim = app.sign_in_to_page(&key.text).await;
    victim.cookies.extend(attacker.cookies.clone());
    let body = format!("agent=a&request_id=r1&csrf={}", attacker.csrf);
    let request = victim.form("/conversations", body);
    assert_eq!(victim.send(request).await.status, 403);
    // Two cookies of a name: one of them was planted for another path or host. Both are removed.
    for value in [own, "planted"] {
        let mut victim = app.sign_in_to_page(&key.text).await;
        let request = victim
            .request("GET", "/conversations")
            .header("cookie", format!("{name}={value}"));
        assert_eq!(victim.send(request).await.status, 400, "{value}");
        assert!(victim.cookies.is_empty(), "{value}");
    }
}

#[tokio::test]
async fn bytes_of_other_cookies_do_not_hide_a_session() {
    let app = app_with_keys().await;
    let key = app.key("a", &TALKING).await;
    let mut browser = app.sign_in_to_page(&key.text).await;
    let mut cookies = b"other=\xe9\xff; ".to_vec();
    cookies.extend(browser.cookie_header().into_bytes());
    let cookies = HeaderValue::from_bytes(&cookies).expect("is a header");
    browser.cookies.clear();
    let request = browser
        .request("GET", "/conversations")
        .header("cookie", cookies);
    assert_eq!(browser.send(request).await.status, 200);
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
    other.cookies.clone_from(&browser.cookies);
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
    assert_eq!(count_sessions(&app).await, 2);
    assert!(owner.revoke_key(key.id).await.expect("revokes"));
    assert_eq!(count_sessions(&app).await, 1);
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
    let answer = browser.send(request).await;
    assert_eq!(answer.header("location"), "/sign-in?next=%2Fconversations");
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
    thief.cookies.clone_from(&browser.cookies);
    let answer = browser.post("/sign-out", &[]).await;
    assert_eq!(
        (answer.status, answer.header("location")),
        (303, "/sign-in?notice=signed-out")
    );
    let cleared = answer.header("clear-site-data");
    assert_eq!(cleared, "\"cache\", \"storage\"");
    assert_eq!(browser.session(), None);
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
    eventually("a visit extends the session", async || {
        assert!(!is_signed_out(&mut browser).await);
        seconds_left(&app).await > 3_500.0
    })
    .await;
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
    // Workers sweep, too.
    change_sessions(&app, "update web_session set expires_ts = now()").await;
    let deleted = app.store.delete_expired_web_sessions(10).await;
    assert_eq!(deleted.expect("deletes"), 1);
    assert_eq!(count_sessions(&app).await, 0);
}

#[tokio::test]
async fn a_session_ends_when_its_key_is_bound_to_something_else() {
    let app = app_with_keys().await;
    let bound = |id| Bound::User(BoundId::new(id).expect("an id"));
    let free = app.key("a", &TALKING).await;
    let annas = app.bound_key("a", &TALKING, bound("anna")).await;
    let rebind = "update api_key set bound_kind = 1, bound_id = $2 where key_id = $1";
    for (key, to) in [(&annas, "bert"), (&free, "anna")] {
        let mut browser = app.sign_in_to_page(&key.text).await;
        assert!(!is_signed_out(&mut browser).await);
        sqlx::query(rebind)
            .bind(key.id)
            .bind(to)
            .execute(&mut app.db().await)
            .await
            .expect("rebinds");
        eventually("the session has ended", async || {
            is_signed_out(&mut browser).await
        })
        .await;
    }
}

#[tokio::test]
async fn the_erasure_of_a_tenant_ends_its_sessions() {
    let app = app_with_keys().await;
    let verbs = [Verb::Read, Verb::Admin];
    let (key, other) = (app.key("a", &verbs).await, app.key("b", &verbs).await);
    let mut browser = app.sign_in_to_page(&key.text).await;
    let mut neighbor = app.sign_in_to_page(&other.text).await;
    let ask = pb::EraseTenantRequest {
        confirm_tenant: "a".into(),
        ..Default::default()
    };
    let channel = app.authorized_channel(&format!("Bearer {}", key.text));
    ErasureServiceClient::new(channel)
        .erase_tenant(ask)
        .await
        .expect("begins");
    app.run_erasures().await;
    assert_eq!(count_sessions(&app).await, 1);
    eventually("the session has ended", async || {
        is_signed_out(&mut browser).await
    })
    .await;
    assert!(!is_signed_out(&mut neighbor).await);
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
    eventually("the oldest session has ended", async || {
        is_signed_out(&mut oldest).await
    })
    .await;
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
    // The provider's key is withdrawn.
    let next = Provider::new(Algorithm::EdDSA, "next");
    folder.file("jwks.json", &jwks(&[&next]));
    eventually("the session has ended", async || {
        is_signed_out(&mut browser).await
    })
    .await;
}

#[tokio::test]
async fn where_callers_need_no_credential_the_page_asks_for_none() {
    let app = open_app().await;
    let mut browser = app.page_client();
    let page = browser.get("/conversations").await;
    assert_eq!(page.status, 200);
    // The cookie serves forms alone, and nothing is stored of it.
    assert_eq!((browser.cookies.len(), browser.session()), (1, None));
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
