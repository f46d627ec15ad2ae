//! Turns that a form begins, and messages that are changed.

use anneal_testkit::{
    Gate, PageClient, Say, Script, ScriptedModel, SseEvent, SseStream, TestApp, eventually, text_of,
};
use uuid::Uuid;

use super::{attributes, field, location, open, page_path};

/// A model whose answers come word by word, as the gate opens. The first piece is the role alone.
async fn gated_model() -> (Gate, ScriptedModel) {
    let gate = Gate::default();
    let model = ScriptedModel::start({
        let gate = gate.clone();
        move |request| Script::says(request, Say::texts(&["one ", "two ", "three"])).gated(&gate)
    })
    .await;
    (gate, model)
}

/// A model that numbers its answers.
async fn numbering_model() -> ScriptedModel {
    ScriptedModel::start(|request| {
        Script::says(
            request,
            [Say::text(&format!("Answer {}.", request.nth + 1))],
        )
    })
    .await
}

/// Begins a conversation. Returns its path.
async fn begin(browser: &mut PageClient, message: &str) -> String {
    open(browser, "/conversations").await;
    let begun = browser
        .post("/conversations", &[("agent", "a"), ("message", message)])
        .await;
    page_path(&begun)
}

/// Waits until no turn is under way. Returns the page.
async fn wait_for_answer(browser: &mut PageClient, path: &str) -> String {
    let mut page = String::new();
    eventually("the turn ends", async || {
        page = open(browser, path).await;
        !page.contains("data-events=")
    })
    .await;
    page
}

async fn events(browser: &PageClient, path: &str) -> SseStream {
    SseStream::open(browser.request("GET", path)).await
}

#[tokio::test]
async fn a_turn_streams_and_a_page_that_is_loaded_in_the_middle_goes_on() {
    let (gate, model) = gated_model().await;
    let app = TestApp::with_open_page_and_scripted_model(&model).await;
    let second_server = app.second_server().await;
    let mut browser = app.page_client();
    let path = begin(&mut browser, "Tell me.").await;
    let page = open(&mut browser, &path).await;
    let url = attributes(&page, "data-events")[0].to_owned();
    assert!(
        page.contains("http-equiv=\"refresh\""),
        "without scripts the page looks again: {page}"
    );
    let mut stream = events(&browser, &url).await;
    gate.open(2);
    let mut received: Vec<SseEvent> = Vec::new();
    while text_of(&received) != "one " {
        received.push(stream.next().await.expect("goes on"));
    }
    drop(stream);
    // The page is loaded again: it has the question, and the stream begins anew.
    let again = open(&mut browser, &path).await;
    assert_eq!(attributes(&again, "data-events"), [url.as_str()]);
    let mut whole = events(&browser, &url).await;
    let elsewhere = PageClient::at(second_server.addresses.http);
    let elsewhere = events(&elsewhere, &url).await;
    // The stream breaks, and the browser comes back with the id of the last event.
    let last = received.last().expect("there are events").id.clone();
    let resumed = browser.request("GET", &url).header("last-event-id", &last);
    let resumed = SseStream::open(resumed).await;
    assert_eq!(whole.next().await.expect("begins").kind(), "started");
    gate.open_for_ever();
    assert_eq!(text_of(&whole.rest().await), "one two three");
    // A server that does not run the turn says when the answer is stored.
    let kinds: Vec<String> = elsewhere
        .rest()
        .await
        .iter()
        .map(|event| event.kind().to_owned())
        .collect();
    assert_eq!(kinds, ["ended"]);
    let rest = resumed.rest().await;
    assert_eq!(text_of(&rest), "two three", "{rest:?}");
    let end = rest.last().expect("done").id.clone();
    let page = wait_for_answer(&mut browser, &path).await;
    assert!(page.contains("one two three"), "{page}");
    assert_eq!(attributes(&page, "data-message"), ["1", "2"]);
    let nothing = browser.request("GET", &url).header("last-event-id", &end);
    assert_eq!(browser.send(nothing).await.status, 204);
    assert_eq!(model.requests().len(), 1);
}

