//! Sessions over HTTP: list, read, change, delete. A read shows the compactions too.

#![expect(non_snake_case, reason = "test names begin with a row of docs/rows.md")]

use anneal_proto::convert::time;
use anneal_testkit::{
    HttpResponse, ScriptedModel, TestApp, TestConversation, call, eventually, message, pb, result,
    user,
};
use pb::part::Part;
use serde_json::{Value, json};

async fn create_session<'a>(app: &'a TestApp, agent: &str) -> TestConversation<'a> {
    app.conversation_with(pb::CreateConversationRequest {
        agent_id: agent.into(),
        ..Default::default()
    })
    .await
}

fn session_path(conversation: &TestConversation<'_>) -> String {
    format!("/api/agents/a/sessions/{}", conversation.id)
}

#[tokio::test]
async fn row_P3_sessions_are_listed_read_renamed_and_deleted() {
    let app = TestApp::start().await;
    let (web, conversation) = (app.http_client(), create_session(&app, "a").await);
    conversation.turn("What is in payment.py?", "A race.").await;
    create_session(&app, "b").await;
    let listed = web.get("/api/agents/a/sessions").await.json();
    assert_eq!(
        listed["sessions"].as_array().map(Vec::len),
        Some(1),
        "sessions of other agents are not listed: {listed}"
    );
    assert_eq!(
        (&listed["sessions"][0]["id"], &listed["nextPageToken"]),
        (&json!(conversation.id), &json!(""))
    );
    let read = web.get(&session_path(&conversation)).await.json();
    let contents: Vec<&Value> = read["messages"]
        .as_array()
        .expect("messages")
        .iter()
        .map(|m| &m["content"])
        .collect();
    let text = |text: &str| json!([{"type": "text", "text": text}]);
    assert_eq!(
        contents,
        [&text("What is in payment.py?"), &text("A race.")]
    );
    let renamed = HttpResponse::send(web.json(
        "PATCH",
        &session_path(&conversation),
        &json!({"title": "Payments", "pinned": true}),
    ))
    .await;
    assert_eq!(
        (renamed.status, &renamed.json()["title"]),
        (200, &json!("Payments"))
    );
    let change = json!({"status": "archived", "metadata": {"team": "billing"}});
    let archived = HttpResponse::send(web.json("PATCH", &session_path(&conversation), &change))
        .await
        .json();
    let fields = (
        &archived["title"],
        &archived["status"],
        &archived["pinned"],
        &archived["metadata"]["team"],
    );
    assert_eq!(
        fields,
        (
            &json!("Payments"),
            &json!("archived"),
            &json!(true),
            &json!("billing")
        )
    );
    let active = web.get("/api/agents/a/sessions?status=active").await.json();
    assert_eq!(active["sessions"], json!([]));
    let deleted = HttpResponse::send(web.request("DELETE", &session_path(&conversation))).await;
    assert_eq!((deleted.status, deleted.text.as_str()), (204, ""));
    for method in ["GET", "DELETE"] {
        HttpResponse::send(web.request(method, &session_path(&conversation)))
            .await
            .assert_problem(404, "CONVERSATION_NOT_FOUND", "");
    }
    assert_eq!(
        web.get("/api/agents/a/sessions").await.json()["sessions"],
        json!([])
    );
}

