//! Responses in the background are retrieved, resumed at every event, and cancelled.

use anneal_testkit::{Gate, HttpResponse, Say, Script, ScriptedModel, TestApp};
use serde_json::{Value, json};
use uuid::Uuid;

use super::{
    RESPONSES, create, create_stream, create_with_key, id_of, list_texts, number, read_events,
    retrieve, streamed_text, text_of, wait_for_end,
};
use crate::openai::{assert_error, post};

async fn cancel(app: &TestApp, id: &str) -> HttpResponse {
    let path = format!("{RESPONSES}/{id}/cancel");
    HttpResponse::send(app.http_client().request("POST", &path)).await
}

#[tokio::test]
async fn a_response_in_the_background_goes_on_without_a_reader() {
    let gate = Gate::default();
    let behind = gate.clone();
    let model = ScriptedModel::start(move |request| {
        Script::says(request, [Say::text("Done "), Say::text("now.")]).gated(&behind)
    })
    .await;
    let app = TestApp::with_scripted_model_without_timeouts(&model).await;
    let web = app.http_client();
    let queued = create(&web, &json!({"input": "a", "background": true})).await;
    assert_eq!(
        (&queued["status"], &queued["output"]),
        (&json!("queued"), &json!([]))
    );
    let id = id_of(&queued);
    assert_eq!(retrieve(&web, &id).await["status"], "in_progress");
    gate.open_for_ever();
    let ended = wait_for_end(&web, &id).await;
    assert_eq!(ended["status"], "completed");
    assert_eq!(text_of(&ended), "Done now.");
    assert_eq!(ended["background"], true);
}

#[tokio::test]
async fn a_repeated_create_in_the_background_says_how_the_response_is_now() {
    let model = ScriptedModel::saying("Yes.").await;
    let app = TestApp::with_scripted_model(&model).await;
    let web = app.http_client();
    let body = json!({"input": "a", "background": true});
    let queued = create_with_key(&web, "k", &body).await.json();
    assert_eq!(queued["status"], "queued");
    let ended = wait_for_end(&web, &id_of(&queued)).await;
    assert_eq!(ended["status"], "completed");
    assert_eq!(create_with_key(&web, "k", &body).await.json(), ended);
    assert_eq!(model.requests().len(), 1);
}