#[tokio::test]
async fn a_form_that_is_sent_twice_is_one_turn_and_an_old_page_is_refused() {
    let model = numbering_model().await;
    let app = TestApp::with_open_page_and_scripted_model(&model).await;
    let mut browser = app.page_client();
    let path = begin(&mut browser, "Hello.").await;
    let page = wait_for_answer(&mut browser, &path).await;
    let turn = format!("{path}/turn");
    let request_id = field(&page, &turn, "request_id")
        .expect("the form has it")
        .to_owned();
    let expected = field(&page, &turn, "expected_last")
        .expect("the form has it")
        .to_owned();
    assert_eq!(expected, "2");
    let fields = [
        ("message", "Line one\r\nand two"),
        ("request_id", request_id.as_str()),
        ("expected_last", expected.as_str()),
        ("model", ""),
    ];
    for _ in 0..2 {
        assert_eq!(
            location(&browser.post(&turn, &fields).await),
            format!("{path}#end")
        );
    }
    let page = wait_for_answer(&mut browser, &path).await;
    assert_eq!(attributes(&page, "data-message"), ["1", "2", "3", "4"]);
    assert!(page.contains("Line one\nand two"), "{page}");
    let other = Uuid::new_v4().to_string();
    let late = [
        ("message", "Late"),
        ("request_id", other.as_str()),
        ("expected_last", expected.as_str()),
    ];
    let refused = browser.post(&turn, &late).await;
    assert!((400..500).contains(&refused.status), "{refused:?}");
    let empty = browser.post(&turn, &[("message", "")]).await;
    assert_eq!(empty.status, 400, "{empty:?}");
    assert_eq!(model.requests().len(), 2);
}

#[tokio::test]
async fn an_answer_is_stopped_and_what_had_come_stays() {
    let (gate, model) = gated_model().await;
    let app = TestApp::with_open_page_and_scripted_model(&model).await;
    let mut browser = app.page_client();
    let path = begin(&mut browser, "Tell me.").await;
    let page = open(&mut browser, &path).await;
    let stop = format!("{path}/stop");
    let request_id = field(&page, &stop, "request_id")
        .expect("the form has it")
        .to_owned();
    let url = attributes(&page, "data-events")[0].to_owned();
    let mut stream = events(&browser, &url).await;
    gate.open(2);
    let mut received: Vec<SseEvent> = Vec::new();
    while text_of(&received) != "one " {
        received.push(stream.next().await.expect("goes on"));
    }
    let stopped = browser
        .post(&stop, &[("request_id", &request_id), ("keep", "true")])
        .await;
    assert_eq!(location(&stopped), format!("{path}#end"));
    let page = wait_for_answer(&mut browser, &path).await;
    assert!(page.contains("one") && !page.contains("two"), "{page}");
    assert!(page.contains(">stopped<"), "{page}");
}

#[tokio::test]
async fn answers_are_made_anew_and_chosen_and_questions_are_edited() {
    let model = numbering_model().await;
    let app = TestApp::with_open_page_and_scripted_model(&model).await;
    let mut browser = app.page_client();
    let path = begin(&mut browser, "Hello?").await;
    let page = wait_for_answer(&mut browser, &path).await;
    assert_eq!(
        page.matches("/regenerate\"").count(),
        1,
        "the newest answer alone"
    );
    location(
        &browser
            .post(&format!("{path}/messages/2/regenerate"), &[])
            .await,
    );
    let page = wait_for_answer(&mut browser, &path).await;
    assert_eq!(attributes(&page, "data-message"), ["1", "3"]);
    assert!(
        page.contains("Answer 2.") && page.contains("2 of 2"),
        "{page}"
    );
    assert!(
        !page.contains("class=\"mark withdrawn\""),
        "another answer is no withdrawn message: {page}"
    );
    let choice = [("question", "1"), ("number", "1")];
    location(&browser.post(&format!("{path}/choose"), &choice).await);
    let page = open(&mut browser, &path).await;
    assert!(
        page.contains("Answer 1.") && page.contains("1 of 2"),
        "{page}"
    );
    let edit = [("message", "Hello, you?"), ("version", "1")];
    location(
        &browser
            .post(&format!("{path}/messages/1/edit"), &edit)
            .await,
    );
    let page = wait_for_answer(&mut browser, &path).await;
    for text in ["Hello, you?", "Answer 3.", ">edited<"] {
        assert!(page.contains(text), "{text}: {page}");
    }
}

