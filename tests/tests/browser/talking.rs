//! A person talks: the answer comes word by word, is stopped, made anew, and two windows agree.

use anneal_testkit::{Browser, BrowserPage, Gate, Look, Say, Script, ScriptedModel, TestApp, key};

/// A model whose answers come word by word, as the gate opens. The first piece is the role alone.
async fn gated_model() -> (Gate, ScriptedModel) {
    let gate = Gate::default();
    let model = ScriptedModel::start({
        let gate = gate.clone();
        move |request| {
            let number = format!("**number {}**", request.nth + 1);
            Script::says(request, Say::texts(&["One ", "two ", &number])).gated(&gate)
        }
    })
    .await;
    (gate, model)
}

/// Begins a conversation with this message.
async fn begin(page: &BrowserPage, message: &str) {
    page.click("details.new > summary").await;
    page.write("[action='/conversations'] [name=agent]", "support")
        .await;
    page.write("[action='/conversations'] textarea", message)
        .await;
    page.click("[action='/conversations'] button").await;
}

#[tokio::test]
async fn an_answer_streams_is_loaded_again_in_the_middle_and_goes_on() {
    let Some(browser) = Browser::start().await else {
        return;
    };
    for look in Look::all() {
        let (gate, model) = gated_model().await;
        let app = TestApp::with_open_page_and_scripted_model(&model).await;
        let page = browser.open(&app, "/conversations", look).await;
        begin(&page, "Tell me.\nAll of it.").await;
        page.wait_for("#live").await;
        gate.open(2);
        page.wait_for_text("#live", "One").await;
        page.reload().await;
        page.wait_for_text("#live", "One").await;
        gate.open_for_ever();
        page.wait_until_gone("#live").await;
        page.wait_for_text("article.assistant strong", "number 1")
            .await;
        assert_eq!(page.count("[data-message]").await, 2);
        page.write("#composer textarea", "And more?").await;
        page.press("#composer textarea", &[key::CONTROL, key::ENTER].concat())
            .await;
        page.wait_for_text("[data-message='4'] strong", "number 2")
            .await;
        page.click("[data-message='4'] [action$='/regenerate'] button")
            .await;
        page.wait_for_text("[data-message='5'] strong", "number 3")
            .await;
        page.click("[data-message='5'] [aria-label='Earlier answer']")
            .await;
        page.wait_for_text("[data-message='4'] strong", "number 2")
            .await;
        page.assert_accessible().await;
        page.assert_no_foreign_request().await;
        assert_eq!(model.requests().len(), 3);
    }
}

#[tokio::test]
async fn an_answer_is_stopped_with_a_key() {
    let Some(browser) = Browser::start().await else {
        return;
    };
    let (gate, model) = gated_model().await;
    let app = TestApp::with_open_page_and_scripted_model(&model).await;
    let page = browser.open(&app, "/conversations", Look::WIDE).await;
    begin(&page, "Tell me.").await;
    gate.open(2);
    page.wait_for_text("#live", "One").await;
    page.press_key(key::ESCAPE).await;
    page.wait_for_text("[data-message='2']", "stopped").await;
    page.wait_for("#composer").await;
}

#[tokio::test]
async fn a_second_window_follows_the_first() {
    let Some(browser) = Browser::start().await else {
        return;
    };
    let model = ScriptedModel::saying("An answer.").await;
    let app = TestApp::with_open_page_and_scripted_model(&model).await;
    let conversation = app.conversation().await;
    conversation.turn("Before?", "Before.").await;
    let path = format!("/conversations/{}", conversation.id);
    let first = browser.open(&app, &path, Look::WIDE).await;
    let second = browser.open(&app, &path, Look::NARROW).await;
    first.write("#composer textarea", "Now?").await;
    first.click("#composer button").await;
    first
        .wait_for_text("[data-message='4']", "An answer.")
        .await;
    second
        .wait_for_text("[data-message='4']", "An answer.")
        .await;
    assert_eq!(second.count("[data-message]").await, 4);
    second.write("#composer textarea", "And then?").await;
    second.click("#composer button").await;
    second
        .wait_for_text("[data-message='6']", "An answer.")
        .await;
    first
        .wait_for_text("[data-message='6']", "An answer.")
        .await;
}
