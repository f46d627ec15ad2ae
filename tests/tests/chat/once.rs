//! Chat once and for all: repeated, abandoned, interrupted or side by side, a turn has one effect.

use std::time::Duration;

use anneal_tests::{Gate, House, Say, Script, ScriptedModel, ToldTurn, assert_refused, eventually, pb, refusal, user};
use pb::chat_response::Event;
use sqlx::Connection as _;
use tonic::Code;

/// What comes of it, within half a minute.
async fn soon<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(30), what).await.expect("half a minute is enough")
}

#[tokio::test]
async fn what_was_said_is_stored_before_the_model_is_called() {
    let gate = Gate::default();
    let model = ScriptedModel::start({
        let gate = gate.clone();
        move |asked| Script::says(asked, [Say::text("yes")]).after(&gate)
    })
    .await;
    let house = House::chatting_patiently(&model).await;
    let talk = house.conversation().await;
    let stream = talk.chat("Is it stored?").open().await.expect("begins");
    model.arrived(1).await;
    assert_eq!(talk.said().await, [(pb::Role::User, "Is it stored?".to_owned())]);
    gate.open_for_ever();
    ToldTurn::of(stream).await.done();
}

#[tokio::test]
async fn a_repeated_turn_is_told_again_without_calling_the_model() {
    let model = ScriptedModel::saying("Once.").await;
    let house = House::chatting_patiently(&model).await;
    let talk = house.conversation().await;
    let first = talk.chat("Say it once.").request_id("turn-1").await;
    // Another model, other tools: what was said makes the turn, not how it was asked.
    let again = talk.chat("Say it once.").request_id("turn-1").of("no-such-model").with_tool("look").await;
    assert_eq!(model.asked().len(), 1);
    let told_again = pb::chat_response::Started { replayed: true, ..first.started().clone() };
    assert_eq!((again.text(), again.started()), (first.text(), &told_again));
    let replayed = pb::chat_response::Done { replayed: true, attempts: 0, ..first.done().clone() };
    assert_eq!(again.done(), &replayed);
    assert_eq!(talk.messages().await.len(), 2);
    let usage = pb::GetContextUsageRequest { conversation_id: talk.id.clone(), economics: true, ..Default::default() };
    let usage = house.contexts().get_context_usage(usage).await.expect("answers").into_inner();
    let reported = usage.economics.and_then(|economics| economics.reported).expect("reported");
    assert_eq!(reported.calls, 1, "the cost is recorded once");
}

#[tokio::test]
async fn a_turn_that_failed_is_tried_again_without_storing_twice() {
    let model = ScriptedModel::start(|asked| match asked.nth {
        0 => Script::status(500, &[], "{}"),
        _ => Script::says(asked, [Say::text("Now.")]),
    })
    .await;
    let house = House::chatting_patiently(&model).await;
    let talk = house.conversation().await;
    let asked = talk.chat("Now?").request_id("r");
    assert_refused(asked.clone().await.end, Code::Unavailable, "MODEL_UNAVAILABLE", "");
    assert_eq!(talk.said().await, [(pb::Role::User, "Now?".to_owned())], "what was said stays");
    let told = asked.await;
    assert_eq!((told.text().as_str(), told.done().replayed), ("Now.", false));
    assert_eq!(told.done().message_ids, [1, 2]);
    assert_eq!(talk.messages().await.len(), 2);
}

#[tokio::test]
async fn a_question_that_was_answered_with_the_next_one_is_not_answered_again() {
    let model = ScriptedModel::start(|asked| match asked.nth {
        0 => Script::status(500, &[], "{}"),
        _ => Script::says(asked, [Say::text("Both.")]),
    })
    .await;
    let house = House::chatting_patiently(&model).await;
    let talk = house.conversation().await;
    let first = talk.chat("The first?").request_id("r");
    assert_refused(first.clone().await.end, Code::Unavailable, "MODEL_UNAVAILABLE", "");
    talk.chat("The second?").await.done();
    for _ in 0..2 {
        let told = first.clone().await;
        assert!(told.events.is_empty(), "{:?}", told.events);
        assert_refused(told.end, Code::Aborted, "TURN_OVERTAKEN", "");
    }
    assert_eq!((talk.messages().await.len(), model.asked().len()), (3, 2));
    assert_eq!(talk.chat("The third?").await.text(), "Both.", "the conversation is free");
}

