//! Chat when something else ends: the server, the database, the patience of a reader.

use std::time::Duration;

use anneal_llm::ModelAccess;
use anneal_tests::{
    Anneal, Folder, Gate, House, Line, MODEL, OwnPostgres, Say, Script, ScriptedModel, Talk, ToldTurn, eventually, pb,
    refusal, user,
};
use pb::{chat_response::Event, chat_service_client::ChatServiceClient};
use tonic::{Code, Streaming, transport::Channel};

use crate::BINARY;

/// Settings under which a server calls this model, and gives turns a second when it stops.
fn settings(model: &ScriptedModel) -> String {
    format!("[server]\nstop_seconds = 1\n{}", model.server_settings())
}

/// A turn of a new conversation of the house, run by the server on this port, up to its first event.
async fn begun(house: &House, port: u16) -> Streaming<pb::ChatResponse> {
    let ask = pb::ChatRequest {
        conversation_id: house.conversation().await.id,
        messages: vec![user("Anybody?")],
        ..Default::default()
    };
    let channel = Channel::from_shared(format!("http://127.0.0.1:{port}")).expect("an address").connect_lazy();
    let mut stream = ChatServiceClient::new(channel).chat(ask).await.expect("begins").into_inner();
    let first = stream.message().await.expect("goes on").and_then(|response| response.event);
    assert!(matches!(first, Some(Event::Started(_))), "{first:?}");
    stream
}

async fn leases(house: &House) -> i64 {
    let leases = "select count(*) from ai_model_lease";
    sqlx::query_scalar(leases).fetch_one(&mut house.db().await).await.expect("counts")
}

async fn model_failures(house: &House) -> i32 {
    let failures = "select failures from ai_model_breaker";
    sqlx::query_scalar(failures).fetch_one(&mut house.db().await).await.expect("looks")
}

#[tokio::test]
async fn a_server_that_stops_ends_turns_that_do_not_end_and_frees_their_conversations() {
    let model = ScriptedModel::start(|_| Script::hang()).await;
    let (house, folder) = (House::start().await, Folder::new());
    folder.file("anneal.toml", &settings(&model));
    let (server, port) = Anneal::new(BINARY, &folder, &house.url).server().await;
    let turn = begun(&house, port).await;
    model.arrived(1).await;
    assert_eq!(leases(&house).await, 1);
    server.terminate().await;
    let status = ToldTurn::of(turn).await.end.expect_err("the server has left");
    let said = refusal(&status);
    assert_eq!((said.code, said.reason.as_str(), said.retry), (Code::Unavailable, "MODEL_UNAVAILABLE", true));
    assert_eq!(status.message(), "the server is stopping");
    let ended = tokio::time::timeout(Duration::from_secs(15), server.ended()).await.expect("within its time");
    assert_eq!((ended, leases(&house).await, model_failures(&house).await), (Some(0), 0, 0));
}

#[tokio::test]
async fn a_server_that_stops_does_not_wait_for_callers_who_do_not_read() {
    let delta = serde_json::json!({"choices": [{"index": 0, "delta": {"content": "x".repeat(64 * 1024)}}]});
    let model = ScriptedModel::start(move |_| Script::endless(&format!("data: {delta}\n\n"))).await;
    let (house, folder) = (House::start().await, Folder::new());
    folder.file("anneal.toml", &settings(&model));
    let (server, port) = Anneal::new(BINARY, &folder, &house.url).server().await;
    let _unread = begun(&house, port).await;
    model.arrived(1).await;
    server.terminate().await;
    let ended = tokio::time::timeout(Duration::from_secs(15), server.ended()).await.expect("within its time");
    assert_eq!((ended, leases(&house).await), (Some(0), 0));
}