#[tokio::test]
async fn options_of_a_session_are_changed_shown_and_used() {
    let model = ScriptedModel::saying("Yes.").await;
    let app = TestApp::with_scripted_model(&model).await;
    let web = app.http_client();
    let started = web.chat("a", &json!({"message": "One?"})).await;
    let session = started[0].data["sessionId"].as_str().expect("named");
    let path = format!("/api/agents/a/sessions/{session}");
    let change = async |body: Value| HttpResponse::send(web.json("PATCH", &path, &body)).await;
    let options = json!({
        "tools": [{"name": "look_up", "description": "Looks.", "inputSchema": {"type": "object"}}],
        "toolChoice": {"mode": "auto"},
        "responseFormat": {"jsonSchema": {"name": "a", "schema": {"n": 1}, "strict": true}},
        "temperature": 0.25,
        "stop": ["END"],
        "maxOutputTokens": 100,
    });
    let changed = change(json!({"chatOptions": options})).await;
    assert_eq!(
        (changed.status, &changed.json()["chatOptions"]),
        (200, &options)
    );
    assert_eq!(web.get(&path).await.json()["chatOptions"], options);
    let listed = web.get("/api/agents/a/sessions").await.json();
    assert_eq!(listed["sessions"][0].get("chatOptions"), None);
    web.chat("a", &json!({"message": "Two?", "sessionId": session}))
        .await;
    let body = json!({"message": "Three?", "sessionId": session, "temperature": 0.5});
    web.chat("a", &body).await;
    let sent = |request: usize| {
        let body = &model.requests()[request].body;
        let tool = body["tools"][0]["function"]["name"].clone();
        (tool, body["temperature"].clone())
    };
    let tool = || json!("look_up");
    assert_eq!(sent(0), (Value::Null, Value::Null));
    assert_eq!(sent(1), (tool(), json!(0.25)));
    assert_eq!(sent(2), (tool(), json!(0.5)), "the turn's own come first");
    let removed = change(json!({"chatOptions": {}})).await;
    assert_eq!(
        (removed.status, removed.json().get("chatOptions")),
        (200, None)
    );
    for (options, field) in [
        (json!({"topP": 1.5}), "chatOptions.topP"),
        (json!({"toolChoice": {}}), "chatOptions.toolChoice"),
        (
            json!({"tools": [{"name": "a b"}]}),
            "chatOptions.tools[0].name",
        ),
    ] {
        let refused = change(json!({"chatOptions": options})).await;
        refused.assert_problem(400, "INVALID_FIELD", field);
    }
}

#[tokio::test]
async fn row_P4_listed_sessions_always_equal_the_stored_rows() {
    let app = TestApp::start().await;
    let (web, conversation) = (app.http_client(), create_session(&app, "a").await);
    for round in 0..3 {
        conversation
            .turn(
                &format!("Analyze the concurrency of payment.py, round {round}"),
                "Done.",
            )
            .await;
        if round == 1 {
            app.run_jobs_until_idle().await;
        }
        let row = conversation.conversation().await;
        let listed = &web.get("/api/agents/a/sessions").await.json()["sessions"][0];
        let messages = conversation.messages().await;
        let tokens: u64 = messages
            .iter()
            .filter_map(|message| message.tokens)
            .map(|count| count.tokens)
            .sum();
        let last_time = messages.last().and_then(|message| message.created_time);
        assert_eq!(
            (&listed["title"], row.title.as_str()),
            (
                &json!("Analyze the concurrency of pay"),
                "Analyze the concurrency of pay"
            )
        );
        assert_eq!(
            (&listed["messageCount"], &listed["tokenEstimate"]),
            (&json!(messages.len()), &json!(tokens))
        );
        assert_eq!(
            (&listed["sessionId"], &listed["agentId"]),
            (&json!(conversation.id), &json!("a"))
        );
        assert_eq!(
            listed["createdAt"],
            json!(row.created_time.map(time::millis))
        );
        assert_eq!(listed["lastAt"], json!(last_time.map(time::millis)));
        let read = web.get(&session_path(&conversation)).await.json();
        for field in [
            "title",
            "messageCount",
            "createdAt",
            "lastAt",
            "tokenEstimate",
            "status",
            "sessionId",
        ] {
            assert_eq!(read[field], listed[field], "{field}");
        }
    }
}

#[tokio::test]
async fn row_P5_a_compaction_reports_its_first_kept_entry_and_saved_tokens() {
    let app = TestApp::start().await;
    let (web, conversation) = (app.http_client(), create_session(&app, "a").await);
    conversation.turns(30).await;
    app.run_jobs_until_idle().await;
    let (checkpoints, read) = (
        conversation.checkpoints().await,
        web.get(&session_path(&conversation)).await.json(),
    );
    let compactions = read["compactions"].as_array().expect("compactions");
    assert!(!checkpoints.is_empty());
    assert_eq!(compactions.len(), checkpoints.len());
    for (shown, stored) in compactions.iter().zip(&checkpoints) {
        assert_eq!(shown["firstKeptEntryId"], json!(stored.last_message_id + 1));
        assert_eq!(
            (&shown["tokensBefore"], &shown["tokensAfter"]),
            (&json!(stored.tokens_before), &json!(stored.tokens_after))
        );
        assert_eq!(
            (&shown["summary"], &shown["valid"]),
            (&json!(stored.summary), &json!(stored.valid))
        );
        assert!(
            shown["createdAt"]
                .as_i64()
                .is_some_and(|millis| millis > 1_600_000_000_000),
            "milliseconds since 1970, a time after September 2020: {shown}"
        );
    }
}

