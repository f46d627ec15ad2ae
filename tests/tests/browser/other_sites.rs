//! Pages of other sites: their links arrive signed in, and they cannot frame a page.

use std::net::Ipv4Addr;

use anneal_core::caller::Verb;
use anneal_testkit::{Browser, Look, TestApp, eventually};
use axum::{Router, response::Html, routing::get};
use tokio::net::TcpListener;

use crate::pages::{start_app_with_keys, start_open_app};

/// Serves a page with this body under the name `localhost`, which is another site than the address
/// of an app. `/inner` can be framed. Returns the origin.
async fn serve(body: String) -> String {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await;
    let listener = listener.expect("a free port");
    let port = listener.local_addr().expect("it is bound").port();
    let page = format!("<!doctype html><html lang=\"en\"><title>Other</title>{body}</html>");
    let pages = Router::new()
        .route("/", get(async move || Html(page)))
        .route("/inner", get(async || Html("<main>inner</main>")));
    tokio::spawn(async move { axum::serve(listener, pages).await });
    format!("http://localhost:{port}")
}

fn origin_of(app: &TestApp) -> String {
    format!("http://{}", app.addresses.http)
}

#[tokio::test]
async fn a_link_of_another_site_arrives_signed_in_and_signs_nobody_out() {
    let Some(browser) = Browser::start().await else {
        return;
    };
    let app = start_app_with_keys().await;
    let key = app.key("a", &[Verb::Read, Verb::Append]).await;
    let link = format!("<a href=\"{}/conversations\">anneal</a>", origin_of(&app));
    let other = serve(link).await;
    for look in [Look::WIDE, Look::WIDE.without_scripts()] {
        let page = browser.open(&app, "/sign-in", look).await;
        page.sign_in(&key.text).await;
        page.session().goto(&other).await.expect("opens");
        page.click("a").await;
        page.wait_for(".who").await;
        assert_eq!(page.path().await, "/conversations");
        page.visit("/conversations").await;
        page.wait_for(".who").await;
    }
}

#[tokio::test]
async fn a_page_in_a_frame_stays_empty() {
    let Some(browser) = Browser::start().await else {
        return;
    };
    let app = start_open_app().await;
    let frames = format!(
        "<iframe src=\"/inner\"></iframe><iframe src=\"{}/conversations\"></iframe>",
        origin_of(&app)
    );
    let other = serve(frames).await;
    let page = browser.open_at(&other, "/", Look::WIDE).await;
    eventually("the browser refuses the frame", async || {
        let errors = page.reported_errors().await;
        errors.iter().any(|error| error.contains("frame-ancestors"))
    })
    .await;
    for (frame, count) in [(0, 1), (1, 0)] {
        let session = page.session();
        session.enter_frame(frame).await.expect("enters");
        assert_eq!(page.count("main").await, count, "frame {frame}");
        session.enter_parent_frame().await.expect("leaves");
    }
}