#[tokio::test]
async fn a_question_before_a_separator_is_not_answered_after_it() {
    let model = ScriptedModel::start(|asked| match asked.nth {
        0 | 1 => Script::status(500, &[], "{}"),
        _ => Script::says(asked, [Say::text("Yes.")]),
    })
    .await;
    let house = House::chatting_patiently(&model).await;
    let talk = house.conversation().await;
    talk.separate().await;
    let first = talk.chat("Before?").request_id("r");
    for _ in 0..2 {
        assert_refused(first.clone().await.end, Code::Unavailable, "MODEL_UNAVAILABLE", "");
    }
    let separator = talk.separate().await;
    assert_refused(first.clone().await.end, Code::Aborted, "TURN_OVERTAKEN", "");
    talk.join(separator.after_message_id).await;
    assert_eq!(first.await.text(), "Yes.", "it stands again");
}

#[tokio::test]
async fn a_request_id_belongs_to_one_request() {
    let model = ScriptedModel::saying("Yes.").await;
    let house = House::chatting_patiently(&model).await;
    let talk = house.conversation().await;
    talk.append("Appended.").request_id("append").await;
    talk.chat("Asked.").request_id("chat").await.done();
    let reused = |told: ToldTurn| assert_refused(told.end, Code::AlreadyExists, "REQUEST_ID_REUSED", "");
    reused(talk.chat("Asked otherwise.").request_id("chat").await);
    reused(talk.chat("Appended.").request_id("append").await);
    let appended = talk.append("Asked.").request_id("chat").send().await;
    assert_refused(appended, Code::AlreadyExists, "REQUEST_ID_REUSED", "");
    assert_eq!((talk.messages().await.len(), model.asked().len()), (3, 1));
}

#[tokio::test]
async fn one_conversation_has_one_turn_at_a_time() {
    let gate = Gate::default();
    let model = ScriptedModel::start({
        let gate = gate.clone();
        move |asked| Script::says(asked, [Say::text("done")]).after(&gate)
    })
    .await;
    let house = House::chatting_patiently(&model).await;
    let (talk, other) = (house.conversation().await, house.conversation().await);
    let asked = talk.chat("one").request_id("r1");
    let first = asked.clone().open().await.expect("begins");
    model.arrived(1).await;
    let second = talk.chat("two").request_id("r2").await.end.expect_err("one is under way");
    let said = refusal(&second);
    assert_eq!((said.code, said.reason.as_str(), said.retry), (Code::Aborted, "TURN_IN_PROGRESS", true));
    assert_eq!(talk.messages().await.len(), 1, "a refused turn leaves nothing behind");
    let beside = house.beside().await;
    let elsewhere =
        pb::ChatRequest { conversation_id: talk.id.clone(), messages: vec![user("three")], ..Default::default() };
    let refused = beside.chats().chat(elsewhere).await.expect("begins").into_inner();
    assert_refused(ToldTurn::of(refused).await.end, Code::Aborted, "TURN_IN_PROGRESS", "");
    assert_refused(asked.await.end, Code::Aborted, "TURN_IN_PROGRESS", "");
    gate.open_for_ever();
    other.chat("meanwhile").await.done();
    ToldTurn::of(first).await.done();
    assert!(talk.chat("one").request_id("r1").await.done().replayed);
    assert_eq!(talk.chat("two").request_id("r2").await.done().message_ids, [3, 4]);
}

#[tokio::test]
async fn a_caller_who_leaves_ends_the_models_call_and_nothing_of_the_answer_is_stored() {
    let model = ScriptedModel::start(|asked| match asked.nth {
        0 => Script::says(asked, Say::texts(&["half an ", "answer"])).hanging_after(2),
        _ => Script::says(asked, [Say::text("whole")]),
    })
    .await;
    let house = House::chatting_patiently(&model).await;
    let talk = house.conversation().await;
    let mut stream = talk.chat("go").request_id("r").open().await.expect("begins");
    while !matches!(stream.message().await.expect("goes on").and_then(|r| r.event), Some(Event::TextDelta(_))) {}
    drop(stream);
    soon(model.closed_by_client(1)).await;
    assert_eq!(talk.messages().await.len(), 1);
    eventually("the conversation is free again", async || match talk.chat("go").request_id("r").await.end {
        Ok(done) => done.message_ids == [1, 2],
        Err(status) => refusal(&status).reason != "TURN_IN_PROGRESS",
    })
    .await;
    assert_eq!(talk.said().await[1].1, "whole");
}

