//! The harness sees what a page does, and what is wrong with it.

use std::net::Ipv4Addr;

use anneal_testkit::{Browser, Look, eventually};
use axum::{Router, response::Html, routing::get};
use tokio::net::TcpListener;

const GOOD: &str = r#"<!doctype html><html lang="en"><title>Good</title><main><h1>A page</h1>
<form action="/bad"><label>Name <input name="name"></label><button>Send</button></form>
<p id="colour">light</p><script>
if (matchMedia('(prefers-color-scheme: dark)').matches) colour.textContent = 'dark';
</script></main></html>"#;

/// A picture without a text, from another server.
const BAD: &str = r#"<!doctype html><html><title>Bad</title>
<img src="http://127.0.0.2:9/elsewhere.png"><p>text</p></html>"#;

#[tokio::test]
async fn a_page_is_read_used_and_judged() {
    let Some(browser) = Browser::start().await else {
        return;
    };
    let origin = serve_two_pages().await;
    let page = browser.open_at(&origin, "/", Look::WIDE.dark()).await;
    assert_eq!(page.title().await, "Good");
    assert_eq!(page.text("#colour").await, "dark");
    assert_eq!(page.run("return innerWidth").await, 1440);
    page.assert_accessible().await;
    page.assert_no_foreign_request().await;

    page.write("[name=name]", "Ada 阿达").await;
    page.click("button").await;
    page.wait_for_text("p", "text").await;
    assert!(page.path().await.starts_with("/bad?name=Ada"));
    let violations = page.find_violations().await.to_string();
    assert!(violations.contains("image-alt"), "{violations}");
    assert!(violations.contains("html-has-lang"), "{violations}");
    eventually("the browser reports the missing picture", async || {
        let errors = page.reported_errors().await;
        errors.iter().any(|error| error.contains("elsewhere.png"))
    })
    .await;
    let requests = page.requests().await;
    assert!(requests.contains(&"http://127.0.0.2:9/elsewhere.png".to_owned()));
}

#[tokio::test]
async fn scripts_can_be_off_and_two_windows_are_two_people() {
    let Some(browser) = Browser::start().await else {
        return;
    };
    let origin = serve_two_pages().await;
    let look = Look::NARROW.dark().without_scripts();
    let first = browser.open_at(&origin, "/", look).await;
    assert_eq!(first.text("#colour").await, "light");
    assert_eq!(first.run("return innerWidth").await, 390);
    first.run("document.cookie = 'name=first'").await;
    let second = browser.open_at(&origin, "/", Look::NARROW.dark()).await;
    assert_eq!(second.text("#colour").await, "dark");
    assert_eq!(second.run("return document.cookie").await, "");
    assert_eq!(first.run("return document.cookie").await, "name=first");
}

async fn serve_two_pages() -> String {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await;
    let listener = listener.expect("a free port");
    let address = listener.local_addr().expect("it is bound");
    let pages = Router::new()
        .route("/", get(async || Html(GOOD)))
        .route("/bad", get(async || Html(BAD)));
    tokio::spawn(async move { axum::serve(listener, pages).await });
    format!("http://{address}")
}