#[tokio::test]
async fn a_stream_is_resumed_at_every_event() {
    let says = [
        Say::text("Größe "),
        Say::text("zählt, "),
        Say::tool("c", "look", r#"{"ä":1}"#),
    ];
    let model = ScriptedModel::start(move |request| Script::says(request, says.clone())).await;
    let app = TestApp::with_scripted_model(&model).await;
    let web = app.http_client();
    let body = json!({"input": "a", "background": true, "tools": [super::tool("look")]});
    let events = create_stream(&web, body).await;
    let id = id_of(&events[0]["response"]);
    for (index, event) in events.iter().enumerate() {
        let path = format!(
            "{RESPONSES}/{id}?stream=true&starting_after={}",
            number(event)
        );
        let rest = read_events(&web.get(&path).await);
        let mut whole = events[..=index].to_vec();
        whole.extend(rest);
        assert!(whole.is_sorted_by(|one, next| number(one) < number(next)));
        assert_eq!(streamed_text(&whole), "Größe zählt, ");
        assert_eq!(whole.last(), events.last());
        let items = |events: &[Value]| {
            let done = events.iter();
            done.filter(|event| event["type"] == "response.output_item.done")
                .count()
        };
        assert_eq!(items(&whole), items(&events));
    }
    let replay = read_events(&web.get(&format!("{RESPONSES}/{id}?stream=true")).await);
    assert_eq!(replay[0], events[0]);
    assert_eq!(streamed_text(&replay), streamed_text(&events));
    let bad = web.get(&format!("{RESPONSES}/{id}?starting_after=1")).await;
    assert_error(&bad, 400, "starting_after", "invalid_value");
}

#[tokio::test]
async fn a_reader_joins_a_response_that_runs() {
    let gate = Gate::default();
    let behind = gate.clone();
    let model = ScriptedModel::start(move |request| {
        Script::says(request, [Say::text("One "), Say::text("two.")]).gated(&behind)
    })
    .await;
    let app = TestApp::with_scripted_model_without_timeouts(&model).await;
    let web = app.http_client();
    let id = id_of(&create(&web, &json!({"input": "a", "background": true})).await);
    let (stream, ()) = tokio::join!(
        async { web.get(&format!("{RESPONSES}/{id}?stream=true")).await },
        async { gate.open_for_ever() }
    );
    let events = read_events(&stream);
    assert_eq!(streamed_text(&events), "One two.");
    let last = events.last().expect("has events");
    assert_eq!(last["response"], retrieve(&web, &id).await);
}

#[tokio::test]
async fn a_cancelled_response_stays_cancelled_and_keeps_nothing() {
    let model =
        ScriptedModel::start(|request| Script::says(request, [Say::text("Once")]).hanging_after(2))
            .await;
    let app = TestApp::with_scripted_model_without_timeouts(&model).await;
    let web = app.http_client();
    let conversation = id_of(&post(&web, "/v1/conversations", &json!({})).await.json());
    let body = json!({"input": "a", "background": true, "conversation": conversation});
    let id = id_of(&create(&web, &body).await);
    model.wait_for_calls(1).await;
    for _ in 0..2 {
        let cancelled = cancel(&app, &id).await.json();
        assert_eq!(
            (&cancelled["status"], &cancelled["output"]),
            (&json!("cancelled"), &json!([]))
        );
    }
    assert_eq!(retrieve(&web, &id).await["status"], "cancelled");
    assert!(list_texts(&web, &conversation).await.is_empty());
}

#[tokio::test]
async fn only_a_running_response_in_the_background_can_be_cancelled() {
    let model = ScriptedModel::saying("Yes.").await;
    let app = TestApp::with_scripted_model(&model).await;
    let web = app.http_client();
    let plain = id_of(&create(&web, &json!({"input": "a"})).await);
    assert_error(
        &cancel(&app, &plain).await,
        400,
        "response_id",
        "invalid_value",
    );
    let ended = id_of(&create(&web, &json!({"input": "a", "background": true})).await);
    wait_for_end(&web, &ended).await;
    assert_error(
        &cancel(&app, &ended).await,
        400,
        "response_id",
        "invalid_value",
    );
    assert_eq!(retrieve(&web, &ended).await["status"], "completed");
}

/// A failed response whose messages stand, as if its server had died before it withdrew them, and
/// its conversation.
async fn failed_without_withdrawal(app: &TestApp) -> (String, String) {
    let web = app.http_client();
    let conversation = id_of(&post(&web, "/v1/conversations", &json!({})).await.json());
    let body = json!({
        "background": true, "conversation": conversation,
        "input": [
            {"role": "user", "content": "one"},
            {"role": "assistant", "content": "Yes?"},
            {"role": "user", "content": "two"},
        ],
    });
    let id = id_of(&create(&web, &body).await);
    wait_for_end(&web, &id).await;
    sqlx::query(
        r#"update ai_response set outcome = '{"status": "failed", "ended_at": 1}', ended_ts = now()"#,
    )
    .execute(&mut app.db().await)
    .await
    .expect("changes the end");
    assert_eq!(list_texts(&web, &conversation).await.len(), 4);
    (id, conversation)
}

#[tokio::test]
async fn a_look_at_an_end_without_output_withdraws_what_its_server_has_left() {
    let model = ScriptedModel::saying("Yes.").await;
    let app = TestApp::with_scripted_model(&model).await;
    let web = app.http_client();
    let (id, conversation) = failed_without_withdrawal(&app).await;
    let shown = retrieve(&web, &id).await;
    assert_eq!(
        (&shown["status"], &shown["output"]),
        (&json!("failed"), &json!([]))
    );
    assert!(list_texts(&web, &conversation).await.is_empty());
    // A user has the last word.
    let uuid = conversation.strip_prefix("conv_").expect("has a prefix");
    let uuid = Uuid::parse_str(uuid).expect("is a UUID");
    let stored = app.conversation_by_id(&uuid.to_string());
    stored.restore(&[1, 4]).await;
    let shown = retrieve(&web, &id).await;
    assert_eq!(
        (&shown["status"], &shown["output"]),
        (&json!("failed"), &json!([]))
    );
    assert_eq!(list_texts(&web, &conversation).await, ["one", "Yes."]);
}

#[tokio::test]
async fn a_look_at_an_old_end_changes_nothing() {
    let model = ScriptedModel::saying("Yes.").await;
    let app = TestApp::with_scripted_model(&model).await;
    let web = app.http_client();
    let (id, conversation) = failed_without_withdrawal(&app).await;
    sqlx::query("update ai_response set ended_ts = now() - interval '61 minutes'")
        .execute(&mut app.db().await)
        .await
        .expect("changes the end");
    assert_eq!(retrieve(&web, &id).await["status"], "failed");
    assert_eq!(list_texts(&web, &conversation).await.len(), 4);
}

#[tokio::test]
async fn the_input_of_a_response_whose_server_died_is_withdrawn_by_the_first_look() {
    let model = ScriptedModel::saying("Yes.").await;
    let app = TestApp::with_scripted_model(&model).await;
    let web = app.http_client();
    let (id, conversation) = failed_without_withdrawal(&app).await;
    // Its server has stored a part of the input, and recorded nothing.
    sqlx::query(
        "update ai_response set outcome = null, ended_ts = null, question_last_id = null, answer_message_id = null,
             request_id = 'other', created_ts = now() - interval '1 hour'",
    )
    .execute(&mut app.db().await)
    .await
    .expect("changes the row");
    sqlx::query(
        "update ai_message set request_id = case message_id when 1 then 'other/input/0/0' end,
             request_digest = case message_id when 1 then request_digest end,
             request_messages = case message_id when 1 then request_messages end",
    )
    .execute(&mut app.db().await)
    .await
    .expect("changes the messages");
    assert_eq!(retrieve(&web, &id).await["status"], "failed");
    assert_eq!(list_texts(&web, &conversation).await, ["two", "Yes."]);
}
