//! The operator's page: its figures are those of the RPCs and of the metrics, it follows them, and
//! only operators see it.

use anneal_core::caller::Verb;
use anneal_testkit::{Browser, BrowserPage, Look, pb};

use crate::pages::{create_full_conversation, kill_job, start_app_with_keys, start_open_app};

#[tokio::test]
async fn the_figures_are_those_of_the_rpcs() {
    let Some(browser) = Browser::start().await else {
        return;
    };
    let app = start_open_app().await;
    let conversation = create_full_conversation(&app).await;
    kill_job(&app, &conversation.id, "the model's answer was empty").await;
    for look in Look::all() {
        let page = browser.open(&app, "/operations", look).await;
        let stats = app
            .operators()
            .get_installation_stats(pb::GetInstallationStatsRequest {})
            .await
            .expect("figures")
            .into_inner();
        let tenant = &stats.tenants[0];
        let row = format!("[data-tenant=\"{}\"]", tenant.name);
        assert!(tenant.messages >= 24, "{tenant:?}");
        assert_figure(&page, &format!("{row} [data-messages]"), tenant.messages).await;
        assert_figure(&page, &format!("{row} [data-bytes]"), tenant.content_bytes).await;
        let mut operators = app.operators();
        let queues = operators.get_queue_stats(pb::GetQueueStatsRequest {});
        let queues = queues.await.expect("figures").into_inner().queues;
        let queue = "[data-queue=\"checkpoint\"]";
        let checkpoints = queues
            .iter()
            .find(|queue| queue.kind() == pb::JobKind::Checkpoint)
            .expect("each kind has figures");
        assert_eq!(checkpoints.dead, 1);
        assert_figure(&page, &format!("{queue} [data-dead]"), checkpoints.dead).await;
        assert_figure(&page, "[data-schema]", stats.schema_version).await;
        let dead = page
            .text(&format!("[data-dead-job=\"{}\"]", conversation.id))
            .await;
        assert!(dead.contains("the model's answer was empty"), "{dead}");
        let slow = page.count("[data-rpc=\"append_messages\"]").await;
        assert!(slow > 0, "an append is among the slow calls");
        page.assert_no_foreign_request().await;
    }
}

#[tokio::test]
async fn the_page_draws_the_metrics_and_follows_what_happens() {
    let Some(browser) = Browser::start().await else {
        return;
    };
    let app = start_open_app().await;
    let conversation = app.conversation().await;
    let page = browser.open(&app, "/operations", Look::WIDE).await;
    // The first sample is taken when the server starts, the next ones every ten seconds.
    page.wait_for("[data-chart=\"Memory\"] path.line-1").await;
    let memory = page.text("[data-line=\"of the process\"]").await;
    assert!(
        memory.ends_with(" MB") || memory.ends_with(" GB"),
        "{memory}"
    );
    kill_job(&app, &conversation.id, "later").await;
    // The page fetches them by itself.
    let row = format!("[data-dead-job=\"{}\"]", conversation.id);
    page.wait_for_text(&row, "later").await;
    page.wait_for("[data-chart=\"Calls\"] path.line-1").await;
    page.assert_no_reported_error().await;
}

#[tokio::test]
async fn figures_stand_while_a_person_reads_them_closely() {
    let Some(browser) = Browser::start().await else {
        return;
    };
    let app = start_open_app().await;
    let conversation = create_full_conversation(&app).await;
    kill_job(&app, &conversation.id, "the model's answer was empty").await;
    let page = browser.open(&app, "/operations", Look::WIDE).await;
    // Requests are sent, or not, before the event has ended. In a hidden window the page asks for
    // nothing by itself.
    page.run(
        "Object.defineProperty(document, 'hidden', { value: true });
        window.sent = 0;
        document.addEventListener('htmx:beforeSend', () => { window.sent += 1; });
        window.ask = () => {
            const before = window.sent;
            document.body.dispatchEvent(new Event('refresh'));
            return window.sent - before;
        };",
    )
    .await;
    for (close, open) in [
        (
            "document.querySelector('#pause input').checked = true",
            "document.querySelector('#pause input').checked = false",
        ),
        (
            "document.querySelector('#figures [tabindex=\"0\"]').focus()",
            "document.activeElement.blur()",
        ),
        (
            "getSelection().selectAllChildren(document.querySelector('#queues'))",
            "getSelection().removeAllRanges()",
        ),
    ] {
        page.run(close).await;
        assert_eq!(page.run("return window.ask()").await, 0, "{close}");
        page.run(open).await;
        assert_eq!(page.run("return window.ask()").await, 1, "{open}");
        page.wait_until(
            "the figures are fetched",
            "!document.querySelector('.htmx-request')",
        )
        .await;
    }
    // A dead job leads to its X-ray.
    page.click(&format!("[data-dead-job=\"{}\"] a", conversation.id))
        .await;
    page.wait_for("[data-strip]").await;
}

#[tokio::test]
async fn only_operators_see_the_page() {
    let Some(browser) = Browser::start().await else {
        return;
    };
    let app = start_app_with_keys().await;
    let reader = app
        .key("acme", &[Verb::Read, Verb::Append, Verb::Admin])
        .await;
    let operator = app.key("acme", &[Verb::Read, Verb::Operator]).await;
    let page = browser.open(&app, "/sign-in", Look::NARROW).await;
    page.sign_in(&reader.text).await;
    page.visit("/operations").await;
    assert_eq!(page.count("#figures").await, 0);
    assert_eq!(page.count("nav a[href='/operations']").await, 0);
    let refusal = page.text("main").await;
    assert!(refusal.contains("VERB_MISSING"), "{refusal}");
    page.assert_accessible().await;

    let page = browser.open(&app, "/sign-in", Look::NARROW).await;
    page.sign_in(&operator.text).await;
    page.visit("/operations").await;
    page.wait_for("nav a[href='/operations'][aria-current=page]")
        .await;
    page.wait_for("#figures [data-tenant=\"acme\"]").await;
}

#[tokio::test]
async fn the_figures_need_no_scripts() {
    let Some(browser) = Browser::start().await else {
        return;
    };
    let app = start_open_app().await;
    let conversation = app.conversation().await;
    let look = Look::WIDE.without_scripts();
    let page = browser.open(&app, "/operations", look).await;
    kill_job(&app, &conversation.id, "later").await;
    page.click(".head a.button").await;
    let row = format!("[data-dead-job=\"{}\"]", conversation.id);
    page.wait_for_text(&row, "later").await;
}

/// Asserts that the element's only `data-` attribute has this value.
async fn assert_figure(page: &BrowserPage, css: &str, value: i64) {
    let name = css.rsplit_once('[').expect("an attribute").1;
    let name = name.trim_end_matches(']');
    let shown = page.attribute(css, name).await;
    assert_eq!(shown, Some(value.to_string()), "{css}");
}
