//! Messages of a session are edited over HTTP, and histories show withdrawn ones on request.

use anneal_testkit::{
    HttpClient, HttpResponse, TestApp, TestConversation, assistant, call, pb, result, user,
};
use serde_json::{Value, json};

/// A session of agent `a` with a labelled question, a tool call, its result and an answer.
async fn create_session(app: &TestApp) -> TestConversation<'_> {
    let conversation = app
        .conversation_with(pb::CreateConversationRequest {
            agent_id: "a".into(),
            ..Default::default()
        })
        .await;
    let labelled = pb::NewMessage {
        metadata: [("source".to_owned(), "web".to_owned())].into(),
        ..user("Please look.")
    };
    conversation
        .append_all(vec![
            labelled,
            call("c", "{}"),
            result("c", "Something."),
            assistant("I have looked."),
        ])
        .await;
    conversation
}

/// Requests about one session.
struct Session {
    web: HttpClient,
    path: String,
}

impl Session {
    fn of(conversation: &TestConversation<'_>) -> Self {
        Self {
            web: conversation.app.http_client(),
            path: format!("/api/agents/a/sessions/{}", conversation.id),
        }
    }

    async fn patch(&self, message: &str, body: &Value) -> HttpResponse {
        let path = format!("{}/messages/{message}", self.path);
        HttpResponse::send(self.web.json("PATCH", &path, body)).await
    }

    /// The messages of the history with these parameters.
    async fn messages(&self, parameters: &str) -> Vec<Value> {
        let history = self.web.get(&format!("{}{parameters}", self.path)).await;
        let messages = history.json()["messages"].clone();
        messages.as_array().expect("messages").clone()
    }
}

/// A body that replaces the content by one text.
fn text(text: &str) -> Value {
    json!({"content": [{"type": "text", "text": text}]})
}

#[tokio::test]
async fn a_message_is_edited_and_the_history_shows_its_new_version() {
    let app = TestApp::start().await;
    let conversation = create_session(&app).await;
    let session = Session::of(&conversation);
    let before = session.messages("").await;
    assert_eq!(before[3]["version"], 1);
    assert_eq!(before[3].get("editedAt"), None);
    let edited = session.patch("4", &text("I have looked twice.")).await;
    assert_eq!(edited.status, 200, "{edited:?}");
    let change = edited.json();
    assert_eq!(
        (&change["changed"], &change["version"], &change["replayed"]),
        (
            &json!([{"firstMessageId": 4, "lastMessageId": 4}]),
            &json!(2),
            &json!(false)
        )
    );
    let etag = session.web.get(&session.path).await;
    assert_eq!(edited.header("etag"), etag.header("etag"));
    let after = session.messages("").await;
    assert_eq!(after[..3], before[..3]);
    assert_eq!(
        (
            &after[3]["content"],
            &after[3]["role"],
            &after[3]["version"]
        ),
        (
            &text("I have looked twice.")["content"],
            &json!("assistant"),
            &json!(2)
        )
    );
    assert!(after[3]["editedAt"].as_i64() >= after[3]["createdAt"].as_i64());
    conversation.verify().await;
}

#[tokio::test]
async fn a_history_entry_can_be_sent_back_as_it_is() {
    let app = TestApp::start().await;
    let conversation = create_session(&app).await;
    let session = Session::of(&conversation);
    for message in session.messages("").await {
        let id = message["id"].to_string();
        let same = json!({"content": message["content"], "metadata": message["metadata"]});
        let edited = session.patch(&id, &same).await;
        assert_eq!(edited.status, 200, "{edited:?}");
        assert_eq!(edited.json()["changeId"], 0, "message {id} is the same");
    }
}

#[tokio::test]
async fn labels_stay_unless_the_request_has_some() {
    let app = TestApp::start().await;
    let conversation = create_session(&app).await;
    let session = Session::of(&conversation);
    let labels = async || session.messages("").await[0]["metadata"].clone();
    session.patch("1", &text("Look!")).await;
    assert_eq!(labels().await, json!({"source": "web"}));
    let mut body = text("Look!");
    body["metadata"] = json!({"source": "mail"});
    assert_eq!(session.patch("1", &body).await.json()["version"], 3);
    assert_eq!(labels().await, json!({"source": "mail"}));
    body["metadata"] = json!({});
    session.patch("1", &body).await;
    assert_eq!(labels().await, json!({}));
}

#[tokio::test]
async fn an_edit_is_made_once_and_only_in_the_expected_state() {
    let app = TestApp::start().await;
    let conversation = create_session(&app).await;
    let session = Session::of(&conversation);
    let with = |field: &str, value: Value| {
        let mut body = text("New.");
        body[field] = value;
        body
    };
    let once = with("requestId", json!("r"));
    let first = session.patch("1", &once).await.json();
    session.patch("1", &text("Newer.")).await;
    let again = session.patch("1", &once).await.json();
    assert_eq!(
        (&again["changeId"], &again["replayed"], &again["version"]),
        (&first["changeId"], &json!(true), &json!(2))
    );
    for (body, reason) in [
        (with("expectedVersion", json!(2)), "VERSION_MISMATCH"),
        (
            with("expectedLastMessageId", json!(3)),
            "LAST_MESSAGE_MISMATCH",
        ),
    ] {
        session
            .patch("1", &body)
            .await
            .assert_problem(409, reason, "");
    }
    let path = format!("{}/messages/1", session.path);
    let stale = session.web.json("PATCH", &path, &text("New."));
    HttpResponse::send(stale.header("if-match", "\"1\""))
        .await
        .assert_problem(412, "ETAG_MISMATCH", "");
    assert_eq!(
        session.messages("").await[0]["content"],
        text("Newer.")["content"]
    );
    let expected = with("expectedVersion", json!(3));
    assert_eq!(session.patch("1", &expected).await.json()["version"], 4);
}

