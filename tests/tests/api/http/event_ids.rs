//! Ids of a turn's events: how long they are, what a turn's events cost on the wire, and which ids
//! are refused.

use anneal_testkit::{
    HttpResponse, Say, Script, ScriptedModel, SseEvent, TestApp, TestConversation, call, result,
    text_of, user,
};
use serde_json::{Value, json};

use crate::http::{CHAT, session_of};

/// The user's message of every turn.
const MESSAGE: &str = "Tell me.";
/// Characters of the session at the beginning of an event id. After them comes the number of the
/// user's message.
const SESSION_CHARACTERS: usize = 11;

fn request_body() -> Value {
    json!({"message": MESSAGE})
}

/// The events of an answer's body.
fn parse_events(body: &str) -> Vec<SseEvent> {
    let events = body.split("\n\n").filter_map(|block| {
        let (id, data) = block.strip_prefix("id: ")?.split_once("\ndata: ")?;
        Some(SseEvent {
            id: id.to_owned(),
            data: serde_json::from_str(data).expect("data is JSON"),
        })
    });
    events.collect()
}

#[tokio::test]
async fn an_answer_whose_words_arrive_at_once_takes_at_most_twice_the_bytes_of_its_text() {
    const WORDS: usize = 2_000;
    let words: Vec<String> = (0..WORDS).map(|n| format!("word{n} ")).collect();
    let model = ScriptedModel::start({
        let words = words.clone();
        move |sent_request| Script::says(sent_request, words.iter().map(|word| Say::text(word)))
    })
    .await;
    let app = TestApp::with_scripted_model_without_timeouts(&model).await;
    let second_server = app.second_server().await;
    let web = app.http_client();
    let answer = HttpResponse::send(web.json("POST", CHAT, &request_body())).await;
    let (received, text) = (parse_events(&answer.text), words.concat());
    assert_eq!(text_of(&received), text);
    assert!(
        answer.text.len() <= 2 * text.len(),
        "{} bytes on the wire in {} events for {} bytes of text",
        answer.text.len(),
        received.len(),
        text.len()
    );
    let longest = received.iter().map(|event| event.id.len()).max();
    assert!(longest <= Some(22), "{longest:?}");
    for cut in 0..received.len() - 1 {
        for web in [app.http_client(), second_server.http_client()] {
            let rest = web.resume("a", &received[cut].id, None).await.rest().await;
            assert_eq!(
                text_of(&received[..=cut]) + text_of(&rest).as_str(),
                text,
                "after {}",
                received[cut].id
            );
        }
    }
    assert_eq!(model.requests().len(), 1);
}

#[tokio::test]
async fn sessions_whose_ids_are_abbreviated_alike_are_told_apart_by_the_body() {
    let model = ScriptedModel::saying("Yes.").await;
    let app = TestApp::with_scripted_model(&model).await;
    // The first six and the last two bytes of the first two are the same.
    let sessions = [
        "01900000-0000-7111-8000-00000000aaaa",
        "01900000-0000-7222-8000-00000000aaaa",
        "01900000-0000-7333-8000-00000000bbbb",
    ];
    for session in sessions {
        let insert = "insert into ai_conversation (tenant_id, conversation_id, agent_id, user_id, title, pinned,
                metadata, system_prompt, system_prompt_tokens, policy, encoding)
             values ('00000000-0000-7000-8000-000000000001', $1::uuid, 'a', '', '', false, '{}', '', 0, '{}', 1)";
        sqlx::query(insert)
            .bind(session)
            .execute(&mut app.db().await)
            .await
            .expect("inserts");
    }
    let web = app.http_client();
    let mut ids = Vec::new();
    for session in sessions {
        let body = json!({"message": MESSAGE, "sessionId": session});
        ids.push(web.chat("a", &body).await[0].id.clone());
    }
    assert!(ids[0] == ids[1] && ids[1] != ids[2], "{ids:?}");
    let refused = web.request("POST", CHAT).header("last-event-id", &ids[0]);
    HttpResponse::send(refused)
        .await
        .assert_problem(400, "INVALID_FIELD", "sessionId");
    for (session, id) in sessions.iter().zip(&ids) {
        let body = json!({"sessionId": session});
        let rest = web.resume("a", id, Some(&body)).await.rest().await;
        let done = rest.last().expect("the turn has ended");
        assert_eq!(
            (text_of(&rest).as_str(), &done.data["sessionId"]),
            ("Yes.", &json!(session))
        );
    }
    let alone = web.resume("a", &ids[2], None).await.rest().await;
    assert_eq!(text_of(&alone), "Yes.");
    assert_eq!(model.requests().len(), 3);
}

