//! Watching a session over HTTP, as server-sent events.

use anneal_core::job::JobKind;
use anneal_testkit::{SseEvent, SseStream, TestApp, TestConversation, eventually, pb, prose};
use serde_json::json;

async fn create_session(app: &TestApp) -> TestConversation<'_> {
    app.conversation_with(pb::CreateConversationRequest {
        agent_id: "a".into(),
        ..Default::default()
    })
    .await
}

fn events_path(conversation: &TestConversation<'_>, query: &str) -> String {
    format!("/api/agents/a/sessions/{}/events{query}", conversation.id)
}

/// Opens a watch. `after` is the id of the last event that was received, or empty.
async fn open_watch(conversation: &TestConversation<'_>, query: &str, after: &str) -> SseStream {
    let request = conversation
        .app
        .http_client()
        .request("GET", &events_path(conversation, query));
    SseStream::open(if after.is_empty() {
        request
    } else {
        request.header("last-event-id", after)
    })
    .await
}

/// Reads up to and including the first event of this kind.
async fn read_until(events: &mut SseStream, kind: &str) -> Vec<SseEvent> {
    let mut received = Vec::new();
    while received
        .last()
        .is_none_or(|event: &SseEvent| event.kind() != kind)
    {
        received.push(events.next().await.expect("the events go on"));
    }
    received
}

fn appended_ids(received: &[SseEvent]) -> Vec<i64> {
    let appended = received
        .iter()
        .filter(|event| event.kind() == "message_appended");
    appended
        .filter_map(|event| event.data["message"]["id"].as_i64())
        .collect()
}

#[tokio::test]
async fn messages_counts_and_checkpoints_are_streamed_as_they_happen() {
    let app = TestApp::start().await;
    let conversation = create_session(&app).await;
    let mut events = open_watch(&conversation, "", "").await;
    let started = events.take(1).await;
    assert_eq!(
        started[0].data,
        json!({"type": "started", "lastMessageId": 0})
    );
    conversation.turns(30).await;
    app.run_jobs_until_idle().await;
    let received = read_until(&mut events, "checkpoint_created").await;
    assert!(
        received.iter().any(
            |event| event.kind() == "tokens_counted" && event.data["throughMessageId"].is_i64()
        )
    );
    assert!(
        appended_ids(&received)
            .windows(2)
            .all(|pair| pair[0] + 1 == pair[1]),
        "{received:?}"
    );
    let appended = received
        .iter()
        .find(|event| event.kind() == "message_appended")
        .expect("messages are streamed");
    assert_eq!(
        appended.data["message"]["content"],
        json!([{"type": "text", "text": "go on"}])
    );
    assert_eq!(
        received.last().expect("an event arrived").data["lastMessageId"],
        json!(conversation.checkpoints().await[0].last_message_id)
    );
    assert!(
        received.iter().all(|event| !event.id.is_empty()),
        "every event has a position"
    );
}

#[tokio::test]
async fn a_watch_resumes_after_the_last_received_event() {
    let app = TestApp::start().await;
    let conversation = create_session(&app).await;
    conversation.turns(5).await;
    let mut events = open_watch(&conversation, "?after=0", "").await;
    let mut received = Vec::new();
    while appended_ids(&received).len() < 4 {
        received.extend(events.take(1).await);
    }
    drop(events);
    conversation.turn("and", "more").await;
    let mut events = open_watch(
        &conversation,
        "",
        &received.last().expect("an event arrived").id,
    )
    .await;
    while appended_ids(&received).last() != Some(&12) {
        received.extend(events.take(1).await);
    }
    assert_eq!(appended_ids(&received), (1..=12).collect::<Vec<_>>());
    let mut without_content = open_watch(&conversation, "?after=10&withoutContent=true", "").await;
    let mut received = Vec::new();
    while appended_ids(&received).last() != Some(&12) {
        received.extend(without_content.take(1).await);
    }
    assert_eq!(appended_ids(&received), [11, 12]);
    let appended = received
        .iter()
        .find(|event| event.kind() == "message_appended")
        .expect("messages are streamed");
    assert_eq!(appended.data["message"]["content"], json!([]));
}

