//! Completions in a conversation: what is new is stored, and the answer comes from the context.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use anneal_testkit::{
    Gate, HttpClient, HttpResponse, Say, Script, ScriptedModel, TestApp, TestConversation,
    eventually, pb,
};
use pb::Role::{Assistant, System, Tool, User};
use serde_json::{Value, json};
use uuid::Uuid;

use super::{CONVERSATION, ask, assistant, message_of, send, system, user, with};
use crate::openai::{CONVERSATIONS, assert_error, post};

/// A model whose answers are "Answer 0.", "Answer 1." and so on.
async fn numbered_answers() -> ScriptedModel {
    ScriptedModel::start(|asked| {
        Script::says(asked, [Say::text(&format!("Answer {}.", asked.nth))])
    })
    .await
}

/// Creates a conversation. Returns its id.
async fn create(web: &HttpClient) -> String {
    let created = post(web, CONVERSATIONS, &json!({})).await.json();
    created["id"].as_str().expect("an id").to_owned()
}

/// Sends these messages to the conversation.
async fn send_to(web: &HttpClient, id: &str, messages: &[Value]) -> HttpResponse {
    send(web, &ask(messages), &[(CONVERSATION, id)]).await
}

/// The conversation with this id, over gRPC.
fn conversation<'a>(app: &'a TestApp, id: &str) -> TestConversation<'a> {
    let hex = id.strip_prefix("conv_").expect("is an id");
    let uuid = Uuid::try_parse(hex).expect("hexadecimal digits");
    app.conversation_by_id(&uuid.to_string())
}

/// The stored messages as texts.
async fn texts(app: &TestApp, id: &str) -> Vec<(pb::Role, String)> {
    conversation(app, id).texts_by_role().await
}

fn expected(texts: &[(pb::Role, &str)]) -> Vec<(pb::Role, String)> {
    let texts = texts.iter();
    texts
        .map(|(role, text)| (*role, (*text).to_owned()))
        .collect()
}

#[tokio::test]
async fn only_new_messages_are_stored_and_the_beginning_may_be_left_out() {
    let model = numbered_answers().await;
    let app = TestApp::with_scripted_model(&model).await;
    let web = app.http_client();
    let id = create(&web).await;
    let mut history = vec![system("Be brief."), user("One?")];
    for nth in 0..3 {
        let answer = send_to(&web, &id, &history).await;
        assert_eq!(answer.header(CONVERSATION), id);
        let message = message_of(&answer);
        assert_eq!(message["content"], format!("Answer {nth}."));
        history.extend([message, user("More?")]);
    }
    let stored = [
        (User, "One?"),
        (Assistant, "Answer 0."),
        (User, "More?"),
        (Assistant, "Answer 1."),
        (User, "More?"),
        (Assistant, "Answer 2."),
    ];
    assert_eq!(texts(&app, &id).await, expected(&stored));
    // The UUID names the conversation, too.
    let uuid = conversation(&app, &id).id;
    let trimmed = send_to(&web, &uuid, &[assistant("Answer 2."), user("Four?")]).await;
    assert_eq!(trimmed.header(CONVERSATION), id);
    assert_eq!(message_of(&trimmed)["content"], "Answer 3.");
    let sent = model.requests()[3].texts();
    assert_eq!(
        (sent.len(), sent[0].as_str(), sent[6].as_str()),
        (7, "One?", "Four?"),
        "the model gets the whole conversation, and no system prompt of an earlier request"
    );
    assert_eq!(model.requests()[2].texts()[0], "Be brief.");
    assert_eq!(conversation(&app, &id).messages().await.len(), 8);
    conversation(&app, &id).verify().await;
}

#[tokio::test]
async fn a_history_that_was_had_elsewhere_is_stored_before_the_question() {
    let model = numbered_answers().await;
    let app = TestApp::with_scripted_model(&model).await;
    let web = app.http_client();
    let id = create(&web).await;
    let mut history = Vec::new();
    for nth in 0..75 {
        history.extend([user(&format!("Question {nth}.")), assistant("Yes.")]);
    }
    history.extend([system("Answer now."), user("Last?")]);
    let answer = send_to(&web, &id, &history).await;
    assert_eq!(message_of(&answer)["content"], "Answer 0.");
    let stored = texts(&app, &id).await;
    assert_eq!(stored.len(), 153);
    assert_eq!(
        stored[150..],
        expected(&[
            (System, "Answer now."),
            (User, "Last?"),
            (Assistant, "Answer 0.")
        ])
    );
    conversation(&app, &id).verify().await;
}

