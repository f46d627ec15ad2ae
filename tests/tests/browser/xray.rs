//! The X-ray as a person uses it: messages open beside their summaries, the strip follows the keys,
//! the scrubber shows earlier contexts, and dead jobs run again.

use anneal_testkit::{Browser, Look, key};

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
        // The eras come by themselves.
        page.wait_for("[data-era]").await;
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
    page.click("#jobs form[action$=\"/requeue\"] button").await;
    page.wait_for_text("#notices", "The job will run again")
        .await;
    assert_eq!(page.count("[data-job-state=\"dead\"]").await, 0);
}
