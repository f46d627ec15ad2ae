//! The X-ray as a person uses it: messages open beside their summaries, the strip follows the keys,
//! the scrubber shows earlier contexts, and dead jobs run again.

use anneal_testkit::{Browser, Look, key, pb, user};

use crate::pages::{create_full_conversation, kill_job, start_open_app};

#[tokio::test]
async fn a_person_looks_into_a_context() {
    let Some(browser) = Browser::start().await else {
        return;
    };
    let app = start_open_app().await;
    let conversation = create_full_conversation(&app).await;
    conversation.context().await;
    kill_job(&app, &conversation.id, "the model's answer was empty").await;
    for look in Look::all() {
        let path = format!("/conversations/{}/xray", conversation.id);
        let page = browser.open(&app, &path, look).await;
        // The eras and the messages before the boundary come by themselves.
        page.wait_for("[data-era]").await;
        page.wait_for("#strip [data-last=\"1\"]").await;
        page.press("a[data-run][tabindex=\"0\"]", key::END).await;
        page.wait_until(
            "the end of the strip has the focus",
            "document.activeElement === [...document.querySelectorAll('[data-strip] a')].at(-1)",
        )
        .await;
        page.press_key("+").await;
        page.wait_until(
            "the strip is larger",
            "Number(document.querySelector('[data-strip]').getAttribute('viewBox').split(' ')[2]) < 1000",
        )
        .await;
        page.press_key(key::ENTER).await;
        page.wait_for("#detail [data-original]").await;
        page.run("const n = document.querySelector('#scrub [name=number]'); n.value = 2; n.dispatchEvent(new Event('input'))")
            .await;
        page.wait_for("#past [data-point=\"2\"]").await;
        page.wait_for_text("#jobs", "the model's answer was empty")
            .await;
        page.assert_no_foreign_request().await;
        page.assert_no_reported_error().await;
        page.assert_accessible().await;
    }
    let path = format!("/conversations/{}/xray", conversation.id);
    let page = browser.open(&app, &path, Look::WIDE).await;
    // A row of the table opens the message, too.
    page.wait_for("#strip [data-state=\"separated\"][data-last=\"1\"]")
        .await;
    page.run("document.querySelector('#strip details').open = true")
        .await;
    page.click("#strip td a[href$=\"/messages/1\"]").await;
    page.wait_for("#detail [data-original=\"1\"]").await;
    page.click("#jobs form[action$=\"/requeue\"] button").await;
    page.wait_for_text("#notices", "The job will run again")
        .await;
    assert_eq!(page.count("[data-job-state=\"dead\"]").await, 0);
}

#[tokio::test]
async fn merged_messages_are_shown_one_by_one_on_demand() {
    let Some(browser) = Browser::start().await else {
        return;
    };
    let app = start_open_app().await;
    let policy = pb::Policy {
        max_message_count: Some(0),
        ..Default::default()
    };
    let conversation = app.conversation_with_policy(policy).await;
    for n in 0..6 {
        let messages = (0..90).map(|m| user(&format!("hello {n} {m}"))).collect();
        let appended = conversation.append_all(messages).send().await;
        appended.expect("the messages are stored");
    }
    app.run_jobs_until_idle().await;
    let path = format!("/conversations/{}/xray", conversation.id);
    for look in Look::all() {
        let page = browser.open(&app, &path, look).await;
        page.wait_until(
            "the page is idle",
            "document.readyState === 'complete' && !document.querySelector('.htmx-request')",
        )
        .await;
        page.wait_for("#strip svg a[data-range]").await;
        // Larger and larger, until the messages of the view are loaded.
        page.run(
            "const larger = document.querySelector('#strip [data-zoom=in]');
            for (let n = 0; n < 5 && larger.isConnected; n += 1) larger.click();",
        )
        .await;
        page.wait_for("#strip svg[data-part]").await;
        assert_eq!(page.count("#strip svg a[data-range]").await, 0);
        page.assert_accessible().await;
        page.click("#strip [data-zoom=all]").await;
        page.wait_until_gone("#strip svg[data-part]").await;
        page.wait_for("#strip svg a[data-range]").await;
        // A run of several messages leads to its own strip.
        page.run("document.querySelector('#strip svg a[data-range]').dispatchEvent(new MouseEvent('click', { bubbles: true, cancelable: true }))")
            .await;
        page.wait_for("#strip svg[data-part]").await;
        page.assert_no_reported_error().await;
    }
}
