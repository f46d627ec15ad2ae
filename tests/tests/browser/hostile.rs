//! Hostile texts as titles, names, messages, tools and errors: no page runs any of them, loads
//! anything for them, or hides them.

use anneal_testkit::{Browser, Look, TestApp, assistant, eventually, message, pb, result, user};

use crate::pages::{kill_job, paths, start_open_app};

/// Each would call `hit`, or ask another server, if a page took it for HTML or a script.
const TEXTS: [&str; 20] = [
    "<script>hit()</script>",
    "</script><script>hit()</script>",
    "</title><script>hit()</script>",
    "</textarea><script>hit()</script>",
    "\"><img src=x onerror=hit()>",
    "'><svg/onload=hit()>",
    "<img src=http://127.0.0.2:9/image>",
    "<link rel=stylesheet href=http://127.0.0.2:9/style>",
    "<iframe src=\"javascript:parent.hit()\"></iframe>",
    "<style>@import 'http://127.0.0.2:9/import';</style>",
    "<meta http-equiv=refresh content='0;url=http://127.0.0.2:9/meta'>",
    "<base href=http://127.0.0.2:9/>",
    "<form action=http://127.0.0.2:9/form><button autofocus>go",
    "<div hx-get=http://127.0.0.2:9/htmx hx-trigger=load></div>",
    "<div hx-on:load=hit()></div>",
    "{{ 7 * 7 }}${hit()}<%= hit() %>",
    "--><!--[if IE]><script>hit()</script>",
    "<math><mtext></form><form><mglyph><style></math><img src onerror=hit()>",
    "&lt;script&gt;hit()&lt;/script&gt; &#60;script&#62;hit()",
    "\u{202e}\u{2066}gpj.exe\u{2069} <b>\u{feff}",
];

/// The same in Markdown, of which links and pictures are made.
const MARKDOWN: [&str; 9] = [
    "[click](javascript:hit())",
    "[click](JaVaScRiPt&colon;hit())",
    "[click](data:text/html,<script>hit()</script>)",
    "![picture](http://127.0.0.2:9/markdown)",
    "![picture](x\" onerror=\"hit())",
    "<http://127.0.0.2:9/\"onmouseover=hit()>",
    "[a]: javascript:hit()\n\n[a]",
    "```\"><script>hit()</script>\ncode\n```",
    "<details open ontoggle=hit()>",
];

#[tokio::test]
async fn hostile_texts_run_nothing_load_nothing_and_are_shown_as_they_are() {
    let Some(browser) = Browser::start().await else {
        return;
    };
    let app = start_open_app().await;
    let conversation = create_hostile_conversations(&app).await;
    let page = browser.open(&app, "/operations", Look::WIDE).await;
    let ask = serde_json::json!({ "source": "window.hit = () => { window.wasHit = true; }" });
    page.devtools("Page.addScriptToEvaluateOnNewDocument", ask)
        .await;
    for path in paths(&conversation, 0) {
        page.visit(&path).await;
        page.run("document.querySelectorAll('details').forEach(details => details.open = true)")
            .await;
        // htmx and the scripts add elements within a moment.
        page.wait_until(
            "the page is idle",
            "document.readyState === 'complete' && !document.querySelector('.htmx-request')",
        )
        .await;
        assert_eq!(
            page.run("return Boolean(window.wasHit)").await,
            false,
            "{path}"
        );
        assert!(page.path().await.starts_with(&path), "{path} was left");
        let elements = "script:not([src]), iframe, object, embed, base, [onerror], [onload], [ontoggle], a[href^='javascript' i], a[href^='data' i]";
        assert_eq!(page.count(elements).await, 0, "{path}");
    }
    page.assert_no_foreign_request().await;
    let errors = page.reported_errors().await;
    let violations = errors
        .iter()
        .filter(|error| error.contains("Content Security Policy"));
    assert_eq!(violations.count(), 0, "{errors:#?}");

    // Nothing is lost either: a person who reads the messages sees each text.
    page.visit(&format!("/conversations/{conversation}")).await;
    while page.count("p.more > a").await > 0 {
        let before = page.count("[data-message]").await;
        page.click("p.more > a").await;
        eventually("earlier messages are shown", async || {
            page.count("[data-message]").await > before
        })
        .await;
    }
    let shown = page
        .run("return document.querySelector('main').textContent")
        .await;
    let shown = shown.as_str().expect("text");
    for text in &TEXTS[..18] {
        assert!(shown.contains(text), "{text} is missing");
    }
}

/// Creates a conversation for each text, named by it, and one whose messages and tools have all of
/// them. Its checkpoint job has failed with one as its error. Returns the id of the last.
async fn create_hostile_conversations(app: &TestApp) -> String {
    for text in TEXTS {
        let ask = pb::CreateConversationRequest {
            title: text.into(),
            agent_id: text.into(),
            user_id: text.into(),
            ..Default::default()
        };
        app.conversation_with(ask).await;
    }
    let ask = pb::CreateConversationRequest {
        title: TEXTS[0].into(),
        ..Default::default()
    };
    let conversation = app.conversation_with(ask).await;
    let mut messages = Vec::new();
    for (number, text) in TEXTS.into_iter().chain(MARKDOWN).enumerate() {
        let id = format!("c{number}");
        let call = pb::ToolUsePart {
            id: id.clone(),
            name: text.into(),
            input: serde_json::json!({ "text": text }).to_string(),
        };
        let call = pb::part::Part::ToolUse(call);
        messages.push(user(text));
        messages.push(message(pb::Role::Assistant, vec![call]));
        messages.push(result(&id, text));
        messages.push(assistant(text));
    }
    for turns in messages.chunks(40) {
        let appended = conversation.append_all(turns.to_vec()).send().await;
        appended.expect("hostile texts are stored like others");
    }
    for text in TEXTS {
        let dead = app.conversation().await;
        kill_job(app, &dead.id, text).await;
    }
    conversation.id.clone()
}