#[tokio::test]
async fn summaries_and_dead_jobs_are_streamed_and_a_second_server_resumes_the_watch() {
    let app = TestApp::start().await;
    let second_server = app.second_server().await;
    let policy = pb::Policy {
        large_message_threshold: Some(200),
        ..Default::default()
    };
    let ask = pb::CreateConversationRequest {
        agent_id: "a".into(),
        policy: Some(policy),
        ..Default::default()
    };
    let conversation = app.conversation_with(ask).await;
    let mut events = open_watch(&conversation, "", "").await;
    conversation.append(&prose(0, 40)).await;
    app.run_jobs_until_idle().await;
    let received = read_until(&mut events, "summary_ready").await;
    let ready = received.last().expect("an event arrived");
    let stored = conversation.message(1).await;
    let (summary_tokens, tokens) = (
        stored.summary.expect("a summary").tokens,
        stored.tokens.expect("a count").tokens,
    );
    let expected = json!({"type": "summary_ready", "messageId": 1, "summaryTokens": summary_tokens, "tokens": tokens});
    assert_eq!(ready.data, expected);
    drop(events);

    conversation.append("one more").await;
    conversation.give_up_job(JobKind::CountTokens).await;
    let at_second_server = TestConversation {
        app: &second_server,
        id: conversation.id.clone(),
    };
    let mut resumed = open_watch(&at_second_server, "", &ready.id).await;
    let received = read_until(&mut resumed, "job_dead").await;
    assert_eq!(
        appended_ids(&received),
        [2],
        "earlier events are not repeated"
    );
    let dead = &received.last().expect("an event arrived").data;
    // The error with which `give_up_job` fails the job.
    let error = "it cannot be done";
    assert_eq!(
        *dead,
        json!({"type": "job_dead", "kind": "count_tokens", "attempts": 1, "lastError": error})
    );
}

#[tokio::test]
async fn changes_of_messages_are_streamed_and_resumed_between() {
    let app = TestApp::start().await;
    let conversation = create_session(&app).await;
    conversation.turns(2).await;
    let mut events = open_watch(&conversation, "", "").await;
    events.take(1).await;
    let change = conversation.withdraw(&[1, 3, 4]).await;
    let withdrawn = events.take(1).await.remove(0);
    assert_eq!(
        withdrawn.data,
        json!({
            "type": "messages_withdrawn",
            "messages": [
                {"firstMessageId": 1, "lastMessageId": 1},
                {"firstMessageId": 3, "lastMessageId": 4}
            ],
            "changeId": change.change_id
        })
    );
    drop(events);
    let change = conversation.restore(&[4]).await;
    let mut resumed = open_watch(&conversation, "", &withdrawn.id).await;
    let received = read_until(&mut resumed, "messages_restored").await;
    let restored = json!({
        "type": "messages_restored",
        "messages": [{"firstMessageId": 4, "lastMessageId": 4}],
        "changeId": change.change_id
    });
    assert_eq!(
        received.iter().map(|event| &event.data).collect::<Vec<_>>(),
        [&json!({"type": "started", "lastMessageId": 4}), &restored]
    );
    let mut late = open_watch(&conversation, "?after=4", "").await;
    let received = read_until(&mut late, "messages_restored").await;
    let kinds: Vec<&str> = received.iter().map(SseEvent::kind).collect();
    assert_eq!(
        kinds,
        ["started", "messages_withdrawn", "messages_restored"],
        "changes of older messages come too"
    );
}

#[tokio::test]
async fn response_headers_stop_proxies_from_buffering_events() {
    let model = anneal_testkit::ScriptedModel::saying("Yes.").await;
    let app = TestApp::with_scripted_model(&model).await;
    let conversation = create_session(&app).await;
    let chat = app
        .http_client()
        .json("POST", "/api/agents/a/chat", &json!({"message": "x"}));
    for request in [
        app.http_client()
            .request("GET", &events_path(&conversation, "")),
        chat,
    ] {
        let answered = request.send().await.expect("the server answers");
        assert_eq!(
            (
                answered.status().as_u16(),
                &answered.headers()["x-accel-buffering"]
            ),
            (200, &"no".parse().expect("a header"))
        );
    }
}

#[tokio::test]
async fn an_invalid_watch_is_refused_with_a_problem_document() {
    let app = TestApp::start().await;
    let (conversation, web) = (create_session(&app).await, app.http_client());
    let missing = "/api/agents/a/sessions/00000000-0000-4000-8000-000000000000/events";
    web.get(missing)
        .await
        .assert_problem(404, "CONVERSATION_NOT_FOUND", "");
    web.get(&events_path(&conversation, "").replace("agents/a", "agents/b"))
        .await
        .assert_problem(404, "CONVERSATION_NOT_FOUND", "");
    web.get(&events_path(&conversation, "?after=-1"))
        .await
        .assert_problem(400, "INVALID_FIELD", "after");
    let forged = web
        .request("GET", &events_path(&conversation, ""))
        .header("last-event-id", "forged");
    anneal_testkit::HttpResponse::send(forged)
        .await
        .assert_problem(400, "INVALID_FIELD", "Last-Event-ID");
}

#[tokio::test]
async fn a_stopping_server_ends_its_watches() {
    let app = TestApp::start().await;
    let web = app.http_client();
    let conversation = create_session(&app).await;
    let mut events = open_watch(&conversation, "", "").await;
    events.take(1).await;
    drop(app);
    let rest = events.rest().await;
    assert_eq!(
        rest.last()
            .map(|event| event.data["problem"]["reason"].clone()),
        Some(json!("SERVER_STOPPING"))
    );
    eventually("the port is closed", async || {
        web.request("GET", "/healthz").send().await.is_err()
    })
    .await;
}
