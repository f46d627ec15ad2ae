//! The essentials without scripts: list, read, send, rename, delete.

use anneal_testkit::{Browser, Look, ScriptedModel, TestApp};

#[tokio::test]
async fn a_person_without_scripts_talks_renames_and_deletes() {
    let Some(browser) = Browser::start().await else {
        return;
    };
    let model = ScriptedModel::saying("An answer.").await;
    let app = TestApp::with_open_page_and_scripted_model(&model).await;
    for look in [Look::NARROW, Look::WIDE] {
        let page = browser
            .open(&app, "/conversations", look.without_scripts())
            .await;
        page.click("details.new > summary").await;
        page.write("[action='/conversations'] [name=agent]", "support")
            .await;
        page.write("[action='/conversations'] textarea", "A question")
            .await;
        page.click("[action='/conversations'] button").await;
        // The page looks again until the answer is there.
        page.wait_for_text("[data-message='2']", "An answer.").await;
        page.write("#composer textarea", "Another one").await;
        page.click("#composer button").await;
        page.wait_for_text("[data-message='4']", "An answer.").await;
        page.click(".talk-head details > summary").await;
        page.write("[action$='/rename'] [name=title]", "Renamed")
            .await;
        page.click("[action$='/rename'] button").await;
        page.wait_for_text("h1", "Renamed").await;
        page.visit("/conversations").await;
        page.wait_for_text("[data-id]", "Renamed").await;
        assert!(page.text("[data-id] time").await.ends_with("UTC"));
        page.click("[data-id]").await;
        page.click(".talk-head details > summary").await;
        page.click("a[href$='/delete']").await;
        page.click("[action$='/delete'] button").await;
        page.wait_for_text("#notices", "deleted").await;
        assert_eq!(page.count("[data-id]").await, 0);
    }
}
