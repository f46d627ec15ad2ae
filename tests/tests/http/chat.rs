//! Chat over HTTP: what a panel's page sees of a turn.

#![expect(non_snake_case, reason = "rows are named as the seeds name them")]

use anneal_core::caller::{Caller, ConversationId, TenantId};
use anneal_store::StoreError;
use anneal_tests::{
    Anneal, Answered, Folder, Gate, House, MODEL, Say, Script, ScriptedModel, Talk, Told, Web, eventually, pb, text_of,
};
use serde_json::{Value, json};

use crate::{BINARY, CHAT};

fn kinds(told: &[Told]) -> Vec<&str> {
    told.iter().map(Told::kind).collect()
}

fn session_of(told: &[Told]) -> String {
    told[0].data["sessionId"].as_str().expect("started names the session").to_owned()
}

async fn conversation(house: &House, id: &str) -> pb::Conversation {
    let ask = pb::GetConversationRequest { conversation_id: id.to_owned() };
    house.conversations().get_conversation(ask).await.expect("is there").into_inner()
}

async fn said(house: &House, id: &str) -> Vec<(pb::Role, String)> {
    Talk { house, id: id.to_owned() }.said().await
}

#[tokio::test]
async fn row_P1_a_client_sends_message_and_session_id_only_and_the_server_owns_the_history() {
    let model = ScriptedModel::saying("Understood.").await;
    let house = House::chatting(&model).await;
    let first = house.web().chat("reviewer", &json!({"message": "My name is Ada."})).await;
    assert_eq!(kinds(&first), ["started", "text", "done"]);
    let session = session_of(&first);
    assert_eq!(conversation(&house, &session).await.agent_id, "reviewer", "no id: a new session of this agent");
    let second = house.web().chat("reviewer", &json!({"message": "Who am I?", "sessionId": session})).await;
    assert_eq!(session_of(&second), session);
    let texts = model.asked()[1].texts();
    assert_eq!(texts, ["My name is Ada.", "Understood.", "Who am I?"], "the client sent no history");
    assert_eq!(conversation(&house, &session).await.message_count, 4);
}