#[tokio::test]
async fn calls_and_results_are_stored_and_found_again() {
    let model = ScriptedModel::start(|asked| match asked.nth {
        0 => Script::says(
            asked,
            [
                Say::text("I look."),
                Say::tool("c1", "look", "{\"a\": 1.0}"),
                Say::tool("c2", "look", "{}"),
            ],
        ),
        _ => Script::says(asked, [Say::text("Done.")]),
    })
    .await;
    let app = TestApp::with_scripted_model(&model).await;
    let web = app.http_client();
    let id = create(&web).await;
    let tools = json!({"tools": [{"type": "function", "function": {"name": "look"}}]});
    let headers = [(CONVERSATION, id.as_str())];
    let first = send(&web, &with(ask(&[user("Look.")]), &tools), &headers).await;
    let result = |call: &str| json!({"role": "tool", "tool_call_id": call, "content": "Seen."});
    let history = [
        user("Look."),
        message_of(&first),
        result("c1"),
        result("c2"),
    ];
    let second = send(&web, &with(ask(&history), &tools), &headers).await;
    assert_eq!(message_of(&second)["content"], "Done.");
    let roles = conversation(&app, &id).messages().await;
    let roles: Vec<pb::Role> = roles.iter().map(pb::Message::role).collect();
    assert_eq!(roles, [User, Assistant, Tool, Tool, Assistant]);
    // The answer to results is not made again.
    let again = send(&web, &with(ask(&history), &tools), &headers).await;
    assert_error(&again, 409, "messages", "conversation_diverged");
    conversation(&app, &id).verify().await;
}

#[tokio::test]
async fn a_history_that_differs_is_refused_and_stores_nothing() {
    let model = numbered_answers().await;
    let app = TestApp::with_scripted_model(&model).await;
    let web = app.http_client();
    let id = create(&web).await;
    message_of(&send_to(&web, &id, &[user("One?")]).await);
    let two = [user("One?"), assistant("Answer 0."), user("Two?")];
    message_of(&send_to(&web, &id, &two).await);
    let before = texts(&app, &id).await;
    for messages in [
        vec![user("Other?")],
        vec![user("One?")],
        vec![
            user("Edited?"),
            assistant("Answer 0."),
            user("Two?"),
            assistant("Answer 1."),
            user("Three?"),
        ],
        vec![user("One?"), assistant("Edited."), user("Three?")],
        vec![assistant("Answer 0."), user("Three?")],
    ] {
        let refused = send_to(&web, &id, &messages).await;
        assert_error(&refused, 409, "messages", "conversation_diverged");
        assert_eq!(refused.header("x-should-retry"), "false", "{messages:?}");
        assert_eq!(refused.header(CONVERSATION), id);
    }
    assert_eq!(texts(&app, &id).await, before);
    assert_eq!(model.requests().len(), 2);
}

#[tokio::test]
async fn the_newest_question_is_answered_anew_if_the_request_does_not_have_its_answer() {
    let model = numbered_answers().await;
    let app = TestApp::with_scripted_model(&model).await;
    let web = app.http_client();
    let id = create(&web).await;
    for nth in 0..2 {
        let answer = send_to(&web, &id, &[user("One?")]).await;
        assert_eq!(message_of(&answer)["content"], format!("Answer {nth}."));
    }
    let stored = [(User, "One?"), (Assistant, "Answer 1.")];
    assert_eq!(texts(&app, &id).await, expected(&stored));
    let history = [user("One?"), assistant("Answer 1."), user("Two?")];
    message_of(&send_to(&web, &id, &history).await);
    assert_eq!(texts(&app, &id).await.len(), 4);
    conversation(&app, &id).verify().await;
}

#[tokio::test]
async fn a_question_whose_answer_failed_is_stored_once() {
    let is_broken = Arc::new(AtomicBool::new(true));
    let model = ScriptedModel::start({
        let is_broken = Arc::clone(&is_broken);
        move |asked| {
            if is_broken.load(Ordering::Relaxed) {
                Script::status(400, &[], r#"{"error": {"message": "no"}}"#)
            } else {
                Script::says(asked, [Say::text("Answer.")])
            }
        }
    })
    .await;
    let app = TestApp::with_scripted_model(&model).await;
    let web = app.http_client();
    let call = pb::Part {
        part: Some(pb::part::Part::ToolUse(pb::ToolUsePart {
            id: "c1".into(),
            name: "look".into(),
            input: "{}".into(),
        })),
    };
    for with_results in [false, true] {
        is_broken.store(true, Ordering::Relaxed);
        let id = create(&web).await;
        let mut messages = vec![user("Look.")];
        if with_results {
            let called = pb::NewMessage {
                parts: vec![call.clone()],
                ..anneal_testkit::assistant("")
            };
            let stored = conversation(&app, &id);
            stored
                .append_all(vec![anneal_testkit::user("Look."), called])
                .await;
            messages.extend([
                json!({"role": "assistant", "content": null, "tool_calls": [
                    {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}},
                ]}),
                json!({"role": "tool", "tool_call_id": "c1", "content": "Seen."}),
            ]);
        }
        let failed = send_to(&web, &id, &messages).await;
        assert!(failed.status >= 400, "{failed:?}");
        assert_eq!(failed.header(CONVERSATION), id);
        assert_eq!(texts(&app, &id).await.len(), messages.len());
        is_broken.store(false, Ordering::Relaxed);
        let answer = send_to(&web, &id, &messages).await;
        assert_eq!(message_of(&answer)["content"], "Answer.");
        assert_eq!(texts(&app, &id).await.len(), messages.len() + 1);
        conversation(&app, &id).verify().await;
    }
}

