//! The list of conversations.

use anneal_core::caller::Verb;
use anneal_server::{AuthSettings, WebSettings};
use anneal_testkit::{MODEL, ScriptedModel, TestApp, eventually, pb};

use super::{attributes, field, location, open};

/// Creates a conversation with this title.
async fn create_with_title(app: &TestApp, agent: &str, title: &str) -> String {
    let made = app
        .conversation_with(pb::CreateConversationRequest {
            agent_id: agent.into(),
            title: title.into(),
            ..Default::default()
        })
        .await;
    made.id
}

#[tokio::test]
async fn the_list_has_pages_without_end_and_filters() {
    let model = ScriptedModel::saying("Hello.").await;
    let app = TestApp::with_open_page_and_scripted_model(&model).await;
    for n in 0..60 {
        create_with_title(&app, "a", &format!("Note {n}")).await;
    }
    let wanted = create_with_title(&app, "b", "Résumé <b>& 世界</b>").await;
    let mut browser = app.page_client();
    let first = open(&mut browser, "/conversations").await;
    let ids = attributes(&first, "data-id");
    assert_eq!((ids.len(), ids[0]), (50, wanted.as_str()));
    assert!(
        first.contains("Résumé &#60;b&#62;&#38; 世界&#60;/b&#62;"),
        "{first}"
    );
    let next = attributes(&first, "hx-get").first().copied();
    let next = next.expect("there is another page").replace("&#38;", "&");
    let second = open(&mut browser, &next).await;
    assert_eq!(attributes(&second, "data-id").len(), 11);
    let rows = browser.request("GET", &next).header("hx-request", "true");
    let rows = browser.send(rows).await.body;
    assert_eq!(attributes(&rows, "data-id").len(), 11);
    assert!(!rows.contains("<html"), "the script gets the rows alone");
    for (query, expected) in [
        ("?text=%E4%B8%96", 1),
        ("?text=note+7", 1),
        ("?agent=b", 1),
        ("?agent=c", 0),
        ("?agent=a&text=NOTE+1&status=active", 11),
        ("?status=archived", 0),
    ] {
        let page = open(&mut browser, &format!("/conversations{query}")).await;
        assert_eq!(attributes(&page, "data-id").len(), expected, "{query}");
    }
    let refused = browser.get("/conversations?status=gone").await;
    assert_eq!(refused.status, 400, "{refused:?}");
}

#[tokio::test]
async fn pinned_conversations_come_first_and_archived_ones_are_filtered() {
    let model = ScriptedModel::saying("Hello.").await;
    let app = TestApp::with_open_page_and_scripted_model(&model).await;
    let first = create_with_title(&app, "a", "First").await;
    let second = create_with_title(&app, "a", "Second").await;
    let mut browser = app.page_client();
    let path = format!("/conversations/{first}");
    open(&mut browser, &path).await;
    let pinned = browser
        .post(&format!("{path}/pin"), &[("on", "true")])
        .await;
    assert_eq!(location(&pinned), format!("{path}?notice=saved"));
    let page = open(&mut browser, "/conversations").await;
    assert_eq!(attributes(&page, "data-id"), [&first, &second]);
    assert!(!page.contains("Clear the filter"), "{page}");
    let archived = browser
        .post(&format!("{path}/archive"), &[("on", "true")])
        .await;
    assert_eq!(location(&archived), format!("{path}?notice=archived"));
    let page = open(&mut browser, "/conversations?status=active").await;
    assert_eq!(attributes(&page, "data-id"), [&second]);
    assert!(page.contains("Clear the filter"), "{page}");
    let page = open(&mut browser, &path).await;
    assert!(page.contains("archived"), "{page}");
}

#[tokio::test]
async fn a_change_of_what_somebody_else_has_changed_is_refused() {
    let model = ScriptedModel::saying("Hello.").await;
    let app = TestApp::with_open_page_and_scripted_model(&model).await;
    let id = create_with_title(&app, "a", "Old").await;
    let path = format!("/conversations/{id}");
    let mut browser = app.page_client();
    let page = open(&mut browser, &path).await;
    let rename = format!("{path}/rename");
    let etag = field(&page, &rename, "etag")
        .expect("the form has it")
        .to_owned();
    let fields = [("title", "New"), ("etag", etag.as_str())];
    location(&browser.post(&rename, &fields).await);
    let late = [("title", "Late"), ("etag", etag.as_str())];
    let refused = browser.post(&rename, &late).await;
    assert_eq!(refused.status, 412, "{refused:?}");
    assert!(refused.body.contains("ETAG_MISMATCH"), "{refused:?}");
    let page = open(&mut browser, &path).await;
    assert!(page.contains("New") && !page.contains("Late"), "{page}");
}