#[tokio::test]
async fn row_P2_a_turn_is_told_as_events_and_the_last_is_done_with_session_and_estimate() {
    let says = [Say::text("Let me "), Say::text("look."), Say::tool("call-1", "look", r#"{"b":1,"a":1.0}"#)];
    let model = ScriptedModel::start(move |asked| Script::says(asked, says.clone())).await;
    let house = House::chatting(&model).await;
    let told = house.web().chat("a", &json!({"message": "Look!"})).await;
    assert_eq!((text_of(&told).as_str(), told.iter().all(|event| !event.id.is_empty())), ("Let me look.", true));
    let call = told.iter().find(|event| event.kind() == "tool_call").expect("the call is told");
    assert_eq!(call.data, json!({"type": "tool_call", "id": "call-1", "name": "look", "input": r#"{"b":1,"a":1.0}"#}));
    let session = session_of(&told);
    let done = &told.last().expect("there are events").data;
    let stored = conversation(&house, &session).await;
    let total = stored.token_total.expect("there is one").tokens;
    assert_eq!((&done["type"], &done["sessionId"]), (&json!("done"), &json!(session)));
    assert_eq!((&done["tokenEstimate"], &done["messageIds"]), (&json!(total), &json!([1, 2])));
    assert_eq!((&done["answerMessageId"], &done["stopReason"]), (&json!(2), &json!("tool_use")));
    assert!(done["usage"]["inputTokens"].as_u64().is_some_and(|tokens| tokens > 0), "{done}");
    assert_eq!(done["model"], json!(anneal_tests::MODEL));
}

#[tokio::test]
async fn words_context_and_pictures_become_one_message_byte_for_byte() {
    let model = ScriptedModel::saying("Seen.").await;
    let house = House::chatting_of_pictures(&model).await;
    let picture = "data:image/png;base64,iVBORw0KGgo=";
    let body = json!({
        "message": "What is\u{0} this?", "context": "File: payment.py", "images": [picture, "https://cdn.example/a.webp"],
        "somethingElse": {"nobody": "knows"}
    });
    let told = house.web().chat("a", &body).await;
    let talk = Talk { house: &house, id: session_of(&told) };
    let parts: Vec<_> = talk.messages().await[0].parts.iter().filter_map(|part| part.part.clone()).collect();
    let text = |text: &str| pb::part::Part::Text(pb::TextPart { text: text.into() });
    let media = |uri: &str, media_type: &str| {
        pb::part::Part::Media(pb::MediaPart { uri: uri.into(), media_type: media_type.into(), ..Default::default() })
    };
    let pictures = [media(picture, "image/png"), media("https://cdn.example/a.webp", "image/webp")];
    assert_eq!(parts, [vec![text("What is\0 this?"), text("File: payment.py")], pictures.to_vec()].concat());
}

#[tokio::test]
async fn a_picture_whose_address_may_not_go_to_the_provider_is_refused_and_leaves_no_session() {
    let model = ScriptedModel::saying("never").await;
    let house = House::chatting(&model).await;
    let body = json!({"message": "Look.", "images": ["http://169.254.169.254/latest/a.png"]});
    let refused = Answered::to(house.web().json("POST", "/api/agents/a/chat", &body)).await;
    refused.assert_problem(400, "MEDIA_NOT_ALLOWED", "images");
    let list = house.web().get("/api/agents/a/sessions").await.json();
    assert_eq!((&list["sessions"], model.asked().len()), (&json!([]), 0));
}

#[tokio::test]
async fn a_repeated_request_is_one_turn_in_one_session() {
    let model = ScriptedModel::saying("Once.").await;
    let house = House::chatting(&model).await;
    let body = json!({"message": "Say it.", "requestId": "r1"});
    let first = house.web().chat("a", &body).await;
    let again = house.web().chat("a", &body).await;
    assert_eq!((session_of(&again), text_of(&again)), (session_of(&first), "Once.".to_owned()));
    assert_eq!((&again.last().expect("done").data["replayed"], model.asked().len()), (&json!(true), 1));
    let other = json!({"message": "Something else.", "requestId": "r1", "sessionId": session_of(&first)});
    let refused = Answered::to(house.web().json("POST", "/api/agents/a/chat", &other)).await;
    refused.assert_problem(409, "REQUEST_ID_REUSED", "");
}

#[tokio::test]
async fn request_ids_of_new_sessions_are_those_of_the_agents_chat_alone() {
    let model = ScriptedModel::saying("Yes.").await;
    let house = House::chatting(&model).await;
    let ask = pb::CreateConversationRequest { request_id: "r1".into(), agent_id: "a".into(), ..Default::default() };
    let made = house.conversations().create_conversation(ask).await.expect("creates").into_inner();
    let body = json!({"message": "Say it.", "requestId": "r1"});
    let mut sessions = vec![made.conversation_id];
    for agent in ["a", "b"] {
        sessions.push(session_of(&house.web().chat(agent, &body).await));
    }
    sessions.sort();
    sessions.dedup();
    assert_eq!((sessions.len(), model.asked().len()), (3, 2), "three callers with the same id are three sessions");
    let longest = json!({"message": "Say it.", "requestId": "r".repeat(128)});
    let first = house.web().chat("a", &longest).await;
    assert_eq!(session_of(&house.web().chat("a", &longest).await), session_of(&first));
}

#[tokio::test]
async fn a_user_who_is_named_has_the_session_that_is_made() {
    let model = ScriptedModel::saying("Yes.").await;
    let house = House::chatting(&model).await;
    let web = house.web();
    let session = session_of(&web.chat("a", &json!({"message": "Mine.", "userId": "ada"})).await);
    web.chat("a", &json!({"message": "Anybody's.", "userId": "u".repeat(128)})).await;
    let listed = web.get("/api/agents/a/sessions?userId=ada").await.json();
    assert_eq!(listed["sessions"].as_array().map(Vec::len), Some(1));
    assert_eq!((&listed["sessions"][0]["id"], &listed["sessions"][0]["userId"]), (&json!(session), &json!("ada")));
    let long = json!({"message": "x", "userId": "u".repeat(129)});
    Answered::to(web.json("POST", CHAT, &long)).await.assert_problem(400, "LIMIT_EXCEEDED", "userId");
}

async fn sessions(web: &Web, agent: &str) -> Value {
    web.get(&format!("/api/agents/{agent}/sessions")).await.json()["sessions"].clone()
}

#[tokio::test]
async fn a_first_turn_that_is_refused_leaves_no_session() {
    let gate = Gate::default();
    let model = ScriptedModel::start({
        let gate = gate.clone();
        move |asked| Script::says(asked, [Say::text("done")]).after(&gate)
    })
    .await;
    let (providers, models) = model.settings(&[MODEL]);
    let mut models = serde_json::to_value(models).expect("settings can be written");
    models[MODEL]["concurrent_calls"] = json!(1);
    let models = serde_json::from_value(models).expect("these are settings of models");
    let house = House::calling((providers, models), MODEL).await;
    let web = house.web();
    let mut busy = web.open_chat("busy", &json!({"message": "one"})).await;
    busy.take(1).await;
    let long = format!("https://cdn.example/{}.png", "x".repeat(9_000));
    for (body, status, reason, field) in [
        (json!({"message": "x", "model": "no-such-model"}), 422, "MODEL_NOT_CONFIGURED", ""),
        (json!({"message": "x", "maxOutputTokens": 0}), 400, "INVALID_FIELD", "maxOutputTokens"),
        (json!({"message": "x", "images": ["https://x.example/a.png", long]}), 400, "LIMIT_EXCEEDED", "images[1]"),
        (
            json!({"message": "x", "images": [format!("data:image/{};,", "x".repeat(200))]}),
            400,
            "LIMIT_EXCEEDED",
            "images[0]",
        ),
        (json!({"message": "x"}), 429, "MODEL_BUSY", ""),
        (json!({"message": "x", "requestId": "r1"}), 429, "MODEL_BUSY", ""),
    ] {
        Answered::to(web.json("POST", CHAT, &body)).await.assert_problem(status, reason, field);
        assert_eq!(sessions(&web, "a").await, json!([]), "{reason}");
    }
    let kept =
        house.conversation_with(pb::CreateConversationRequest { agent_id: "b".into(), ..Default::default() }).await;
    let given = json!({"message": "x", "sessionId": kept.id, "model": "no-such-model"});
    let refused = Answered::to(web.json("POST", "/api/agents/b/chat", &given)).await;
    refused.assert_problem(422, "MODEL_NOT_CONFIGURED", "");
    assert_eq!(kept.conversation().await.message_count, 0, "a session that was given stays");
    gate.open_for_ever();
    busy.rest().await;
    let again = web.chat("a", &json!({"message": "x", "requestId": "r1"})).await;
    assert_eq!((text_of(&again).as_str(), sessions(&web, "a").await.as_array().map(Vec::len)), ("done", Some(1)));
}

#[tokio::test]
async fn taking_back_an_empty_session_never_takes_a_message_or_a_turn_with_it() {
    let house = House::start().await;
    let caller = Caller::of(TenantId::DEFAULT);
    for _ in 0..20 {
        let talk = house.conversation().await;
        let id = ConversationId(talk.id.parse().expect("an id"));
        let (appended, deleted) =
            tokio::join!(talk.append("hello").send(), house.store.delete_empty_conversation(caller, id));
        assert_ne!(appended.is_ok(), deleted.expect("the store answers"), "one of them was first");
        assert_eq!(house.store.conversation(caller, id).await.is_ok(), appended.is_ok());
    }
    let talk = house.conversation().await;
    let id = ConversationId(talk.id.parse().expect("an id"));
    let other = Caller::of(TenantId(uuid::Uuid::new_v4()));
    let hidden = house.store.delete_empty_conversation(other, id).await;
    assert!(matches!(hidden, Err(StoreError::NotFound(_))), "{hidden:?}");
    let lease = "insert into ai_model_lease values ($1, $2, $2, 'm', true, 0, now() + interval '1 minute')";
    sqlx::query(lease).bind(TenantId::DEFAULT.0).bind(id.0).execute(&mut house.db().await).await.expect("puts");
    assert!(
        !house.store.delete_empty_conversation(caller, id).await.expect("the store answers"),
        "a turn begins in it"
    );
    sqlx::query("delete from ai_model_lease").execute(&mut house.db().await).await.expect("ends");
    assert!(house.store.delete_empty_conversation(caller, id).await.expect("the store answers"));
}

#[tokio::test]
async fn turns_that_take_all_their_room_leave_other_calls_theirs() {
    let gate = Gate::default();
    let model = ScriptedModel::start({
        let gate = gate.clone();
        move |asked| Script::says(asked, [Say::text("done")]).after(&gate)
    })
    .await;
    let (folder, house) = (Folder::new(), House::start().await);
    let anneal = Anneal::new(BINARY, &folder, &house.url);
    folder.file("anneal.toml", "[server]\nconcurrent_turns = 0\n");
    let refused = anneal.run(&["server"]).await;
    assert!(refused.code == Some(1) && refused.err.contains("nonzero"), "{refused:?}");
    folder.file(
        "anneal.toml",
        &format!("[server]\nconcurrent_turns = 2\nconcurrent_calls = 2\n{}", model.server_settings()),
    );
    let (server, _) = anneal.server().await;
    let line = server.said("\"http\":\"").await;
    let address = line.split("\"http\":\"").nth(1).and_then(|rest| rest.split('"').next()).expect("an address");
    let web = Web::at(address.parse().expect("an address"));
    let body = json!({"message": "Go."});
    let mut turns = [web.open_chat("b", &body).await, web.open_chat("b", &body).await];
    for turn in &mut turns {
        turn.take(1).await;
    }
    let refused = Answered::to(web.json("POST", CHAT, &body)).await;
    refused.assert_problem(429, "OVERLOADED", "");
    assert_eq!(sessions(&web, "a").await, json!([]), "other calls have their room, and the refused turn left nothing");
    assert_eq!(sessions(&web, "b").await.as_array().map(Vec::len), Some(2));
    gate.open_for_ever();
    for turn in turns {
        assert_eq!(turn.rest().await.last().map(Told::kind), Some("done"));
    }
}

#[tokio::test]
async fn a_turn_that_was_read_leaves_no_task() {
    let model = ScriptedModel::saying("Yes.").await;
    let house = House::chatting(&model).await;
    let tasks = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    house.web().chat("a", &json!({"message": "warm"})).await;
    let before = tasks();
    for _ in 0..20 {
        house.web().chat("a", &json!({"message": "x"})).await;
    }
    eventually("the turns' tasks have ended", async || tasks() < before + 10).await;
}

#[tokio::test]
async fn an_answer_is_stored_although_its_reader_is_gone_for_good() {
    let gate = Gate::default();
    let model = ScriptedModel::start({
        let gate = gate.clone();
        move |asked| Script::says(asked, Say::texts(&["half ", "and half"])).gated(&gate)
    })
    .await;
    let house = House::chatting_patiently(&model).await;
    let mut events = house.web().open_chat("a", &json!({"message": "Go."})).await;
    let started = events.take(1).await;
    drop(events);
    gate.open_for_ever();
    let session = session_of(&started);
    let whole = vec![(pb::Role::User, "Go.".to_owned()), (pb::Role::Assistant, "half and half".to_owned())];
    eventually("the answer is stored", async || said(&house, &session).await == whole).await;
}

#[tokio::test]
async fn a_reader_who_does_not_read_slows_nothing() {
    let piece = "x".repeat(64 * 1024);
    let model = ScriptedModel::start(move |asked| {
        let pieces: Vec<Say> = (0..128).map(|_| Say::text(&piece)).collect();
        Script::says(asked, pieces)
    })
    .await;
    let house = House::chatting_patiently(&model).await;
    let mut events = house.web().open_chat("a", &json!({"message": "Much."})).await;
    let started = events.take(1).await;
    let session = session_of(&started);
    eventually("8 MiB are stored unread", async || conversation(&house, &session).await.message_count == 2).await;
    assert_eq!(text_of(&events.rest().await).len(), 128 * 64 * 1024, "and are there for who reads them later");
}

#[tokio::test]
async fn a_model_that_fails_leaves_the_question_and_an_error_event() {
    let model = ScriptedModel::start(|asked| match asked.nth {
        0 => Script::status(500, &[], "{}"),
        _ => Script::says(asked, [Say::text("Now.")]),
    })
    .await;
    let house = House::chatting(&model).await;
    let told = house.web().chat("a", &json!({"message": "Now?"})).await;
    assert_eq!(kinds(&told), ["started", "error"]);
    let problem = &told[1].data["problem"];
    assert_eq!((&problem["reason"], &problem["status"]), (&json!("MODEL_UNAVAILABLE"), &json!(503)));
    assert!(problem["retryAfterMs"].is_u64(), "{problem}");
    let session = session_of(&told);
    assert_eq!(said(&house, &session).await, [(pb::Role::User, "Now?".to_owned())]);
    let again = house.web().resume("a", &told[1].id, None).await.rest().await;
    assert_eq!((kinds(&again), text_of(&again)), (vec!["text", "done"], "Now.".to_owned()));
    assert_eq!(said(&house, &session).await.len(), 2);
}

#[tokio::test]
async fn what_is_refused_before_it_begins_is_a_plain_answer() {
    let gate = Gate::default();
    let model = ScriptedModel::start({
        let gate = gate.clone();
        move |asked| Script::says(asked, [Say::text("done")]).after(&gate)
    })
    .await;
    let house = House::chatting_patiently(&model).await;
    let mut events = house.web().open_chat("a", &json!({"message": "one"})).await;
    let session = session_of(&events.take(1).await);
    let second = json!({"message": "two", "sessionId": session});
    let refused = Answered::to(house.web().json("POST", "/api/agents/a/chat", &second)).await;
    refused.assert_problem(409, "TURN_IN_PROGRESS", "");
    assert_eq!((refused.header("retry-after"), &refused.json()["retryAfterMs"]), ("1", &json!(1_000)));
    let unserved = json!({"message": "x", "model": "no-such-model"});
    let refused = Answered::to(house.web().json("POST", "/api/agents/a/chat", &unserved)).await;
    refused.assert_problem(422, "MODEL_NOT_CONFIGURED", "");
    assert_eq!(refused.json()["facts"], json!({"model": "no-such-model"}));
    gate.open_for_ever();
    assert_eq!(text_of(&events.rest().await), "done");
}

#[tokio::test]
async fn another_agents_session_answers_like_a_missing_one() {
    let model = ScriptedModel::saying("Yes.").await;
    let house = House::chatting(&model).await;
    let session = session_of(&house.web().chat("a", &json!({"message": "Mine."})).await);
    let mut answers = Vec::new();
    for id in [session.as_str(), "00000000-0000-4000-8000-000000000000"] {
        let body = json!({"message": "Theirs?", "sessionId": id});
        let refused = Answered::to(house.web().json("POST", "/api/agents/b/chat", &body)).await;
        refused.assert_problem(404, "CONVERSATION_NOT_FOUND", "");
        answers.push(refused.text);
    }
    assert_eq!((answers[0] == answers[1], model.asked().len()), (true, 1));
}