#[tokio::test]
async fn storing_without_a_conversation_creates_one_with_the_metadata() {
    let model = numbered_answers().await;
    let app = TestApp::with_scripted_model(&model).await;
    let web = app.http_client();
    let more = json!({"store": true, "metadata": {"topic": "races"}, "user": "u1"});
    let answer = send(&web, &with(ask(&[user("One?")]), &more), &[]).await;
    let id = answer.header(CONVERSATION).to_owned();
    let stored = conversation(&app, &id).conversation().await;
    assert_eq!(stored.metadata["topic"], "races");
    assert_eq!(stored.user_id, "u1");
    let history = [user("One?"), message_of(&answer), user("Two?")];
    let streamed = with(ask(&history), &json!({"stream": true, "store": true}));
    let answer = send(&web, &streamed, &[(CONVERSATION, &id)]).await;
    assert_eq!(answer.header(CONVERSATION), id);
    super::chunks_of(&answer);
    assert_eq!(texts(&app, &id).await.len(), 4);
    let listed = web
        .get(&format!("{CONVERSATIONS}/{id}/items?order=asc"))
        .await;
    assert_eq!(listed.json()["data"][3]["content"][0]["text"], "Answer 1.");
}

#[tokio::test]
async fn a_key_makes_a_completion_repeatable() {
    let model = numbered_answers().await;
    let app = TestApp::with_scripted_model(&model).await;
    let web = app.http_client();
    let key = "k".repeat(128);
    let body = with(ask(&[user("One?")]), &json!({"store": true}));
    let first = send(&web, &body, &[("idempotency-key", &key)]).await;
    let id = first.header(CONVERSATION).to_owned();
    let history = [user("One?"), message_of(&first), user("Two?")];
    message_of(&send_to(&web, &id, &history).await);
    // The answer comes again, also after the conversation has gone on.
    for more in [json!({}), json!({"stream": true})] {
        let again = send(
            &web,
            &with(body.clone(), &more),
            &[("idempotency-key", &key)],
        )
        .await;
        assert_eq!(again.header(CONVERSATION), id);
        assert!(again.text.contains("Answer 0."), "{again:?}");
    }
    assert_eq!(model.requests().len(), 2);
    assert_eq!(texts(&app, &id).await.len(), 4);
    let headers = [("idempotency-key", key.as_str()), (CONVERSATION, &id)];
    let other = send(&web, &ask(&[user("Other?")]), &headers).await;
    assert_error(&other, 409, "", "request_id_reused");
    assert_eq!(texts(&app, &id).await.len(), 4);
}

#[tokio::test]
async fn one_turn_runs_at_a_time_and_goes_on_without_its_reader() {
    let gate = Gate::default();
    let model = ScriptedModel::start({
        let gate = gate.clone();
        move |asked| Script::says(asked, [Say::text("Answer.")]).after(&gate)
    })
    .await;
    let app = TestApp::with_scripted_model_without_timeouts(&model).await;
    let web = app.http_client();
    let id = create(&web).await;
    let first = tokio::spawn({
        let request = web.json("POST", super::COMPLETIONS, &ask(&[user("One?")]));
        request.header(CONVERSATION, &id).send()
    });
    model.wait_for_calls(1).await;
    let second = send_to(&web, &id, &[user("One?")]).await;
    assert_error(&second, 409, "", "conversation_locked");
    assert_ne!(second.header("retry-after"), "");
    first.abort();
    gate.open_for_ever();
    let stored = [(User, "One?"), (Assistant, "Answer.")];
    let has_answer = async || texts(&app, &id).await == expected(&stored);
    eventually("the answer is stored", has_answer).await;
}