#[tokio::test]
async fn a_deletion_says_what_goes_with_it_and_needs_the_verb_admin() {
    let model = ScriptedModel::saying("Hello.").await;
    let settings = model.settings(&[MODEL]);
    let app = TestApp::with_models_and_keys(settings, MODEL).await;
    let all = [Verb::Read, Verb::Append, Verb::Admin];
    let (admin, writer) = (app.key("t", &all).await, app.key("t", &all[..2]).await);
    let mut browser = app.sign_in_to_page(&admin.text).await;
    open(&mut browser, "/conversations").await;
    let begun = browser
        .post("/conversations", &[("agent", "a"), ("message", "Hello?")])
        .await;
    let path = super::page_path(&begun);
    open(&mut browser, &path).await;
    let forked = browser
        .post(&format!("{path}/fork"), &[("message_id", "1")])
        .await;
    assert!(!location(&forked).contains('#'), "its notice is in sight");
    let fork = super::page_path(&forked);
    eventually("the answer is stored", async || {
        !open(&mut browser, &path).await.contains("data-events=")
    })
    .await;
    let mut other = app.sign_in_to_page(&writer.text).await;
    let delete = format!("{path}/delete");
    let seen = open(&mut other, &path).await;
    assert!(
        !seen.contains(&delete),
        "who may not delete sees no such link"
    );
    let refused = other.post(&delete, &[("confirm", "yes")]).await;
    assert_eq!(refused.status, 403, "{refused:?}");
    let asked = open(&mut browser, &delete).await;
    for named in ["1 copy of it stays", "2 messages", "0 checkpoints"] {
        assert!(asked.contains(named), "{named}: {asked}");
    }
    let unconfirmed = browser.post(&delete, &[]).await;
    assert_eq!(unconfirmed.status, 400, "{unconfirmed:?}");
    let etag = field(&asked, &delete, "etag")
        .expect("the form has it")
        .to_owned();
    let deleted = browser
        .post(&delete, &[("confirm", "yes"), ("etag", &etag)])
        .await;
    assert_eq!(location(&deleted), "/conversations?notice=deleted");
    assert_eq!(browser.get(&path).await.status, 404);
    open(&mut browser, &fork).await;
}

#[tokio::test]
async fn a_conversation_that_is_begun_twice_by_one_form_is_one() {
    let model = ScriptedModel::saying("Hello.").await;
    let app = TestApp::with_open_page_and_scripted_model(&model).await;
    let mut browser = app.page_client();
    let list = open(&mut browser, "/conversations").await;
    let request_id = field(&list, "/conversations", "request_id");
    let request_id = request_id.expect("the form has it").to_owned();
    let fields = [
        ("agent", "a"),
        ("message", "Hello?"),
        ("request_id", request_id.as_str()),
    ];
    let first = super::page_path(&browser.post("/conversations", &fields).await);
    let second = super::page_path(&browser.post("/conversations", &fields).await);
    assert_eq!(first, second);
    let list = open(&mut browser, "/conversations").await;
    assert_eq!(attributes(&list, "data-id").len(), 1);
}

#[tokio::test]
async fn a_server_without_models_says_that_nobody_can_talk() {
    let web = WebSettings {
        enabled: Some(true),
        ..WebSettings::default()
    };
    let app = TestApp::with_page(AuthSettings::default(), web).await;
    let id = create_with_title(&app, "a", "Stored").await;
    let mut browser = app.page_client();
    for path in ["/conversations".to_owned(), format!("/conversations/{id}")] {
        let page = open(&mut browser, &path).await;
        assert!(page.contains("his server calls no model"), "{page}");
        assert!(!page.contains("<textarea name=\"message\""), "{page}");
    }
}

#[tokio::test]
async fn a_refused_form_leads_back_to_its_conversation_and_through_the_sign_in() {
    let model = ScriptedModel::saying("Hello.").await;
    let app = TestApp::with_models_and_keys(model.settings(&[MODEL]), MODEL).await;
    let key = app.key("t", &[Verb::Read, Verb::Append]).await;
    let mut browser = app.sign_in_to_page(&key.text).await;
    open(&mut browser, "/conversations").await;
    let begun = browser
        .post("/conversations", &[("agent", "a"), ("message", "Hello?")])
        .await;
    let path = super::page_path(&begun);
    open(&mut browser, &path).await;
    let turn = format!("{path}/turn");
    let refused = browser.post(&turn, &[("message", "")]).await;
    assert_eq!(refused.status, 400, "{refused:?}");
    let back = format!("href=\"{path}\"");
    assert!(refused.body.contains(&back), "{refused:?}");
    browser.cookies.clear();
    let sent = browser.post(&turn, &[("message", "Too late")]).await;
    let next = format!("/sign-in?next={}", path.replace('/', "%2F"));
    assert_eq!(location(&sent), next);
}
