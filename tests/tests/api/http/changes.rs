//! Messages of a session are withdrawn and restored over HTTP, as over gRPC.

use anneal_testkit::{HttpClient, HttpResponse, TestApp, TestConversation, call, pb, result, user};
use serde_json::{Value, json};

/// A session of agent `a` with two turns.
async fn create_session(app: &TestApp) -> TestConversation<'_> {
    let conversation = app
        .conversation_with(pb::CreateConversationRequest {
            agent_id: "a".into(),
            ..Default::default()
        })
        .await;
    conversation.turn("One?", "One.").await;
    conversation.turn("Two?", "Two.").await;
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

    async fn get(&self) -> Value {
        self.web.get(&self.path).await.json()
    }

    /// The ids of the messages in the session's history.
    async fn message_ids(&self) -> Vec<i64> {
        let session = self.get().await;
        let messages = session["messages"].as_array().expect("messages");
        messages
            .iter()
            .map(|message| message["id"].as_i64().expect("an id"))
            .collect()
    }

    /// DELETE of this path below the session's.
    async fn delete(&self, path: &str) -> HttpResponse {
        HttpResponse::send(self.web.request("DELETE", &format!("{}/{path}", self.path))).await
    }

    /// POST of a body to this path below the session's.
    async fn post(&self, path: &str, body: &Value) -> HttpResponse {
        HttpResponse::send(
            self.web
                .json("POST", &format!("{}/{path}", self.path), body),
        )
        .await
    }
}

#[tokio::test]
async fn a_deleted_message_is_withdrawn_and_the_history_lacks_it() {
    let app = TestApp::start().await;
    let conversation = create_session(&app).await;
    let session = Session::of(&conversation);
    let before = session.web.get(&session.path).await;
    assert_eq!(before.json()["withdrawnCount"], 0);
    let deleted = session.delete("messages/4").await;
    let now = conversation.conversation().await;
    assert_eq!(deleted.status, 200, "{deleted:?}");
    let change = deleted.json();
    assert!(change["changeId"].as_i64() > Some(0), "{change}");
    assert_eq!(
        change,
        json!({
            "sessionId": conversation.id,
            "changeId": change["changeId"],
            "changed": [{"firstMessageId": 4, "lastMessageId": 4}],
            "voidCheckpoints": [],
            "boundaryMessageId": 0,
            "tokenEstimate": now.token_total.expect("a total").tokens,
            "withdrawnCount": 1,
            "replayed": false,
        })
    );
    let after = session.web.get(&session.path).await;
    assert_eq!(deleted.header("etag"), after.header("etag"));
    assert_ne!(before.header("etag"), after.header("etag"));
    assert_eq!(session.message_ids().await, [1, 2, 3]);
    let (after, listed) = (
        after.json(),
        session.web.get("/api/agents/a/sessions").await.json(),
    );
    for shown in [&after, &listed["sessions"][0]] {
        assert_eq!(
            (&shown["messageCount"], &shown["withdrawnCount"]),
            (&json!(4), &json!(1))
        );
    }
    let again = session.delete("messages/4").await;
    assert_eq!(
        (again.status, &again.json()["changeId"]),
        (200, &json!(0)),
        "a repeated request finds nothing to withdraw"
    );
}

#[tokio::test]
async fn a_message_is_deleted_with_the_other_half_of_its_tool_pair_unless_they_are_kept_apart() {
    let app = TestApp::start().await;
    let conversation = create_session(&app).await;
    conversation
        .append_all(vec![user("Look."), call("c", "{}"), result("c", "x")])
        .await;
    let session = Session::of(&conversation);
    let apart = session.delete("messages/7?keepToolPairsApart=true").await;
    assert_eq!(
        apart.json()["changed"],
        json!([{"firstMessageId": 7, "lastMessageId": 7}])
    );
    let restored = session.post("restore", &json!({"messageIds": [7]})).await;
    assert_eq!(restored.json()["withdrawnCount"], 0);
    let together = session.delete("messages/7").await;
    assert_eq!(
        together.json()["changed"],
        json!([{"firstMessageId": 6, "lastMessageId": 7}])
    );
}

#[tokio::test]
async fn a_session_is_rewound_and_its_messages_are_restored() {
    let app = TestApp::start().await;
    let conversation = create_session(&app).await;
    let session = Session::of(&conversation);
    let body = json!({"afterMessageId": 2, "requestId": "r", "expectedLastMessageId": 4});
    let rewound = session.post("rewind", &body).await.json();
    assert_eq!(
        rewound["changed"],
        json!([{"firstMessageId": 3, "lastMessageId": 4}])
    );
    assert_eq!(session.message_ids().await, [1, 2]);
    let again = session.post("rewind", &body).await.json();
    assert_eq!(
        (&again["changeId"], &again["replayed"]),
        (&rewound["changeId"], &json!(true))
    );
    let restored = session.post("restore", &json!({"messageIds": [3]})).await;
    assert_eq!(restored.status, 200, "{restored:?}");
    assert_eq!(session.message_ids().await, [1, 2, 3]);
    let range = json!({"range": {"firstMessageId": 1, "lastMessageId": 4}, "requestId": "s"});
    let restored = session.post("restore", &range).await.json();
    assert_eq!(
        restored["changed"],
        json!([{"firstMessageId": 4, "lastMessageId": 4}])
    );
    assert_eq!(session.message_ids().await, [1, 2, 3, 4]);
    conversation.verify().await;
}