#[tokio::test]
async fn an_answer_outlasts_a_short_outage_of_the_database() {
    let gate = Gate::default();
    let model = ScriptedModel::start({
        let gate = gate.clone();
        move |asked| Script::says(asked, [Say::text("Still here.")]).after(&gate)
    })
    .await;
    let postgres = OwnPostgres::start().await;
    let house = House::calling_on(postgres.url.clone(), model.settings(&[MODEL]), MODEL, ModelAccess::default()).await;
    let talk = house.conversation().await;
    let stream = talk.chat("Anybody?").open().await.expect("begins");
    model.arrived(1).await;
    postgres.crash().await;
    gate.open_for_ever();
    model.idle().await;
    postgres.restart().await;
    let told = ToldTurn::of(stream).await;
    assert_eq!((told.text().as_str(), &told.done().message_ids), ("Still here.", &vec![1, 2]));
    // A connection that was used just before the outage is found broken by the first call after it.
    eventually("both messages are there", async || {
        let ask = pb::ListMessagesRequest { conversation_id: talk.id.clone(), page_size: 10, ..Default::default() };
        house.messages().list_messages(ask).await.is_ok_and(|page| page.into_inner().messages.len() == 2)
    })
    .await;
}

#[tokio::test]
async fn a_deadline_ends_a_turn_whose_caller_does_not_read() {
    let delta = serde_json::json!({"choices": [{"index": 0, "delta": {"content": "x".repeat(64 * 1024)}}]});
    let model = ScriptedModel::start(move |_| Script::endless(&format!("data: {delta}\n\n"))).await;
    let house = House::chatting_patiently(&model).await;
    let talk = house.conversation().await;
    let _unread = talk.chat("go").due_in(Duration::from_secs(8)).open().await.expect("begins");
    model.closed_by_client(1).await;
    eventually("its conversation is free", async || leases(&house).await == 0).await;
    assert_eq!(talk.messages().await.len(), 1);
}

#[tokio::test]
async fn a_call_that_takes_too_long_because_of_its_reader_is_not_held_against_the_model() {
    let piece = "x".repeat(64 * 1024);
    let model =
        ScriptedModel::start(move |asked| Script::says(asked, Say::texts(&[piece.as_str(); 192])).hanging_after(192))
            .await;
    let (mut providers, models) = model.settings(&[MODEL]);
    for provider in providers.values_mut() {
        (provider.first_byte_timeout_ms, provider.total_timeout_ms) = (60_000, 8_000);
    }
    let house = House::calling((providers, models), MODEL).await;
    let talk = house.conversation().await;
    let turn = talk.chat("go").open().await.expect("begins");
    let hung_up = tokio::time::timeout(Duration::from_secs(9), model.closed_by_client(1)).await;
    assert!(hung_up.is_err(), "the call waits for its reader");
    let status = ToldTurn::of(turn).await.end.expect_err("its time was up");
    let said = refusal(&status);
    assert_eq!((said.code, said.reason.as_str(), said.retry), (Code::Unavailable, "MODEL_UNAVAILABLE", true));
    assert_eq!(status.message(), "the answer was cut off while its caller did not read");
    assert_eq!((leases(&house).await, model_failures(&house).await), (0, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_is_stored_though_every_connection_to_the_database_went_dead_meanwhile() {
    let gate = Gate::default();
    let model = ScriptedModel::start({
        let gate = gate.clone();
        move |asked| Script::says(asked, [Say::text("Late.")]).after(&gate)
    })
    .await;
    let house = House::start().await;
    let (line, url) = Line::to(&house.url).await;
    let remote = House::calling_on(url, model.settings(&[MODEL]), MODEL, ModelAccess::default()).await;
    let talk = house.conversation().await;
    let there = Talk { house: &remote, id: talk.id.clone() };
    let stream = there.chat("Is anybody there?").open().await.expect("begins");
    model.arrived(1).await;
    line.go_dead();
    gate.open_for_ever();
    let told = tokio::time::timeout(Duration::from_mins(1), ToldTurn::of(stream)).await.expect("a turn ends");
    assert_eq!((told.text().as_str(), &told.done().message_ids[..]), ("Late.", &[1, 2][..]));
    assert_eq!(talk.said().await[1].1, "Late.");
}
