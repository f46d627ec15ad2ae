//! The list as a person uses it: filter, open, rename, pin, archive, delete.

use anneal_testkit::{Browser, Look, ScriptedModel, TestApp, key, pb};

#[tokio::test]
async fn a_conversation_is_found_renamed_pinned_archived_and_deleted() {
    let Some(browser) = Browser::start().await else {
        return;
    };
    let model = ScriptedModel::saying("Hello.").await;
    for look in Look::all() {
        let app = TestApp::with_open_page_and_scripted_model(&model).await;
        for n in 0..60 {
            let ask = pb::CreateConversationRequest {
                agent_id: "support".into(),
                title: format!("Note {n}"),
                ..Default::default()
            };
            app.conversation_with(ask).await;
        }
        let page = browser.open(&app, "/conversations", look).await;
        assert_eq!(page.count("#rows [data-id]").await, 50);
        page.run("scrollTo(0, document.documentElement.scrollHeight)")
            .await;
        page.wait_until(
            "older conversations come by themselves",
            "document.querySelectorAll('#rows [data-id]').length === 60",
        )
        .await;
        page.press_key("/").await;
        page.write("#filter", "note 17").await;
        page.press("#filter", "\n").await;
        page.wait_until(
            "one conversation is left",
            "document.querySelectorAll('[data-id]').length === 1",
        )
        .await;
        page.click("#rows [data-id]").await;
        page.click(".talk-head details > summary").await;
        page.write("[action$='/rename'] [name=title]", "港口 مرفأ")
            .await;
        page.click("[action$='/rename'] button").await;
        page.wait_for_text("h1", "港口 مرفأ").await;
        page.wait_for_text("#notices", "Saved").await;
        page.wait_until(
            "the notice leaves the address",
            "!location.search.includes('notice')",
        )
        .await;
        assert_eq!(
            page.run("return scrollY").await,
            0,
            "the notice is in sight"
        );
        let lang = page.attribute("h1", "lang").await;
        assert_eq!(lang.as_deref(), Some("zh"));
        page.click(".talk-head details > summary").await;
        page.click("[action$='/pin'] button").await;
        page.wait_for_text("#notices", "Saved").await;
        page.visit("/conversations").await;
        page.wait_for_text("[data-id]", "港口 مرفأ").await;
        page.click("[data-id]").await;
        page.click(".talk-head details > summary").await;
        page.click("[action$='/archive'] button").await;
        page.wait_for_text("#notices", "archived").await;
        page.click(".talk-head details > summary").await;
        page.click("a[href$='/delete']").await;
        page.wait_for_text("main", "This cannot be undone").await;
        page.assert_accessible().await;
        page.click("[action$='/delete'] button").await;
        page.wait_for_text("#notices", "deleted").await;
        assert!(!page.source().await.contains("港口"));
        page.assert_no_foreign_request().await;
    }
}

#[tokio::test]
async fn single_keys_can_be_turned_off_and_times_are_local() {
    let Some(browser) = Browser::start().await else {
        return;
    };
    let model = ScriptedModel::saying("Hello.").await;
    let app = TestApp::with_open_page_and_scripted_model(&model).await;
    app.conversation().await;
    let page = browser.open(&app, "/conversations", Look::WIDE).await;
    page.press_key("/").await;
    page.wait_until(
        "the filter has the focus",
        "document.activeElement.id === 'filter'",
    )
    .await;
    page.press("#filter", key::ESCAPE).await;
    page.click("#keys").await;
    page.click("#single-keys").await;
    page.click("#help form button").await;
    page.press_key("/").await;
    page.press_key("?").await;
    assert_eq!(page.count("dialog[open]").await, 0);
    assert_eq!(
        page.run("return document.activeElement.id === 'filter'")
            .await,
        false
    );
    page.reload().await;
    page.wait_until(
        "the choice is kept",
        "!document.getElementById('single-keys').checked",
    )
    .await;
    let time = page.attribute("[data-id] time", "title").await;
    assert!(time.is_some_and(|time| time.ends_with('Z')));
    assert!(!page.text("[data-id] time").await.contains("UTC"));
    page.assert_accessible().await;
}