#[tokio::test]
async fn every_kind_of_content_comes_back_byte_for_byte() {
    let app = TestApp::start().await;
    let (web, conversation) = (app.http_client(), create_session(&app, "a").await);
    let input = "{\"b\": 1e2,\"a\":1.0,\"a\":2, broken";
    let reasoning = pb::ReasoningPart {
        text: "hm".into(),
        signature: "sig".into(),
        provider: "anthropic".into(),
        redacted: false,
    };
    let picture = pb::MediaPart {
        uri: "https://x.example/a.png".into(),
        media_type: "image/png".into(),
        size_bytes: 7,
        tokens: 0,
    };
    let thought = message(pb::Role::Assistant, vec![Part::Reasoning(reasoning)]);
    let with_picture = message(
        pb::Role::User,
        vec![
            Part::Text(pb::TextPart {
                text: "NUL \0 \u{2028} \"q\"".into(),
            }),
            Part::Media(picture),
        ],
    );
    conversation
        .append_all(vec![
            with_picture,
            thought,
            call("c1", input),
            result("c1", "42\n"),
        ])
        .await;
    let read = web.get(&session_path(&conversation)).await.json();
    let content = |index: usize| read["messages"][index]["content"].clone();
    assert_eq!(
        content(0)[0],
        json!({"type": "text", "text": "NUL \0 \u{2028} \"q\""})
    );
    assert_eq!(
        content(0)[1],
        json!({"type": "media", "uri": "https://x.example/a.png", "mediaType": "image/png", "sizeBytes": 7})
    );
    assert_eq!(content(1)[0]["signature"], json!("sig"));
    assert_eq!(
        content(2)[0],
        json!({"type": "tool_use", "id": "c1", "name": "look", "input": input})
    );
    assert_eq!(
        content(3)[0],
        json!({"type": "tool_result", "toolUseId": "c1", "text": "42\n", "isError": false, "media": []})
    );
    let roles: Vec<&Value> = read["messages"]
        .as_array()
        .expect("messages")
        .iter()
        .map(|m| &m["role"])
        .collect();
    assert_eq!(roles, ["user", "assistant", "assistant", "tool"]);
}

#[tokio::test]
async fn a_long_history_is_read_whole_or_in_requested_parts() {
    let app = TestApp::start().await;
    let (web, conversation) = (app.http_client(), create_session(&app, "a").await);
    for hundred in 0..12 {
        conversation
            .append_all(
                (0..100)
                    .map(|n| user(&format!("message {}", hundred * 100 + n + 1)))
                    .collect(),
            )
            .await;
        if hundred == 5 {
            conversation.insert_separator().await;
        }
    }
    let ids = |read: &Value| -> Vec<i64> {
        read["messages"]
            .as_array()
            .expect("messages")
            .iter()
            .filter_map(|m| m["id"].as_i64())
            .collect()
    };
    let whole = web.get(&session_path(&conversation)).await.json();
    assert_eq!(ids(&whole), (1..=1_200).collect::<Vec<_>>());
    assert_eq!(
        whole["messages"][1_199]["content"][0]["text"],
        json!("message 1200")
    );
    assert_eq!(whole["separators"].as_array().map(Vec::len), Some(1));
    assert_eq!(whole["separators"][0]["afterMessageId"], json!(600));
    for (query, from, to) in [
        ("after=1190", 1_191, 1_200),
        ("after=3&limit=2", 4, 5),
        ("limit=700", 1, 700),
    ] {
        let part = web
            .get(&format!("{}?{query}", session_path(&conversation)))
            .await
            .json();
        assert_eq!(ids(&part), (from..=to).collect::<Vec<_>>(), "{query}");
        assert_eq!(part["messageCount"], json!(1_200));
    }
    assert_eq!(
        ids(&web
            .get(&format!("{}?after=1200", session_path(&conversation)))
            .await
            .json()),
        [0_i64; 0]
    );
    for (query, field) in [
        ("limit=0", "limit"),
        ("limit=x", "limit"),
        ("after=-1", "after"),
        ("after=1.5", "after"),
    ] {
        web.get(&format!("{}?{query}", session_path(&conversation)))
            .await
            .assert_problem(400, "INVALID_FIELD", field);
    }
}

