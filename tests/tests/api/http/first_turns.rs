//! The first turn of a session creates the session, for the agent and the user that its request
//! names. A turn that is refused creates none.

use anneal_core::caller::{Caller, ConversationId, TenantId};
use anneal_store::StoreError;
use anneal_testkit::{Gate, HttpResponse, MODEL, Say, Script, ScriptedModel, TestApp, pb, text_of};
use serde_json::json;

use crate::http::{CHAT, list_sessions, session_of};

#[tokio::test]
async fn an_image_with_a_forbidden_url_is_refused_by_its_index_and_creates_no_session() {
    let model = ScriptedModel::saying("never").await;
    let app = TestApp::with_scripted_model(&model).await;
    let forbidden = "http://169.254.169.254/latest/a.png";
    let inline = "data:image/png;base64,QUJD";
    for (body, field) in [
        (json!({"images": [forbidden]}), "images[0]"),
        (
            json!({"message": "Look.", "images": [inline, forbidden, forbidden]}),
            "images[1]",
        ),
        (
            json!({"message": "Look.", "context": "A map.", "images": [inline, inline, forbidden]}),
            "images[2]",
        ),
    ] {
        let refused = HttpResponse::send(app.http_client().json("POST", CHAT, &body)).await;
        refused.assert_problem(400, "MEDIA_NOT_ALLOWED", field);
    }
    let list = app.http_client().get("/api/agents/a/sessions").await.json();
    assert_eq!((&list["sessions"], model.requests().len()), (&json!([]), 0));
}

#[tokio::test]
async fn request_ids_of_new_sessions_are_scoped_to_the_chat_of_one_agent() {
    let model = ScriptedModel::saying("Yes.").await;
    let app = TestApp::with_scripted_model(&model).await;
    let ask = pb::CreateConversationRequest {
        request_id: "r1".into(),
        agent_id: "a".into(),
        ..Default::default()
    };
    let created = app
        .conversations()
        .create_conversation(ask)
        .await
        .expect("creates")
        .into_inner();
    let body = json!({"message": "Say it.", "requestId": "r1"});
    let mut sessions = vec![created.conversation_id];
    for agent in ["a", "b"] {
        sessions.push(session_of(&app.http_client().chat(agent, &body).await));
    }
    sessions.sort();
    sessions.dedup();
    assert_eq!(
        (sessions.len(), model.requests().len()),
        (3, 2),
        "the same request id in three scopes makes three sessions"
    );
    let longest = json!({"message": "Say it.", "requestId": "r".repeat(128)});
    let first = app.http_client().chat("a", &longest).await;
    assert_eq!(
        session_of(&app.http_client().chat("a", &longest).await),
        session_of(&first)
    );
}

#[tokio::test]
async fn a_new_session_belongs_to_the_named_user() {
    let model = ScriptedModel::saying("Yes.").await;
    let app = TestApp::with_scripted_model(&model).await;
    let web = app.http_client();
    let session = session_of(
        &web.chat("a", &json!({"message": "Mine.", "userId": "ada"}))
            .await,
    );
    web.chat(
        "a",
        &json!({"message": "Anybody's.", "userId": "u".repeat(128)}),
    )
    .await;
    let listed = web.get("/api/agents/a/sessions?userId=ada").await.json();
    assert_eq!(listed["sessions"].as_array().map(Vec::len), Some(1));
    assert_eq!(
        (
            &listed["sessions"][0]["id"],
            &listed["sessions"][0]["userId"]
        ),
        (&json!(session), &json!("ada"))
    );
    let long = json!({"message": "x", "userId": "u".repeat(129)});
    HttpResponse::send(web.json("POST", CHAT, &long))
        .await
        .assert_problem(400, "LIMIT_EXCEEDED", "userId");
}