#[tokio::test]
async fn a_history_has_the_separators_after_withdrawn_messages() {
    let app = TestApp::start().await;
    let conversation = create_session(&app).await;
    conversation.insert_separator().await;
    conversation.rewind(2).await;
    let session = Session::of(&conversation);
    assert_eq!(session.message_ids().await, [1, 2]);
    let places = |session: &Value| {
        let separators = session["separators"].as_array().expect("separators");
        separators
            .iter()
            .map(|separator| separator["afterMessageId"].clone())
            .collect::<Vec<_>>()
    };
    assert_eq!(places(&session.get().await), [json!(4)]);
    conversation.rewind(0).await;
    assert_eq!(places(&session.get().await), [json!(4)]);
}

#[tokio::test]
async fn an_etag_that_is_not_current_is_refused() {
    let app = TestApp::start().await;
    let conversation = create_session(&app).await;
    let session = Session::of(&conversation);
    let etag = session
        .web
        .get(&session.path)
        .await
        .header("etag")
        .to_owned();
    conversation.withdraw(&[1]).await;
    let requests = [
        session
            .web
            .request("DELETE", &format!("{}/messages/2", session.path)),
        session.web.json(
            "POST",
            &format!("{}/rewind", session.path),
            &json!({"afterMessageId": 2}),
        ),
        session.web.json(
            "POST",
            &format!("{}/restore", session.path),
            &json!({"messageIds": [1]}),
        ),
    ];
    for request in requests {
        HttpResponse::send(request.header("if-match", &etag))
            .await
            .assert_problem(412, "ETAG_MISMATCH", "");
    }
    assert_eq!(session.message_ids().await, [2, 3, 4]);
    let current = session
        .web
        .get(&session.path)
        .await
        .header("etag")
        .to_owned();
    let delete = session
        .web
        .request("DELETE", &format!("{}/messages/2", session.path));
    let deleted = HttpResponse::send(delete.header("if-match", &current)).await;
    assert_eq!(deleted.status, 200, "{deleted:?}");
}

#[tokio::test]
async fn refusals_name_the_field_of_the_request() {
    let app = TestApp::start().await;
    let conversation = create_session(&app).await;
    let session = Session::of(&conversation);
    for (path, status, reason, field) in [
        ("messages/5", 404, "MESSAGE_NOT_FOUND", "messageId"),
        ("messages/0", 400, "INVALID_FIELD", "messageId"),
        ("messages/x", 400, "INVALID_FIELD", "messageId"),
        ("messages/1?erased=true", 400, "INVALID_FIELD", "erased"),
    ] {
        session
            .delete(path)
            .await
            .assert_problem(status, reason, field);
    }
    for (body, status, reason, field) in [
        (json!({}), 400, "INVALID_FIELD", "afterMessageId"),
        (
            json!({"afterMessageId": -1}),
            400,
            "INVALID_FIELD",
            "afterMessageId",
        ),
        (
            json!({"afterMessageId": 5}),
            404,
            "MESSAGE_NOT_FOUND",
            "afterMessageId",
        ),
        (
            json!({"afterMessageId": 0, "expectedLastMessageId": 3}),
            409,
            "LAST_MESSAGE_MISMATCH",
            "",
        ),
    ] {
        session
            .post("rewind", &body)
            .await
            .assert_problem(status, reason, field);
    }
    let range = |first: i64, last: i64| json!({"firstMessageId": first, "lastMessageId": last});
    for (body, status, reason, field) in [
        (json!({}), 400, "INVALID_FIELD", "messageIds"),
        (
            json!({"messageIds": [1, 0]}),
            400,
            "INVALID_FIELD",
            "messageIds[1]",
        ),
        (
            json!({"messageIds": [1, 9]}),
            404,
            "MESSAGE_NOT_FOUND",
            "messageIds[1]",
        ),
        (
            json!({"messageIds": vec![1; 501]}),
            400,
            "LIMIT_EXCEEDED",
            "messageIds",
        ),
        (
            json!({"messageIds": [1], "range": range(1, 1)}),
            400,
            "INVALID_FIELD",
            "range",
        ),
        (
            json!({"range": range(2, 1)}),
            400,
            "INVALID_FIELD",
            "range.lastMessageId",
        ),
    ] {
        session
            .post("restore", &body)
            .await
            .assert_problem(status, reason, field);
    }
    assert_eq!(session.message_ids().await, [1, 2, 3, 4]);

    // A session of another agent is answered like a missing one.
    let foreign = Session {
        web: app.http_client(),
        path: session.path.replace("/agents/a/", "/agents/b/"),
    };
    for refused in [
        foreign.delete("messages/1").await,
        foreign.post("rewind", &json!({"afterMessageId": 0})).await,
        foreign.post("restore", &json!({"messageIds": [1]})).await,
    ] {
        refused.assert_problem(404, "CONVERSATION_NOT_FOUND", "");
    }
    assert_eq!(session.message_ids().await, [1, 2, 3, 4]);
}