#[tokio::test]
async fn lists_are_paged_without_gaps() {
    let app = TestApp::start().await;
    for _ in 0..7 {
        create_session(&app, "a").await;
    }
    let (mut ids, mut token) = (Vec::new(), String::new());
    loop {
        let page = app
            .http_client()
            .get(&format!(
                "/api/agents/a/sessions?pageSize=3&pageToken={token}"
            ))
            .await
            .json();
        let sessions = page["sessions"].as_array().expect("sessions");
        ids.extend(
            sessions
                .iter()
                .filter_map(|session| session["id"].as_str().map(str::to_owned)),
        );
        page["nextPageToken"]
            .as_str()
            .expect("a token")
            .clone_into(&mut token);
        if token.is_empty() {
            break;
        }
    }
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), 7);
    for (query, field) in [
        ("pageSize=-1", "pageSize"),
        ("pageSize=x", "pageSize"),
        ("pageToken=x", "pageToken"),
        ("status=gone", "status"),
    ] {
        app.http_client()
            .get(&format!("/api/agents/a/sessions?{query}"))
            .await
            .assert_problem(400, "INVALID_FIELD", field);
    }
}

#[tokio::test]
async fn a_change_with_an_outdated_etag_is_refused() {
    let app = TestApp::start().await;
    let (web, conversation) = (app.http_client(), create_session(&app, "a").await);
    let etag = web
        .get(&session_path(&conversation))
        .await
        .header("etag")
        .to_owned();
    let change = |title: &str, etag: &str| {
        web.json(
            "PATCH",
            &session_path(&conversation),
            &json!({"title": title}),
        )
        .header("if-match", etag)
    };
    let first = HttpResponse::send(change("one", &etag)).await;
    assert_eq!(first.status, 200);
    assert_ne!(first.header("etag"), etag);
    HttpResponse::send(change("two", &etag))
        .await
        .assert_problem(412, "ETAG_MISMATCH", "");
    assert_eq!(
        HttpResponse::send(change("three", first.header("etag")))
            .await
            .json()["title"],
        json!("three")
    );
    assert_eq!(HttpResponse::send(change("four", "*")).await.status, 200);
    for broken in ["1", "W/\"1\"", "\"1\", \"2\"", "\"\""] {
        HttpResponse::send(change("five", broken))
            .await
            .assert_problem(400, "INVALID_FIELD", "If-Match");
    }
    assert_eq!(conversation.conversation().await.title, "four");
}

#[tokio::test]
async fn a_session_is_visible_only_under_its_own_agent() {
    let app = TestApp::start().await;
    let conversation = create_session(&app, "b").await;
    conversation.turn("secret", "kept").await;
    for method in ["GET", "DELETE", "PATCH"] {
        let mut answers = Vec::new();
        for id in [
            conversation.id.as_str(),
            "00000000-0000-4000-8000-000000000000",
        ] {
            let request = app.http_client().json(
                method,
                &format!("/api/agents/a/sessions/{id}"),
                &json!({"title": "mine"}),
            );
            let refused = HttpResponse::send(request).await;
            refused.assert_problem(404, "CONVERSATION_NOT_FOUND", "");
            answers.push(refused.text);
        }
        assert_eq!(answers[0], answers[1], "{method}");
    }
    assert_ne!(conversation.conversation().await.title, "mine");
}

#[tokio::test]
async fn a_session_created_over_http_continues_over_grpc() {
    let model = ScriptedModel::saying("Hi.").await;
    let app = TestApp::with_scripted_model(&model).await;
    let received = app
        .http_client()
        .chat("a", &json!({"message": "Hello."}))
        .await;
    let conversation = TestConversation {
        app: &app,
        id: received[0].data["sessionId"]
            .as_str()
            .expect("named")
            .to_owned(),
    };
    conversation.chat("Over gRPC.").await.done();
    eventually("all four messages are listed", async || {
        app.http_client()
            .get(&session_path(&conversation))
            .await
            .json()["messages"]
            .as_array()
            .map(Vec::len)
            == Some(4)
    })
    .await;
    conversation.verify().await;
}
