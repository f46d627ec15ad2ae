//! The row of docs/rows.md that is a page.

#![expect(non_snake_case, reason = "test names begin with a row of docs/rows.md")]

use anneal_testkit::{ScriptedModel, TestApp, eventually};

use super::{attributes, open, page_path};

#[tokio::test]
async fn row_P9_conversations_are_listed_on_a_page_and_each_is_resumed() {
    let model = ScriptedModel::saying("Forty-two.").await;
    let app = TestApp::with_open_page_and_scripted_model(&model).await;
    let old = app.conversation().await;
    old.turn("What is in payment.py?", "A race.").await;
    app.conversation()
        .await
        .turn("And the weather?", "Rain.")
        .await;
    let mut browser = app.page_client();
    let list = open(&mut browser, "/conversations").await;
    assert_eq!(attributes(&list, "data-id").len(), 2);
    let path = format!("/conversations/{}", old.id);
    assert!(list.contains(&format!("href=\"{path}\"")), "{list}");
    let page = open(&mut browser, &path).await;
    for text in ["What is in payment.py?", "A race."] {
        assert!(page.contains(text), "{text}: {page}");
    }
    let sent = browser
        .post(&format!("{path}/turn"), &[("message", "How many?")])
        .await;
    assert_eq!(page_path(&sent), path);
    eventually("the answer stands", async || {
        let page = app.page_client().get(&path).await.body;
        page.contains("Forty-two.") && attributes(&page, "data-message") == ["1", "2", "3", "4"]
    })
    .await;
    let asked = &model.requests()[0].texts();
    assert!(
        asked.iter().any(|text| text.contains("A race.")),
        "the model answers from the whole history: {asked:?}"
    );
}