#[tokio::test]
async fn a_deadline_ends_the_models_call() {
    let model = ScriptedModel::start(|_| Script::hang()).await;
    let house = House::chatting_patiently(&model).await;
    let talk = house.conversation().await;
    let told = talk.chat("go").due_in(Duration::from_secs(8)).await;
    assert_refused(told.end, Code::DeadlineExceeded, "DEADLINE_EXCEEDED", "");
    soon(model.closed_by_client(1)).await;
    assert_eq!(talk.messages().await.len(), 1);
}

#[tokio::test]
async fn a_server_that_stops_lets_its_turns_end() {
    let gate = Gate::default();
    let model = ScriptedModel::start({
        let gate = gate.clone();
        move |asked| Script::says(asked, [Say::text("still here")]).after(&gate)
    })
    .await;
    let house = House::chatting_patiently(&model).await;
    let url = house.url.clone();
    let talk = house.conversation().await;
    let id = talk.id.clone();
    let stream = talk.chat("Stay?").open().await.expect("begins");
    model.arrived(1).await;
    drop(house);
    gate.open_for_ever();
    assert_eq!(ToldTurn::of(stream).await.text(), "still here");
    let other = House::at(&url).await;
    let ask = pb::GetConversationRequest { conversation_id: id };
    let kept = other.conversations().get_conversation(ask).await.expect("is there").into_inner();
    assert_eq!(kept.message_count, 2);
}

#[tokio::test]
async fn a_turn_whose_server_died_frees_its_conversation_when_its_lease_ends() {
    let model = ScriptedModel::start(|asked| match asked.nth {
        0 => Script::hang(),
        _ => Script::says(asked, [Say::text("alive")]),
    })
    .await;
    let house = House::chatting_patiently(&model).await;
    let talk = house.conversation().await;
    let stuck = talk.chat("one").open().await.expect("begins");
    model.arrived(1).await;
    let mut db = house.db().await;
    sqlx::query("update ai_model_lease set lease_until_ts = now() - interval '1 second'")
        .execute(&mut db)
        .await
        .expect("the lease is past its time");
    assert_eq!(talk.chat("two").await.text(), "alive");
    let lost = soon(ToldTurn::of(stuck)).await.end.expect_err("its lease was taken");
    assert_eq!(lost.message(), "the turn was interrupted");
    assert_refused(Err::<(), _>(lost), Code::Unavailable, "MODEL_UNAVAILABLE", "");
    assert_eq!(talk.messages().await.len(), 3);
}

#[tokio::test]
async fn a_turn_that_expects_another_newest_message_stores_nothing() {
    let model = ScriptedModel::saying("Yes.").await;
    let house = House::chatting_patiently(&model).await;
    let talk = house.conversation().await;
    let mut asked = talk.chat("first").request_id("r");
    asked.ask.expected_last_message_id = Some(7);
    assert_refused(asked.clone().await.end, Code::Aborted, "LAST_MESSAGE_MISMATCH", "");
    assert!(talk.messages().await.is_empty() && model.asked().is_empty());
    asked.ask.expected_last_message_id = Some(0);
    asked.clone().await.done();
    assert!(asked.await.done().replayed, "the expectation was met when it mattered");
}

#[tokio::test]
async fn an_answer_that_is_complete_is_stored_although_its_caller_leaves() {
    let gate = Gate::default();
    let model = ScriptedModel::start({
        let gate = gate.clone();
        move |asked| Script::says(asked, [Say::text("All of it.")]).after(&gate)
    })
    .await;
    let house = House::chatting_patiently(&model).await;
    let talk = house.conversation().await;
    let stream = talk.chat("go").request_id("r").open().await.expect("begins");
    soon(model.arrived(1)).await;
    let mut db = house.db().await;
    let mut lock = db.begin().await.expect("begins");
    sqlx::query("select from ai_conversation for update").execute(&mut *lock).await.expect("locks");
    gate.open_for_ever();
    eventually("the answer waits to be stored", async || {
        let waiting = "select count(*) from pg_stat_activity \
                       where datname = current_database() and wait_event_type = 'Lock'";
        let waiting: i64 = sqlx::query_scalar(waiting).fetch_one(&mut house.db().await).await.expect("looks");
        waiting > 0
    })
    .await;
    drop(stream);
    lock.commit().await.expect("lets go");
    eventually("the answer is stored", async || talk.messages().await.len() == 2).await;
    eventually("and what it cost", async || {
        let told = talk.chat("go").request_id("r").await;
        told.done().replayed && told.done().usage.is_some()
    })
    .await;
}
