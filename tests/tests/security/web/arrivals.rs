//! A person follows a link of another site. Browsers send no cookie with that request.

use anneal_testkit::{HttpResponse, PageAnswer, PageClient};

use super::{TALKING, app_with_keys, open_app};

/// Opens a page as a browser does that follows a link of another site.
async fn arrive(browser: &mut PageClient, path: &str) -> PageAnswer {
    let kept = std::mem::take(&mut browser.cookies);
    let mut request = browser.request("GET", path);
    request = replace_site(request, "cross-site");
    let answer = browser.send(request).await;
    assert!(browser.cookies.is_empty(), "{path}: {answer:?}");
    browser.cookies = kept;
    answer
}

/// The same request, which comes from this site.
fn replace_site(request: reqwest::RequestBuilder, site: &str) -> reqwest::RequestBuilder {
    let replaced = [("sec-fetch-site", site)].map(|(name, value)| {
        let name = reqwest::header::HeaderName::from_static(name);
        (name, value.parse().expect("a value"))
    });
    request.headers(replaced.into_iter().collect())
}

/// Whether it is the page that opens itself again.
fn is_arrival(answer: &PageAnswer) -> bool {
    answer.status == 200 && answer.body.contains("http-equiv=\"refresh\" content=\"0\"")
}

#[tokio::test]
async fn a_link_of_another_site_leads_to_the_page_and_signs_nobody_out() {
    let app = app_with_keys().await;
    let key = app.key("a", &TALKING).await;
    let mut browser = app.sign_in_to_page(&key.text).await;
    let cookies = browser.cookies.clone();
    for path in ["/", "/conversations", "/sign-in", "/operations"] {
        let answer = arrive(&mut browser, path).await;
        assert!(is_arrival(&answer), "{path}: {answer:?}");
        assert!(!answer.body.contains("<script"), "{path}");
        assert_eq!(answer.header("cache-control"), "no-store", "{path}");
    }
    assert_eq!(browser.cookies, cookies);
    // The page opens itself again, from this site.
    assert_eq!(browser.get("/conversations").await.status, 200);
    // Somebody who has no cookie is led to the sign-in then.
    let mut stranger = app.page_client();
    assert_eq!(stranger.get("/conversations").await.status, 303);
}

#[tokio::test]
async fn without_sign_in_the_token_of_an_open_page_stays_valid() {
    let app = open_app().await;
    let mut browser = app.page_client();
    browser.get("/conversations").await;
    assert!(is_arrival(&arrive(&mut browser, "/conversations").await));
    let form = [("agent", "a"), ("request_id", "r1")];
    assert_eq!(browser.post("/conversations", &form).await.status, 303);
}

#[tokio::test]
async fn only_a_person_who_opens_a_page_gets_it() {
    let app = app_with_keys().await;
    let key = app.key("a", &TALKING).await;
    let browser = app.page_client();
    // A program, a script, and somebody with an authorization header.
    for (name, value, status) in [
        ("accept", "application/json".to_owned(), 401),
        ("hx-request", "true".to_owned(), 401),
        ("authorization", format!("Bearer {}", key.text), 200),
    ] {
        let header = reqwest::header::HeaderName::from_static(name);
        let value = value.parse().expect("a value");
        let request = replace_site(browser.request("GET", "/conversations"), "cross-site");
        let request = request.headers([(header, value)].into_iter().collect());
        let answer = app.page_client().send(request).await;
        assert_eq!(answer.status, status, "{name}: {answer:?}");
        assert!(!is_arrival(&answer), "{name}");
    }
}

#[tokio::test]
async fn a_cookie_is_set_by_a_page_with_a_form_alone() {
    let app = open_app().await;
    let mut browser = app.page_client();
    let page = browser.get("/conversations").await;
    assert!(page.header("set-cookie").contains("SameSite=Strict"));
    let made = browser
        .post("/conversations", &[("agent", "a"), ("request_id", "r1")])
        .await;
    let path = made.header("location").to_owned();
    let path = path.split(['?', '#']).next().expect("a path");
    let asset = page
        .body
        .split('"')
        .find(|text| text.starts_with("/assets/"));
    for path in [
        "/",
        asset.expect("the page names its files"),
        &format!("{path}/messages/1/media/0"),
        &format!("{path}/no/such/page"),
    ] {
        let answer = app.page_client().get(path).await;
        assert_eq!(answer.header("set-cookie"), "", "{path}: {answer:?}");
    }
    let request = app.page_client().request("GET", &format!("{path}/events"));
    let stream = request.send().await.expect("is answered");
    assert_eq!(stream.status(), 200);
    assert!(!stream.headers().contains_key("set-cookie"));
    assert_eq!(stream.headers()["cache-control"], "no-store");
    // Where people sign in, that is the form to sign in.
    let app = app_with_keys().await;
    for (path, sets) in [("/conversations", false), ("/sign-in", true)] {
        let answer = app.page_client().get(path).await;
        assert_eq!(answer.headers.contains_key("set-cookie"), sets, "{path}");
        let request = app.http_client().request("GET", path);
        let program = HttpResponse::send(request).await;
        assert_eq!(program.header("set-cookie").is_empty(), !sets, "{path}");
    }
}
