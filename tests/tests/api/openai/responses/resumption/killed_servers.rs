//! The server of a response is killed with SIGKILL before the end of the answer is stored. The
//! response ends nevertheless, for every reader in the same way.

use anneal_core::job::LEASE_SECONDS;
use anneal_testkit::{
    Gate, HttpClient, Say, Script, ScriptedModel, TestApp, TestConversation, eventually,
    gate_or_nightly, pb,
};
use futures::future::join_all;
use serde_json::{Value, json};
use tokio::time::Instant;
use uuid::Uuid;

use super::{
    EventStream, STATES, Servers, answers, assert_failed, assert_whole, assert_without_gap, body,
    end_leases, number_after, read_after, shown,
};
use crate::openai::{
    post,
    responses::{create, id_of, retrieve, streamed_text, text_of, wait_for_end},
};

/// All conversations.
async fn conversations(app: &TestApp) -> Vec<TestConversation<'_>> {
    let listed = app.list(pb::ListConversationsRequest::default()).await;
    let ids = listed.iter().map(|listed| &*listed.conversation_id);
    ids.map(|id| app.conversation_by_id(id)).collect()
}

/// Reads the events after each of those that a client had, which must end with the failure of the
/// response.
async fn assert_failed_for_every_reader(web: &HttpClient, had: &[Value]) {
    let id = id_of(&had[0]["response"]);
    let replay = read_after(web, &id, None).await;
    let response = assert_failed(&[], &replay);
    assert_eq!(retrieve(web, &id).await, response);
    assert_eq!(response["error"]["code"], "server_error", "{response}");
    for (place, event) in had.iter().enumerate() {
        let rest = read_after(web, &id, Some(event)).await;
        assert_eq!(assert_failed(&had[..=place], &rest), response);
    }
}

#[tokio::test]
async fn a_response_whose_server_is_killed_after_any_piece_of_its_answer_fails_for_every_reader() {
    let mut answers = answers(gate_or_nightly(2, 10));
    answers.retain(|answer| !answer.is_cut);
    let model = ScriptedModel::start({
        let answers = answers.clone();
        move |request| {
            let number = number_after(request, "answer ").expect("is in the question");
            let pieces = number_after(request, "hang after ").expect("is in the question");
            answers[number].script(request).hanging_after(pieces)
        }
    })
    .await;
    let servers = Servers::start(&model).await;
    let mut streams = Vec::new();
    for (number, answer) in answers.iter().enumerate() {
        // The last piece is the one that ends the answer. The end of the body never comes.
        for pieces in 0..=answer.pieces() + 1 {
            let body = body(&format!("answer {number}, hang after {pieces}"));
            let said = &answer.says[..pieces.min(answer.pieces())];
            let web = &servers.first_web;
            streams.push(async move {
                let mut stream = EventStream::create(web, &body).await;
                let (text_bytes, calls) = shown(said);
                stream.read_until(text_bytes, calls).await;
                stream.read
            });
        }
    }
    let had = join_all(streams).await;
    model.wait_for_calls(had.len()).await;
    servers.wait_for_notes().await;
    let second = servers.kill_first().await;
    end_leases(&second).await;
    let web = second.http_client();
    let readers = had
        .iter()
        .map(|had| assert_failed_for_every_reader(&web, had));
    join_all(readers).await;
    let conversations = conversations(&second).await;
    assert_eq!(conversations.len(), had.len());
    for conversation in conversations {
        assert_eq!(conversation.texts_by_role().await, []);
        conversation.verify().await;
    }
    assert_eq!(model.requests().len(), had.len(), "no answer is begun anew");
}

#[tokio::test]
async fn a_response_in_the_background_fails_once_the_lease_of_its_killed_server_ends() {
    let model = ScriptedModel::start(|request| {
        if request.nth == 0 {
            Script::says(request, [Say::text("Once"), Say::text(" upon")]).hanging_after(1)
        } else {
            let texts = request.texts().join("|");
            Script::says(request, [Say::text(&texts)])
        }
    })
    .await;
    let servers = Servers::start(&model).await;
    let web = servers.second.http_client();
    let conversation = id_of(&post(&web, "/v1/conversations", &json!({})).await.json());
    let body = json!({"input": "lost", "background": true, "conversation": conversation});
    let id = id_of(&create(&servers.first_web, &body).await);
    model.wait_for_calls(1).await;
    servers.wait_for_notes().await;
    let killed = Instant::now();
    let second = servers.kill_first().await;
    assert_eq!(retrieve(&web, &id).await["status"], "in_progress");
    // A reader waits for the end. Nothing but time ends the lease.
    let events = read_after(&web, &id, None).await;
    let response = assert_failed(&[], &events);
    let limit = u64::from(LEASE_SECONDS) + 10;
    assert!(killed.elapsed().as_secs() < limit, "{:?}", killed.elapsed());
    assert_eq!(wait_for_end(&web, &id).await, response);
    let items = format!("/v1/conversations/{conversation}/items");
    assert_eq!(web.get(&items).await.json()["data"], json!([]));
    let next = json!({"input": "found", "conversation": conversation});
    assert_eq!(text_of(&create(&web, &next).await), "found");
    assert_eq!(retrieve(&web, &id).await, response);
    drop(second);
}