#[tokio::test]
async fn a_refused_first_turn_leaves_no_session() {
    let gate = Gate::default();
    let model = ScriptedModel::start({
        let gate = gate.clone();
        move |request| Script::says(request, [Say::text("done")]).after(&gate)
    })
    .await;
    let (providers, models) = model.settings(&[MODEL]);
    let mut models = serde_json::to_value(models).expect("settings can be written");
    models[MODEL]["concurrent_calls"] = json!(1);
    let models = serde_json::from_value(models).expect("these are settings of models");
    let app = TestApp::with_models((providers, models), MODEL).await;
    let web = app.http_client();
    let mut busy = web.open_chat("busy", &json!({"message": "one"})).await;
    busy.take(1).await;
    // Longer than an image's address may be.
    let long = format!("https://cdn.example/{}.png", "x".repeat(9_000));
    for (body, status, reason, field) in [
        (
            json!({"message": "x", "model": "no-such-model"}),
            422,
            "MODEL_NOT_CONFIGURED",
            "",
        ),
        (
            json!({"message": "x", "maxOutputTokens": 0}),
            400,
            "INVALID_FIELD",
            "maxOutputTokens",
        ),
        (
            json!({"message": "x", "images": ["https://x.example/a.png", long]}),
            400,
            "LIMIT_EXCEEDED",
            "images[1]",
        ),
        // The media type is longer than one may be.
        (
            json!({"message": "x", "images": [format!("data:image/{};,", "x".repeat(200))]}),
            400,
            "LIMIT_EXCEEDED",
            "images[0]",
        ),
        (json!({"message": "x"}), 429, "MODEL_BUSY", ""),
        (
            json!({"message": "x", "requestId": "r1"}),
            429,
            "MODEL_BUSY",
            "",
        ),
    ] {
        HttpResponse::send(web.json("POST", CHAT, &body))
            .await
            .assert_problem(status, reason, field);
        assert_eq!(list_sessions(&web, "a").await, json!([]), "{reason}");
    }
    let existing = app
        .conversation_with(pb::CreateConversationRequest {
            agent_id: "b".into(),
            ..Default::default()
        })
        .await;
    let body = json!({"message": "x", "sessionId": existing.id, "model": "no-such-model"});
    let refused = HttpResponse::send(web.json("POST", "/api/agents/b/chat", &body)).await;
    refused.assert_problem(422, "MODEL_NOT_CONFIGURED", "");
    assert_eq!(
        existing.conversation().await.message_count,
        0,
        "a session that the caller named is not deleted"
    );
    gate.open_for_ever();
    busy.rest().await;
    let received = web
        .chat("a", &json!({"message": "x", "requestId": "r1"}))
        .await;
    assert_eq!(
        (
            text_of(&received).as_str(),
            list_sessions(&web, "a").await.as_array().map(Vec::len)
        ),
        ("done", Some(1))
    );
}

#[tokio::test]
async fn deleting_an_empty_session_never_deletes_a_message_or_a_turn() {
    let app = TestApp::start().await;
    let caller = Caller::of(TenantId::DEFAULT);
    for _ in 0..20 {
        let conversation = app.conversation().await;
        let id = ConversationId(conversation.id.parse().expect("an id"));
        let (appended, deleted) = tokio::join!(
            conversation.append("hello").send(),
            app.store.delete_empty_conversation(caller, id)
        );
        assert_ne!(
            appended.is_ok(),
            deleted.expect("the store answers"),
            "exactly one of the two succeeds"
        );
        assert_eq!(
            app.store.get_conversation(caller, id).await.is_ok(),
            appended.is_ok()
        );
    }
    let conversation = app.conversation().await;
    let id = ConversationId(conversation.id.parse().expect("an id"));
    let other = Caller::of(TenantId(uuid::Uuid::new_v4()));
    let hidden = app.store.delete_empty_conversation(other, id).await;
    assert!(matches!(hidden, Err(StoreError::NotFound(_))), "{hidden:?}");
    // The lease of a turn's model call.
    let lease =
        "insert into ai_model_lease values ($1, $2, $2, 'm', true, 0, now() + interval '1 minute')";
    sqlx::query(lease)
        .bind(TenantId::DEFAULT.0)
        .bind(id.0)
        .execute(&mut app.db().await)
        .await
        .expect("inserts");
    assert!(
        !app.store
            .delete_empty_conversation(caller, id)
            .await
            .expect("the store answers"),
        "a turn is in progress"
    );
    sqlx::query("delete from ai_model_lease")
        .execute(&mut app.db().await)
        .await
        .expect("deletes");
    assert!(
        app.store
            .delete_empty_conversation(caller, id)
            .await
            .expect("the store answers")
    );
}
