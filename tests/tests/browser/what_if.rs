//! What if: strip and bill follow the controls, and the settings are stored on demand only.

use anneal_testkit::{Browser, Look, key};

use crate::pages::{create_full_conversation, start_open_app};

#[tokio::test]
async fn strip_and_bill_follow_the_controls_until_they_are_stored() {
    let Some(browser) = Browser::start().await else {
        return;
    };
    let app = start_open_app().await;
    let conversation = create_full_conversation(&app).await;
    let path = format!("/conversations/{}/what-if", conversation.id);
    for look in Look::all() {
        let page = browser.open(&app, &path, look).await;
        page.write(".controls [name=hot_zone_radius]", "1").await;
        page.wait_for("#result [data-differs=\"hot_zone_radius\"]")
            .await;
        page.write(".controls [name=budget]", "1").await;
        page.wait_for_text("#result [role=alert]", "Budget in tokens")
            .await;
        page.wait_for("[name=budget][aria-invalid=true][aria-describedby=r-budget]")
            .await;
        page.assert_accessible().await;
        page.assert_no_foreign_request().await;
        page.assert_no_reported_error().await;
    }
    // Enter tries, and stores nothing.
    let page = browser.open(&app, &path, Look::WIDE).await;
    page.write(".controls [name=hot_zone_radius]", "1").await;
    page.press(".controls [name=hot_zone_radius]", key::ENTER)
        .await;
    page.wait_until(
        "the page is tried",
        "location.search.includes('hot_zone_radius=1')",
    )
    .await;
    page.wait_for("#result [data-differs=\"hot_zone_radius\"]")
        .await;
    let policy = conversation.conversation().await.policy;
    assert_eq!(policy.expect("a policy").hot_zone_radius, None);
    page.visit(&path).await;
    page.write(".controls [name=hot_zone_radius]", "1").await;
    page.wait_for("#result [data-differs=\"hot_zone_radius\"]")
        .await;
    page.click("[data-save]").await;
    page.wait_for_text("#notices", "Saved").await;
    let policy = conversation.conversation().await.policy;
    assert_eq!(policy.expect("a policy").hot_zone_radius, Some(1));
}