#[tokio::test]
async fn messages_are_withdrawn_and_restored_and_conversations_forked() {
    let model = numbering_model().await;
    let app = TestApp::with_open_page_and_scripted_model(&model).await;
    let conversation = app.conversation().await;
    for n in 1..4 {
        conversation
            .turn(&format!("Question {n}"), &format!("Reply {n}"))
            .await;
    }
    let path = format!("/conversations/{}", conversation.id);
    let mut browser = app.page_client();
    let page = open(&mut browser, &path).await;
    let request_id = field(&page, &format!("{path}/turn"), "request_id");
    let request_id = request_id.expect("the form has it").to_owned();
    // Forms of one page have the same id. Each is a request of its own.
    for message in ["3", "4"] {
        let withdraw = format!("{path}/messages/{message}/withdraw");
        location(
            &browser
                .post(&withdraw, &[("request_id", &request_id)])
                .await,
        );
    }
    let page = open(&mut browser, &path).await;
    assert_eq!(attributes(&page, "data-message"), ["1", "2", "5", "6"]);
    let restore = format!("{path}/messages/3/restore");
    assert_eq!(field(&page, &restore, "last"), Some("4"), "{page}");
    location(&browser.post(&restore, &[("last", "4")]).await);
    let page = open(&mut browser, &path).await;
    assert_eq!(attributes(&page, "data-message").len(), 6);
    let rewound = browser
        .post(&format!("{path}/rewind"), &[("message_id", "2")])
        .await;
    location(&rewound);
    let page = open(&mut browser, &path).await;
    assert_eq!(attributes(&page, "data-message"), ["1", "2"]);
    assert!(page.contains("messages 3 to 6"), "{page}");
    let forked = browser
        .post(&format!("{path}/fork"), &[("message_id", "1")])
        .await;
    let fork = page_path(&forked);
    assert_ne!(fork, path);
    let page = open(&mut browser, &fork).await;
    assert_eq!(attributes(&page, "data-message"), ["1"]);
    let separator = format!("{path}/separator");
    location(&browser.post(&separator, &[]).await);
    assert!(open(&mut browser, &path).await.contains("New beginning"));
}

#[tokio::test]
async fn a_question_whose_model_fails_stays_and_is_answered_later() {
    let model = ScriptedModel::start(|request| match request.nth {
        0 => Script::status(400, &[], "{}"),
        _ => Script::says(request, [Say::text("At last.")]),
    })
    .await;
    let app = TestApp::with_open_page_and_scripted_model(&model).await;
    let conversation = app.conversation().await;
    let path = format!("/conversations/{}", conversation.id);
    let mut browser = app.page_client();
    open(&mut browser, &path).await;
    let sent = browser
        .post(&format!("{path}/turn"), &[("message", "Anybody?")])
        .await;
    assert_eq!(page_path(&sent), path, "the question is stored");
    let told = open(&mut browser, &format!("{path}?notice=not-answered")).await;
    assert!(told.contains("the model has not answered"), "{told}");
    let page = wait_for_answer(&mut browser, &path).await;
    assert_eq!(attributes(&page, "data-message"), ["1"]);
    let again = format!("{path}/messages/1/regenerate");
    assert!(page.contains(&again), "{page}");
    location(&browser.post(&again, &[]).await);
    let page = wait_for_answer(&mut browser, &path).await;
    assert!(page.contains("At last."), "{page}");
}

#[tokio::test]
async fn a_second_window_learns_of_what_the_first_one_does() {
    let model = numbering_model().await;
    let app = TestApp::with_open_page_and_scripted_model(&model).await;
    let mut browser = app.page_client();
    let path = begin(&mut browser, "Hello?").await;
    let page = wait_for_answer(&mut browser, &path).await;
    let url = attributes(&page, "data-watch")[0].to_owned();
    let mut watch = events(&browser, &url).await;
    let started = watch.next().await.expect("begins");
    assert_eq!(
        (started.kind(), &started.data["lastMessageId"]),
        ("started", &2.into())
    );
    location(
        &browser
            .post(&format!("{path}/turn"), &[("message", "And now?")])
            .await,
    );
    let mut ids = Vec::new();
    while ids.len() < 2 {
        let event = watch.next().await.expect("goes on");
        if event.kind() == "message_appended" {
            assert!(
                !event.data.to_string().contains("And now?"),
                "without content"
            );
            ids.push(event.data["message"]["id"].as_i64().expect("a number"));
        }
    }
    assert_eq!(ids, [3, 4]);
    let entries = open(&mut browser, &format!("{path}/entries?after=2")).await;
    assert_eq!(attributes(&entries, "data-message"), ["3", "4"]);
    assert!(
        entries.contains("And now?") && !entries.contains("<html"),
        "{entries}"
    );
}