#[tokio::test]
async fn forged_event_ids_and_ids_of_other_sessions_are_refused() {
    let model = ScriptedModel::saying("Yes.").await;
    let app = TestApp::with_scripted_model(&model).await;
    let received = app.http_client().chat("a", &request_body()).await;
    let long = "A".repeat(4_000);
    let session_alone = &received[0].id[..SESSION_CHARACTERS];
    for forged in ["", "1", "null", "..%00", long.as_str(), session_alone] {
        let refused = HttpResponse::send(
            app.http_client()
                .json("POST", CHAT, &request_body())
                .header("last-event-id", forged),
        )
        .await;
        refused.assert_problem(400, "INVALID_FIELD", "Last-Event-ID");
    }
    let other = json!({"message": MESSAGE, "sessionId": "00000000-0000-4000-8000-000000000000"});
    let refused = HttpResponse::send(
        app.http_client()
            .json("POST", CHAT, &other)
            .header("last-event-id", &received[0].id),
    )
    .await;
    refused.assert_problem(400, "INVALID_FIELD", "sessionId");
    let elsewhere = app
        .http_client()
        .request("POST", "/api/agents/b/chat")
        .header("last-event-id", &received[0].id);
    HttpResponse::send(elsewhere)
        .await
        .assert_problem(404, "CONVERSATION_NOT_FOUND", "");
    assert_eq!(model.requests().len(), 1);
}

#[tokio::test]
async fn a_well_formed_forged_id_stores_nothing_and_calls_no_model() {
    let model = ScriptedModel::saying("Yes.").await;
    let app = TestApp::with_scripted_model(&model).await;
    let received = app
        .http_client()
        .chat("a", &json!({"message": MESSAGE, "requestId": "one"}))
        .await;
    let session = session_of(&received);
    app.http_client()
        .chat(
            "a",
            &json!({"message": MESSAGE, "requestId": "two", "sessionId": session}),
        )
        .await;
    let conversation = TestConversation {
        app: &app,
        id: session,
    };
    conversation
        .append_all(vec![user("look"), call("c1", "{}"), result("c1", "42")])
        .request_id("plain")
        .await;
    conversation.append("alone").request_id("alone").await;
    let before = conversation.messages().await.len();
    let session = &received[0].id[..SESSION_CHARACTERS];
    // Turn `one` stored messages 1 and 2, `two` 3 and 4, `plain` 5 to 7, `alone` 8.
    for message_id in [2, 4, 5, 6, 7, 8, 99] {
        let forged = format!("{session}{message_id}");
        for body in [None, Some(request_body())] {
            let sent_request = match &body {
                Some(body) => app.http_client().json("POST", CHAT, body),
                None => app.http_client().request("POST", CHAT),
            };
            let refused = HttpResponse::send(sent_request.header("last-event-id", &forged)).await;
            // `plain` and `alone` are request ids of appends, not of turns. A request with another
            // message than that of its request id is refused as such.
            if [5, 8].contains(&message_id) && body.is_some() {
                refused.assert_problem(409, "REQUEST_ID_REUSED", "");
            } else {
                refused.assert_problem(400, "INVALID_FIELD", "Last-Event-ID");
            }
        }
    }
    // The first message of another turn is the position at that turn's beginning.
    let other_turn = format!("{session}3");
    let rest = app.http_client().resume("a", &other_turn, None).await;
    assert_eq!(text_of(&rest.rest().await), "Yes.");
    let body = json!({"message": MESSAGE, "requestId": "one"});
    let refused = app.http_client().json("POST", CHAT, &body);
    HttpResponse::send(refused.header("last-event-id", &other_turn))
        .await
        .assert_problem(400, "INVALID_FIELD", "requestId");
    assert_eq!(
        (conversation.messages().await.len(), model.requests().len()),
        (before, 2),
        "no message was stored and no model called"
    );
}