#[tokio::test]
async fn refused_edits_name_the_field_of_the_request() {
    let app = TestApp::start().await;
    let conversation = create_session(&app).await;
    let session = Session::of(&conversation);
    let before = session.messages("").await;
    let content = |block: Value| json!({"content": [block]});
    for (message, body, status, reason, field) in [
        ("1", json!({}), 400, "INVALID_FIELD", "content"),
        ("1", json!({"content": []}), 400, "INVALID_FIELD", "content"),
        ("9", text("x"), 404, "MESSAGE_NOT_FOUND", "messageId"),
        ("0", text("x"), 400, "INVALID_FIELD", "messageId"),
        (
            "1",
            content(json!({"type": "tool_use", "id": "c", "name": "look", "input": ""})),
            400,
            "INVALID_FIELD",
            "content[0]",
        ),
        (
            "2",
            content(json!({"type": "tool_use", "name": "look"})),
            400,
            "INVALID_FIELD",
            "content[0].id",
        ),
        ("2", text("No call."), 400, "INVALID_FIELD", "content"),
        (
            "3",
            content(json!({"type": "tool_result", "toolUseId": "d", "text": "x"})),
            400,
            "INVALID_FIELD",
            "content",
        ),
        (
            "3",
            content(
                json!({"type": "tool_result", "toolUseId": "c", "media": [{"mediaType": "a/b"}]}),
            ),
            400,
            "INVALID_FIELD",
            "content[0].media[0].uri",
        ),
        (
            "1",
            json!({"content": vec![json!({"type": "text", "text": "x"}); 257]}),
            400,
            "LIMIT_EXCEEDED",
            "content",
        ),
        (
            "1",
            json!({"content": [{"type": "text", "text": "x"}], "metadata": {"a": "\0"}}),
            400,
            "INVALID_FIELD",
            "metadata",
        ),
    ] {
        session
            .patch(message, &body)
            .await
            .assert_problem(status, reason, field);
    }
    assert_eq!(session.messages("").await, before);
    conversation.withdraw(&[2]).keep_tool_pairs_apart().await;
    for (message, body, reason, field) in [
        (
            "2",
            content(json!({"type": "tool_use", "id": "c", "name": "look", "input": ""})),
            "MESSAGE_WITHDRAWN",
            "messageId",
        ),
        (
            "3",
            content(json!({"type": "tool_result", "toolUseId": "c", "text": "x"})),
            "TOOL_CALL_MISSING",
            "content",
        ),
    ] {
        session
            .patch(message, &body)
            .await
            .assert_problem(422, reason, field);
    }
    let foreign = Session {
        web: app.http_client(),
        path: session.path.replace("/agents/a/", "/agents/b/"),
    };
    foreign
        .patch("1", &text("x"))
        .await
        .assert_problem(404, "CONVERSATION_NOT_FOUND", "");
}

#[tokio::test]
async fn a_history_has_withdrawn_messages_on_request() {
    let app = TestApp::start().await;
    let conversation = create_session(&app).await;
    let session = Session::of(&conversation);
    let before = session.messages("").await;
    conversation.withdraw(&[1, 3]).await;
    let ids = |messages: &[Value]| {
        let ids = messages.iter().map(|message| message["id"].as_i64());
        ids.collect::<Option<Vec<i64>>>().expect("ids")
    };
    for parameters in ["", "?includeWithdrawn=false"] {
        assert_eq!(ids(&session.messages(parameters).await), [4]);
    }
    let all = session.messages("?includeWithdrawn=true").await;
    assert_eq!(ids(&all), [1, 2, 3, 4]);
    for (message, before) in all.iter().zip(&before) {
        let is_withdrawn = message["id"] != 4;
        assert_eq!(message.get("withdrawnAt").is_some(), is_withdrawn);
        assert_eq!(message.get("erased"), None);
        assert_eq!(message["content"], before["content"]);
    }
    let part = session
        .messages("?includeWithdrawn=true&after=1&limit=2")
        .await;
    assert_eq!(ids(&part), [2, 3]);
    let erase = "delete from ai_message_version where conversation_id = $1 and message_id = 1";
    sqlx::query(erase)
        .bind(conversation.uuid())
        .execute(&mut app.db().await)
        .await
        .expect("erases");
    let all = session.messages("?includeWithdrawn=true").await;
    assert_eq!(
        (&all[0]["erased"], &all[0]["content"]),
        (&json!(true), &json!([]))
    );
}