#[tokio::test]
async fn a_stream_begins_no_answer_and_is_for_our_own_pages() {
    let model = ScriptedModel::start(|request| match request.nth {
        0 => Script::status(400, &[], "{}"),
        _ => Script::says(request, [Say::text("At last.")]),
    })
    .await;
    let app = TestApp::with_open_page_and_scripted_model(&model).await;
    let conversation = app.conversation().await;
    let path = format!("/conversations/{}", conversation.id);
    let mut browser = app.page_client();
    open(&mut browser, &path).await;
    let fields = [("message", "Anybody?"), ("request_id", "r1")];
    location(&browser.post(&format!("{path}/turn"), &fields).await);
    wait_for_answer(&mut browser, &path).await;
    let asked = model.requests().len();
    for request in ["r1", "never-sent"] {
        let url = format!("{path}/turns/{request}/events");
        let told = events(&browser, &url).await.rest().await;
        let kinds: Vec<&str> = told.iter().map(SseEvent::kind).collect();
        assert_eq!(kinds, ["ended"], "{request}");
    }
    assert_eq!(model.requests().len(), asked, "nothing was begun");
    let page = open(&mut browser, &path).await;
    assert!(page.contains("/messages/1/regenerate"), "{page}");
    for stream in ["/turns/r1/events", "/events"] {
        let url = format!("http://{}{path}{stream}", app.addresses.http);
        let foreign = reqwest::Client::new().get(url);
        let foreign = foreign.header("sec-fetch-site", "cross-site").send().await;
        let status = foreign.expect("the server answers").status();
        assert_eq!(status, 403, "{stream}");
    }
}

#[tokio::test]
async fn what_was_not_seen_is_not_answered_anew() {
    let model = numbering_model().await;
    let app = TestApp::with_open_page_and_scripted_model(&model).await;
    let mut browser = app.page_client();
    let path = begin(&mut browser, "Hello?").await;
    let page = wait_for_answer(&mut browser, &path).await;
    let regenerate = format!("{path}/messages/2/regenerate");
    let edit = format!("{path}/messages/1/edit");
    for form in [&regenerate, &edit] {
        assert_eq!(field(&page, form, "expected_last"), Some("2"), "{page}");
    }
    let sent = browser
        .post(&format!("{path}/turn"), &[("message", "And now?")])
        .await;
    location(&sent);
    wait_for_answer(&mut browser, &path).await;
    let asked = model.requests().len();
    let seen = [("expected_last", "2"), ("message", "Changed")];
    for form in [&regenerate, &edit] {
        let refused = browser.post(form, &seen).await;
        assert_eq!(refused.status, 409, "{form}: {refused:?}");
    }
    let not_newest = browser.post(&regenerate, &[]).await;
    assert_eq!(not_newest.status, 409, "{not_newest:?}");
    let versions = [("version", "2"), ("message", "Changed")];
    let refused = browser.post(&edit, &versions).await;
    assert!(refused.body.contains("VERSION_MISMATCH"), "{refused:?}");
    let etags = [("etag", "other"), ("message", "Changed")];
    let refused = browser.post(&edit, &etags).await;
    assert_eq!(refused.status, 412, "{refused:?}");
    let page = open(&mut browser, &path).await;
    assert_eq!(attributes(&page, "data-message"), ["1", "2", "3", "4"]);
    assert_eq!(model.requests().len(), asked);
}

#[tokio::test]
async fn a_conversation_goes_back_and_begins_anew_by_controls_of_its_page() {
    let model = numbering_model().await;
    let app = TestApp::with_open_page_and_scripted_model(&model).await;
    let mut browser = app.page_client();
    let path = begin(&mut browser, "Hello?").await;
    let page = wait_for_answer(&mut browser, &path).await;
    let rewind = format!("{path}/rewind");
    assert_eq!(field(&page, &rewind, "message_id"), Some("1"), "{page}");
    let back = [("message_id", "1"), ("expected_last", "2")];
    let gone = browser.post(&rewind, &back).await;
    assert_eq!(location(&gone), format!("{path}#m1"));
    let page = open(&mut browser, &path).await;
    assert_eq!(attributes(&page, "data-message"), ["1"]);
    let separator = format!("{path}/separator");
    assert!(field(&page, &separator, "request_id").is_some(), "{page}");
    location(&browser.post(&separator, &[]).await);
    let page = open(&mut browser, &path).await;
    let after = attributes(&page, "data-after")[0].to_owned();
    location(&browser.post(&separator, &[("delete", &after)]).await);
    let page = open(&mut browser, &path).await;
    assert!(!page.contains("mark separator"), "{page}");
}

#[tokio::test]
async fn a_picture_is_sent_with_a_message() {
    let model = numbering_model().await;
    let app = TestApp::with_open_page_and_scripted_model(&model).await;
    let mut browser = app.page_client();
    let path = begin(&mut browser, "Hello?").await;
    wait_for_answer(&mut browser, &path).await;
    let picture = "data:image/gif;base64,R0lGODlhAQABAAAAACH5BAEKAAEALAAAAAABAAEAAAICTAEAOw==";
    let fields = [("message", "What is this?"), ("images", picture)];
    location(&browser.post(&format!("{path}/turn"), &fields).await);
    let page = wait_for_answer(&mut browser, &path).await;
    let shown = format!("src=\"{path}/messages/3/media/0?v=1\"");
    assert!(page.contains(&shown), "{page}");
}