/// Ends the sessions of the killed server that wait for locks: their statements have not been
/// executed, and must not be later.
async fn end_waiting_statements(app: &TestApp) {
    let statement = "select pg_terminate_backend(pid) from pg_stat_activity
        where datname = current_database() and wait_event_type = 'Lock'";
    let mut db = app.db().await;
    let ended = sqlx::query(statement).execute(&mut db);
    assert!(ended.await.expect("ends them").rows_affected() > 0);
    eventually("no session waits for a lock", async || {
        let waiting = sqlx::query_scalar::<_, i64>(
            "select count(*) from pg_stat_activity
             where datname = current_database() and wait_event_type = 'Lock'",
        );
        waiting.fetch_one(&mut db).await.expect("is answered") == 0
    })
    .await;
}

#[tokio::test]
async fn an_answer_that_was_stored_before_its_server_was_killed_is_complete_for_every_reader() {
    let gate = Gate::default();
    let model = ScriptedModel::start({
        let gate = gate.clone();
        move |request| {
            let says = [
                Say::text("Here "),
                Say::text("it is."),
                Say::tool("call_1", "look", "{}"),
            ];
            Script::says(request, says).gated(&gate)
        }
    })
    .await;
    let servers = Servers::start(&model).await;
    let mut stream = EventStream::create(&servers.first_web, &body("Look.")).await;
    let id = stream.id();
    servers.wait_for_notes().await;
    let uuid = Uuid::try_parse(&id["resp_".len()..]).expect("is a UUID");
    let lock = "select from ai_response where response_id = $1 for update";
    let held = servers.second.hold_lock(lock, uuid).await;
    gate.open_for_ever();
    stream.read_until("Here it is.".len(), 1).await;
    // The answer is stored, but not that the response has ended.
    servers.second.wait_for_lock_waiters(1).await;
    let had = stream.read;
    let second = servers.kill_first().await;
    end_waiting_statements(&second).await;
    held.rollback().await;
    end_leases(&second).await;
    let web = second.http_client();
    let replay = read_after(&web, &id, None).await;
    assert_without_gap(&replay);
    assert_eq!(streamed_text(&replay), "Here it is.");
    let end = replay.last().expect("has events");
    assert_eq!(end["type"], "response.completed");
    assert_eq!(end["response"]["output"].as_array().map(Vec::len), Some(2));
    assert_eq!(retrieve(&web, &id).await, end["response"]);
    assert!(had.len() > STATES.len());
    for (place, event) in had.iter().enumerate() {
        let rest = read_after(&web, &id, Some(event)).await;
        assert_whole(&had[..=place], &rest, &replay);
    }
}

#[tokio::test]
async fn the_input_does_not_stand_although_the_server_was_killed_before_it_recorded_the_input() {
    let model = ScriptedModel::start(|_| Script::hang()).await;
    let servers = Servers::start(&model).await;
    let second = &servers.second;
    let conversation = second.conversation().await;
    let hex = conversation.uuid().as_simple().to_string();
    let body = json!({
        "background": true,
        "conversation": format!("conv_{hex}"),
        "input": [
            {"role": "user", "content": "first"},
            {"role": "assistant", "content": "second"},
            {"role": "user", "content": "third"},
        ],
    });
    let before = second
        .hold_lock(anneal_testkit::LOCK_CONVERSATION, conversation.uuid())
        .await;
    let (created, held) = tokio::join!(create(&servers.first_web, &body), async {
        // The response's row is there. Its input waits.
        second.wait_for_lock_waiters(1).await;
        let lock = "select from ai_response where conversation_id = $1 for update";
        let held = second.hold_lock(lock, conversation.uuid()).await;
        before.rollback().await;
        held
    });
    let id = id_of(&created);
    model.wait_for_calls(1).await;
    second.wait_for_lock_waiters(1).await;
    assert_eq!(conversation.messages().await.len(), 3);
    let second = servers.kill_first().await;
    end_waiting_statements(&second).await;
    held.rollback().await;
    end_leases(&second).await;
    // A response may take half a minute to store its input.
    let older = "update ai_response set created_ts = created_ts - interval '1 minute'";
    let aged = sqlx::query(older).execute(&mut second.db().await).await;
    aged.expect("updates");
    let web = second.http_client();
    assert_eq!(wait_for_end(&web, &id).await["status"], "failed");
    let conversation = second.conversation_by_id(&conversation_id(&hex));
    assert_eq!(conversation.texts_by_role().await, []);
    conversation.verify().await;
}

/// The id over gRPC of a conversation.
fn conversation_id(hex: &str) -> String {
    Uuid::try_parse(hex).expect("is a UUID").to_string()
}
