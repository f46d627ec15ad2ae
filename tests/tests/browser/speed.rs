//! How fast pages are drawn, and what they weigh: a list of many conversations, and the pages of a
//! long one. Also the memory of a server whose pages are open in many windows. In `make nightly` with the numbers that are promised; in the gate, whose build is not
//! optimized and whose cores are shared, with fewer rows and more time.

use std::time::Duration;

use anneal_testkit::{
    AnnealBinary, Browser, BrowserPage, Folder, Look, PageClient, TestApp, gate_or_nightly, prose,
};
use sqlx::AssertSqlSafe;

use crate::pages::start_open_app;

/// Most bytes of a page with everything that it loads, compressed.
const PAGE_BYTES: u64 = 150 * 1024;

/// Most memory of a server while many pages are open, in MiB. With 1,000 streams an optimized build
/// may have 128 (docs/performance.md).
const OPEN_PAGES_MIB: u64 = 200;

/// The binary `anneal`.
const BINARY: &str = env!("CARGO_BIN_EXE_anneal-under-test");

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
async fn the_pages_of_a_long_conversation_are_drawn_at_once() {
    let Some(browser) = Browser::start().await else {
        return;
    };
    let app = start_open_app().await;
    let count = gate_or_nightly(5_000, 100_000);
    let conversation = app.conversation().await;
    conversation.append("hello").await;
    lengthen(&app, &conversation.id, count).await;
    let path = format!("/conversations/{}", conversation.id);
    let page = browser.open(&app, &path, Look::WIDE).await;
    for suffix in ["", "/xray", "/what-if"] {
        assert_quick(&page, &format!("{path}{suffix}")).await;
    }
}

#[tokio::test]
async fn the_xray_of_a_long_conversation_with_a_checkpoint_is_drawn_at_once() {
    let Some(browser) = Browser::start().await else {
        return;
    };
    let app = start_open_app().await;
    let count = gate_or_nightly(5_000, 100_000);
    let conversation = app.conversation().await;
    conversation.append("hello").await;
    lengthen(&app, &conversation.id, count).await;
    let id = &conversation.id;
    let checkpoint = format!(
        "insert into ai_conversation_checkpoint (tenant_id, conversation_id, first_message_id, last_message_id,
            previous_message_id, summary, token_usage, kind, model, prompt_version, source_first_message_id, source_digest,
            tokens_before, tokens_after, generation, trigger_kind, focus, duration_ms)
         select tenant_id, conversation_id, 1, {count} - 50, null, 'They have greeted each other.', 280, 2, 'extractive', 1,
            1, '\\x00', 90000, 5000, 1, 2, '', 1
         from ai_conversation where conversation_id = '{id}'"
    );
    run_sql(&app, checkpoint).await;
    let path = format!("/conversations/{id}/xray");
    let page = browser.open(&app, &path, Look::WIDE).await;
    page.wait_for("#strip [data-state=\"checkpoint\"][data-first=\"1\"]")
        .await;
    // Fragments that the page fetches afterwards are not weighed here.
    for suffix in ["", "/strip", "/checkpoints"] {
        assert_quick(&page, &format!("{path}{suffix}")).await;
    }
}

/// Copies the conversation's only message until there are `count`.
async fn lengthen(app: &TestApp, id: &str, count: i64) {
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
    run_sql(app, copies).await;
}

#[tokio::test]
async fn open_pages_take_little_memory_of_the_server() {
    let count = gate_or_nightly(10, 100);
    let (app, folder) = (TestApp::start().await, Folder::new());
    let conversation = app.conversation().await;
    for _ in 0..30 {
        conversation.turn(&prose(0, 60), "noted").await;
    }
    let binary = AnnealBinary::new(BINARY, &folder, &app.url);
    let started = binary.try_server(&["web.enabled=true"]).await;
    let (server, _) = started.unwrap_or_else(|ended| panic!("it ended: {:#?}", ended.lines()));
    let address = server.http_client().await.address();
    let path = format!("/conversations/{}", conversation.id);
    let mut open = Vec::with_capacity(count);
    for _ in 0..count {
        let mut browser = PageClient::at(address);
        for page in [&path, &format!("{path}/xray"), &format!("{path}/what-if")] {
            let answer = browser.get(page).await;
            assert_eq!(answer.status, 200, "{page}: {answer:?}");
        }
        // As the script does while the window is open.
        let events = browser.request("GET", &format!("{path}/events"));
        let events = events.header("accept", "text/event-stream").send().await;
        let events = events.expect("the server answers");
        assert_eq!(events.status().as_u16(), 200, "{events:?}");
        open.push((browser, events));
    }
    let memory = server.peak_memory();
    println!("{} open pages: {memory} MiB at most", open.len());
    assert!(memory < OPEN_PAGES_MIB, "{memory} MiB");
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
