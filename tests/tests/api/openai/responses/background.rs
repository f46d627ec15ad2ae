//! Responses in the background are retrieved, resumed at every event, and cancelled.

use anneal_testkit::{Gate, HttpResponse, Say, Script, ScriptedModel, TestApp};
use serde_json::{Value, json};

use super::{
    RESPONSES, create, create_stream, id_of, number, read_events, retrieve, streamed_text, text_of,
    wait_for_end,
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
    let items = web
        .get(&format!("/v1/conversations/{conversation}/items"))
        .await;
    assert_eq!(items.json()["data"], json!([]));
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
