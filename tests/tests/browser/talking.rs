//! A person talks: the answer comes word by word, is stopped, made anew, and two windows agree.

use anneal_core::caller::Verb;
use anneal_testkit::{
    Browser, BrowserPage, Gate, Look, MODEL, Say, Script, ScriptedModel, TestApp, key,
};
use serde_json::json;

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
    page.click(".talk-head details > summary").await;
    page.press("[action$='/rename'] [name=title]", key::ESCAPE)
        .await;
    page.wait_until(
        "the field is left",
        "document.activeElement === document.body",
    )
    .await;
    assert_eq!(page.count("#live").await, 1, "Esc in a field stops nothing");
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

#[tokio::test]
async fn a_failed_answer_says_why_and_is_made_anew() {
    let Some(browser) = Browser::start().await else {
        return;
    };
    let gate = Gate::default();
    let model = ScriptedModel::start({
        let gate = gate.clone();
        move |request| {
            let answer = Script::says(request, Say::texts(&["One ", "two ", "three."]));
            match request.nth {
                0 => answer.gated(&gate).cut_after(2),
                _ => answer,
            }
        }
    })
    .await;
    let app = TestApp::with_open_page_and_scripted_model(&model).await;
    let page = browser.open(&app, "/conversations", Look::WIDE).await;
    begin(&page, "Tell me.").await;
    page.wait_for("#live").await;
    gate.open_for_ever();
    page.wait_for_text("#problem", "The answer has failed")
        .await;
    page.wait_for("#composer").await;
    page.click("[data-message='1'] [action$='/regenerate'] button")
        .await;
    page.wait_for_text("article.assistant", "One two three.")
        .await;
    assert_eq!(page.count("#problem").await, 0);
}

#[tokio::test]
async fn a_message_that_could_not_be_sent_is_not_lost() {
    let Some(browser) = Browser::start().await else {
        return;
    };
    let model = ScriptedModel::saying("An answer.").await;
    let app = TestApp::with_models_and_keys(model.settings(&[MODEL]), MODEL).await;
    let key = app.key("t", &[Verb::Read, Verb::Append]).await;
    let page = browser.open(&app, "/conversations", Look::WIDE).await;
    page.sign_in(&key.text).await;
    begin(&page, "Hello?").await;
    page.wait_for_text("[data-message='2']", "An answer.").await;
    page.write("#composer textarea", "A long thought").await;
    page.devtools("Network.clearBrowserCookies", json!({}))
        .await;
    page.click("#composer button").await;
    page.wait_for("[name=credential]").await;
    page.sign_in(&key.text).await;
    let has_draft = "document.querySelector('#composer textarea')?.value === 'A long thought'";
    page.wait_until("the text is there again", has_draft).await;
    page.click("#composer button").await;
    page.wait_for_text("[data-message='4']", "An answer.").await;
    let is_empty = "document.querySelector('#composer textarea')?.value === ''";
    page.wait_until("what was sent is no draft", is_empty).await;
    page.write("#composer textarea", "A secret").await;
    page.click("[action='/sign-out'] button").await;
    page.wait_for("[name=credential]").await;
    let drafts =
        "return Object.values(sessionStorage).filter(it => it.includes('A secret')).length";
    assert_eq!(page.run(drafts).await, 0);
}

#[tokio::test]
async fn what_changes_while_the_tab_is_hidden_is_shown_when_it_comes_back() {
    let Some(browser) = Browser::start().await else {
        return;
    };
    let model = ScriptedModel::saying("An answer.").await;
    let app = TestApp::with_open_page_and_scripted_model(&model).await;
    let conversation = app.conversation().await;
    for n in 1..3 {
        conversation
            .turn(&format!("Question {n}"), &format!("Reply {n}"))
            .await;
    }
    let path = format!("/conversations/{}", conversation.id);
    let page = browser.open(&app, &path, Look::WIDE).await;
    page.wait_for("[data-message='4']").await;
    let hide = |is_hidden: bool| {
        format!(
            "Object.defineProperty(document, 'hidden', {{ get: () => {is_hidden}, configurable: true }});
             document.dispatchEvent(new Event('visibilitychange'));"
        )
    };
    page.run(&hide(true)).await;
    let mut other = app.page_client();
    other.get(&path).await;
    let withdrawn = other
        .post(&format!("{path}/messages/4/withdraw"), &[])
        .await;
    assert_eq!(withdrawn.status, 303, "{withdrawn:?}");
    conversation.turn("Question 3", "Reply 3").await;
    page.run(&hide(false)).await;
    page.wait_until_gone("[data-message='4']").await;
    page.wait_for_text("[data-message='6']", "Reply 3").await;
    assert_eq!(page.count("[data-message='6']").await, 1);
    assert_eq!(page.count(".mark.withdrawn").await, 1);
}
