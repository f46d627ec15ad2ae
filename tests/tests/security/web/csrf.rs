//! Forms that the page has not shown to their sender are refused. Nothing changes by opening a page.

use anneal_testkit::{HttpResponse, PageClient};
use reqwest::header::{HeaderMap, HeaderName};

use super::{TALKING, app_with_keys, open_app};

/// A new conversation, the form that each test sends.
const FORM: &str = "agent=desk&message=&request_id=r1";

/// Sends the form with these headers, and this token if there is one. Returns the status.
async fn post(browser: &mut PageClient, headers: &[(&str, &str)], token: Option<&str>) -> u16 {
    let body = match token {
        Some(token) => format!("{FORM}&csrf={token}"),
        None => FORM.to_owned(),
    };
    let mut replaced = HeaderMap::new();
    for (name, value) in headers {
        let name = HeaderName::from_bytes(name.as_bytes()).expect("a name");
        replaced.insert(name, value.parse().expect("a value"));
    }
    let request = browser.form("/conversations", body).headers(replaced);
    browser.send(request).await.status
}

#[tokio::test]
async fn a_form_needs_the_token_of_its_senders_cookie() {
    let app = app_with_keys().await;
    let (anna, berta) = (app.key("a", &TALKING).await, app.key("b", &TALKING).await);
    let mut browser = app.sign_in_to_page(&anna.text).await;
    let other = app.sign_in_to_page(&berta.text).await;
    let token = browser.csrf.clone();
    assert_eq!(post(&mut browser, &[], None).await, 403);
    assert_eq!(post(&mut browser, &[], Some("")).await, 403);
    assert_eq!(post(&mut browser, &[], Some(&other.csrf)).await, 403);
    assert_eq!(
        post(&mut browser, &[("x-csrf-token", "x")], Some(&token)).await,
        403
    );
    let listed = browser.get("/conversations").await;
    assert!(!listed.body.contains("desk"), "{}", listed.body);
    assert_eq!(post(&mut browser, &[], Some(&token)).await, 303);
    // A new session has a new token: a page that was open before is out of date.
    browser.sign_in(&anna.text).await;
    assert_eq!(post(&mut browser, &[], Some(&token)).await, 403);
}

#[tokio::test]
async fn a_form_of_another_site_is_refused_even_with_a_valid_token() {
    let app = open_app().await;
    let mut browser = app.page_client();
    browser.get("/conversations").await;
    let token = browser.csrf.clone();
    for site in ["cross-site", "same-site", ""] {
        let status = post(&mut browser, &[("sec-fetch-site", site)], Some(&token)).await;
        assert_eq!(status, 403, "{site}");
    }
    assert_eq!(post(&mut browser, &[], Some(&token)).await, 303);
    // An older browser sends the origin alone.
    for (origin, expected) in [
        (format!("http://{}", app.addresses.http), 303),
        ("http://evil.example".to_owned(), 403),
        ("null".to_owned(), 403),
    ] {
        let request = app
            .http_client()
            .request("POST", "/conversations")
            .header("cookie", browser.cookie_header())
            .header("content-type", "application/x-www-form-urlencoded")
            .header("origin", &origin)
            .body(format!("{FORM}&csrf={token}"));
        let answer = browser.send(request).await;
        // A redirect is followed by this client, and shows the conversation.
        let expected = if expected == 303 { 200 } else { expected };
        assert_eq!(answer.status, expected, "{origin}");
    }
}

#[tokio::test]
async fn a_form_that_signs_in_needs_the_token_of_a_cookie_too() {
    let app = app_with_keys().await;
    let key = app.key("a", &TALKING).await;
    let body = format!("credential={}", key.text);
    let browser = app.page_client();
    let without_cookie = browser.form("/sign-in", body.clone());
    let mut browser = app.page_client();
    assert_eq!(browser.send(without_cookie).await.status, 403);
    browser.get("/sign-in").await;
    let without_token = browser.form("/sign-in", body);
    let refused = browser.send(without_token).await;
    assert_eq!(refused.status, 403);
    assert_eq!(refused.header("set-cookie"), "");
    browser.sign_in(&key.text).await;
    // Nobody else can sign a person out.
    let sign_out = browser.form("/sign-out", String::new());
    assert_eq!(browser.send(sign_out).await.status, 403);
    assert_eq!(browser.get("/conversations").await.status, 200);
}

#[tokio::test]
async fn a_form_in_another_form_than_a_browser_sends_is_refused() {
    let app = open_app().await;
    let mut browser = app.page_client();
    browser.get("/conversations").await;
    for kind in [
        "text/plain",
        "multipart/form-data; boundary=x",
        "application/json",
    ] {
        let request = browser
            .request("POST", "/conversations")
            .header("content-type", kind)
            .body(format!("{FORM}&csrf={}", browser.csrf));
        assert_eq!(browser.send(request).await.status, 415, "{kind}");
    }
    let listed = HttpResponse::send(
        app.http_client()
            .request("GET", "/api/agents/desk/sessions"),
    );
    assert_eq!(listed.await.json()["sessions"], serde_json::json!([]));
}
