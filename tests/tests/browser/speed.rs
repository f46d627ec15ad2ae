//! How fast pages are drawn, and what they weigh: a list of many conversations, and the X-ray of a
//! long one. In `make nightly` with the numbers that are promised; in the gate, whose build is not
//! optimized and whose cores are shared, with fewer rows and more time.

use std::time::Duration;

use anneal_testkit::{Browser, BrowserPage, Look, TestApp, gate_or_nightly};
use sqlx::AssertSqlSafe;

use crate::pages::start_open_app;

/// Most bytes of a page with everything that it loads, compressed.
const PAGE_BYTES: u64 = 150 * 1024;

/// Measurements of the browser since the page was asked for: the time of the server, the time
/// until something was drawn, and the compressed bytes of everything.
const MEASURE: &str = "
const [page] = performance.getEntriesByType('navigation');
const total = page.serverTiming.find(timing => timing.name === 'total');
const paint = performance.getEntriesByName('first-contentful-paint')[0];
const all = [page, ...performance.getEntriesByType('resource')];
return [
    total ? total.duration : -1,
    paint ? paint.startTime : -1,
    all.reduce((sum, entry) => sum + entry.encodedBodySize, 0),
]";

#[tokio::test]
async fn a_list_of_many_conversations_is_drawn_at_once() {
    let Some(browser) = Browser::start().await else {
        return;
    };
    let app = start_open_app().await;
    let count = gate_or_nightly(1_000, 10_000);
    app.conversation().await;
    let copies = format!(
        "insert into ai_conversation
         select (jsonb_populate_record(c, jsonb_build_object(
            'conversation_id', gen_random_uuid(), 'title', 'Conversation ' || n,
            'last_activity_ts', now() - n * interval '1 second', 'listed_ts', now() - n * interval '1 second'
         ))).*
         from ai_conversation as c, generate_series(1, {count}) as n"
    );
    run_sql(&app, copies).await;
    let page = browser.open(&app, "/conversations", Look::WIDE).await;
    assert_quick(&page, "/conversations").await;
}

#[tokio::test]
async fn the_xray_of_a_long_conversation_is_drawn_at_once() {
    let Some(browser) = Browser::start().await else {
        return;
    };
    let app = start_open_app().await;
    let count = gate_or_nightly(5_000, 100_000);
    let conversation = app.conversation().await;
    conversation.append("hello").await;
    let id = &conversation.id;
    // Message n has role 1 (user) if n is odd, and role 2 (assistant) if n is even. Messages 2k - 1
    // and 2k are turn k.
    let copies = format!(
        "insert into ai_message (tenant_id, conversation_id, message_id, role, turn, token_estimate, text_bytes, content,
            content_digest, content_bytes)
         select tenant_id, conversation_id, n, 2 - n % 2, (n + 1) / 2, token_estimate, text_bytes, content, content_digest,
            content_bytes
         from ai_message cross join generate_series(2, {count}) as n where conversation_id = '{id}';
         update ai_conversation set last_message_id = {count}, turn = {count} / 2 where conversation_id = '{id}'"
    );
    run_sql(&app, copies).await;
    let path = format!("/conversations/{id}/xray");
    let page = browser.open(&app, &path, Look::WIDE).await;
    assert_quick(&page, &path).await;
}

#[tokio::test]
async fn the_operators_page_is_drawn_at_once() {
    let Some(browser) = Browser::start().await else {
        return;
    };
    let app = start_open_app().await;
    app.conversation().await;
    let page = browser.open(&app, "/operations", Look::WIDE).await;
    assert_quick(&page, "/operations").await;
}

/// Asserts that the page, opened again with an empty cache, is within the limits.
async fn assert_quick(page: &BrowserPage, path: &str) {
    let (server, drawn) = gate_or_nightly(
        (Duration::from_secs(2), Duration::from_secs(5)),
        (Duration::from_millis(200), Duration::from_secs(1)),
    );
    // The first visit has opened connections of the server's pools.
    let uncached = serde_json::json!({ "cacheDisabled": true });
    page.devtools("Network.setCacheDisabled", uncached).await;
    page.visit(path).await;
    page.wait_until(
        "the page is drawn",
        "performance.getEntriesByName('first-contentful-paint').length",
    )
    .await;
    let measured = page.run(MEASURE).await;
    println!("{path}: [server ms, drawn ms, bytes] = {measured}");
    let measure = |index: usize| measured[index].as_f64().expect("a number");
    let millis = |limit: Duration| limit.as_secs_f64() * 1_000.0;
    assert!((0.0..=millis(server)).contains(&measure(0)), "{measured}");
    assert!((0.0..=millis(drawn)).contains(&measure(1)), "{measured}");
    assert!(
        (1.0..=PAGE_BYTES as f64).contains(&measure(2)),
        "{measured}"
    );
}

async fn run_sql(app: &TestApp, statements: String) {
    sqlx::raw_sql(AssertSqlSafe(statements))
        .execute(&mut app.db().await)
        .await
        .expect("the rows are inserted");
}
