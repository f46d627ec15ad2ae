//! Appends that wait at the same time share a transaction, and none of them feels the others: one that is refused, repeated,
//! held up or broken.

use std::{collections::BTreeMap, slice, time::Duration};

use anneal_core::{
    caller::{Caller, ConversationId, TenantId},
    message::{Message, Part, Role},
};
use anneal_store::{Append, Grouping};
use anneal_tests::{House, OwnPostgres, eventually, grouping, patient, pb, refusal, user};
use futures::future::join_all;
use pb::{message_service_client::MessageServiceClient, operator_service_client::OperatorServiceClient};
use sqlx::{Connection as _, PgConnection};
use tonic::{Code, Status, transport::Channel};
use uuid::Uuid;

async fn append(channel: &Channel, ask: pb::AppendMessagesRequest) -> Result<pb::AppendMessagesResponse, Status> {
    Ok(MessageServiceClient::new(channel.clone()).append_messages(patient(ask)).await?.into_inner())
}

fn one(conversation_id: &str, request_id: &str, text: &str) -> pb::AppendMessagesRequest {
    pb::AppendMessagesRequest {
        conversation_id: conversation_id.into(),
        request_id: request_id.into(),
        messages: vec![user(text)],
        ..Default::default()
    }
}

/// All that are asked for at once wait before the first lane looks: one thread does both.
#[tokio::test]
async fn appends_that_wait_together_are_stored_in_few_transactions() {
    let postgres = OwnPostgres::start().await;
    let mut db = PgConnection::connect(&postgres.url).await.expect("connects");
    sqlx::raw_sql("alter database anneal set log_statement = 'all'").execute(&mut db).await.expect("logs");
    let house = House::at(&postgres.url).await;
    let mut ids = Vec::new();
    for _ in 0..64 {
        ids.push(ConversationId(house.conversation().await.uuid()));
    }
    let hello =
        Message { role: Role::User, parts: vec![Part::Text { text: "hello".into() }], metadata: BTreeMap::new() };
    let rounds = 10;
    for round in 0..rounds {
        let appends = ids.iter().map(async |id| {
            let append = Append::new(*id, Some(format!("r{round}")), None, slice::from_ref(&hello));
            house.store.append(Caller::of(TenantId::DEFAULT), &append).await.expect("is stored")
        });
        join_all(appends).await;
    }
    let statements = postgres.statements().iter().filter(|entry| entry.contains("-- Appends to conversations")).count();
    println!("{} appends in {statements} statements", 64 * rounds);
    if grouping() == Grouping::Off {
        assert_eq!(statements, 64 * rounds);
    } else {
        assert!(statements <= 64 * rounds / 4, "{statements} statements");
    }
}

#[tokio::test]
async fn each_of_a_group_gets_its_own_answer() {
    let house = House::start().await;
    let (channel, mut calls) = (house.channel(), Vec::new());
    let fine: Vec<String> = join_all((0..8).map(async |_| house.conversation().await.id.clone())).await;
    let [repeated, reused, moved] = [0, 1, 2].map(|_| house.conversation());
    let (repeated, reused, moved) = (repeated.await, reused.await, moved.await);
    append(&house.channel(), one(&repeated.id, "r", "said before")).await.expect("is stored");
    append(&house.channel(), one(&reused.id, "r", "said before")).await.expect("is stored");
    append(&house.channel(), one(&moved.id, "r", "said before")).await.expect("is stored");
    let missing = Uuid::now_v7().to_string();
    calls.extend(fine.iter().map(|id| one(id, "r", "hello")));
    calls.push(one(&repeated.id, "r", "said before"));
    calls.push(one(&reused.id, "r", "something else"));
    calls.push(pb::AppendMessagesRequest { expected_last_message_id: Some(7), ..one(&moved.id, "s", "hello") });
    calls.push(one(&missing, "r", "hello"));
    for _ in 0..20 {
        let answers = join_all(calls.iter().map(|ask| append(&channel, ask.clone()))).await;
        for answer in &answers[..8] {
            assert_eq!(answer.as_ref().expect("is stored").messages[0].message_id, 1);
        }
        let repeated = answers[8].as_ref().expect("is answered again");
        assert!(repeated.replayed && repeated.messages[0].message_id == 1, "{repeated:?}");
        let reasons = answers[9..].iter().map(|answer| refusal(answer.as_ref().expect_err("is refused")).reason);
        assert_eq!(
            reasons.collect::<Vec<_>>(),
            ["REQUEST_ID_REUSED", "LAST_MESSAGE_MISMATCH", "CONVERSATION_NOT_FOUND"]
        );
    }
    for id in &fine {
        let ask = pb::ListMessagesRequest { conversation_id: id.clone(), page_size: 10, ..Default::default() };
        let page = MessageServiceClient::new(house.channel()).list_messages(ask).await.expect("lists");
        assert_eq!(page.into_inner().messages.len(), 1, "repeated appends store nothing");
    }
}

/// Locks a conversation in a transaction of this connection.
async fn lock(db: &mut PgConnection, conversation_id: &str) {
    let id: Uuid = conversation_id.parse().expect("an id");
    sqlx::raw_sql("begin").execute(&mut *db).await.expect("begins");
    let lock = "select from ai_conversation where conversation_id = $1 for update";
    sqlx::query(lock).bind(id).execute(db).await.expect("locks");
}

#[tokio::test]
async fn a_locked_conversation_holds_up_nobody_but_itself() {
    let house = House::start().await;
    let (locked, talk) = (house.conversation().await, house.conversation().await);
    let mut db = house.db().await;
    lock(&mut db, &locked.id).await;
    let waiting = tokio::spawn({
        let (channel, id) = (house.channel(), locked.id.clone());
        async move { append(&channel, one(&id, "r", "later")).await }
    });
    let channel = house.channel();
    for number in 0..100 {
        let answered = append(&channel, one(&talk.id, &format!("r{number}"), "now"));
        let answered = tokio::time::timeout(Duration::from_secs(10), answered).await.expect("is not held up");
        assert_eq!(answered.expect("is stored").messages[0].message_id, number + 1);
    }
    assert!(!waiting.is_finished(), "who holds the conversation is waited for");
    sqlx::raw_sql("commit").execute(&mut db).await.expect("commits");
    assert_eq!(waiting.await.expect("ends").expect("is stored").messages[0].message_id, 1);
}

#[tokio::test]
async fn more_that_wait_for_one_conversation_than_there_are_connections_keep_out_nobody() {
    if grouping() == Grouping::Off {
        eprintln!("skipped: without groups every append has a connection of the same pool");
        return;
    }
    let house = House::start().await;
    let (locked, talk) = (house.conversation().await, house.conversation().await);
    let mut db = house.db().await;
    lock(&mut db, &locked.id).await;
    let mut waiting = tokio::task::JoinSet::new();
    for number in 0..40 {
        let (channel, id) = (house.channel(), locked.id.clone());
        waiting.spawn(async move { append(&channel, one(&id, &format!("r{number}"), "later")).await });
    }
    eventually("no connection is left to those that wait", async || {
        house.store.pools().iter().any(|(pool, figures)| *pool == "writes" && figures.waiting > 0)
    })
    .await;
    let channel = house.channel();
    for number in 0..20 {
        let answered = append(&channel, one(&talk.id, &format!("r{number}"), "now")).await;
        assert_eq!(answered.expect("is stored").messages[0].message_id, number + 1);
    }
    sqlx::raw_sql("commit").execute(&mut db).await.expect("commits");
    let ended = waiting.join_all().await;
    assert!(ended.iter().any(Result::is_ok), "who waited with a connection is stored");
    for refused in ended.into_iter().filter_map(Result::err) {
        assert_eq!(refused.code(), Code::Unavailable, "the others are told to come back: {refused}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_appenders_of_one_conversation_are_all_stored_once_and_in_order() {
    let house = House::start().await;
    let (talk, others) = (house.conversation().await, house.conversation().await);
    let calls = (0..200).map(|number| {
        let talk = if number % 4 == 0 { &others } else { &talk };
        let (channel, ask) = (house.channel(), one(&talk.id, &format!("r{number}"), &format!("number {number}")));
        async move { append(&channel, ask).await }
    });
    let answers: Vec<_> = join_all(calls).await;
    let mut ids: Vec<i64> = (0..200)
        .zip(&answers)
        .filter(|(number, _)| number % 4 != 0)
        .map(|(_, answer)| answer.as_ref().expect("is stored").messages[0].message_id)
        .collect();
    ids.sort_unstable();
    assert_eq!(ids, (1..=150).collect::<Vec<_>>());
    house.run_jobs_until_idle().await;
    talk.verify().await;
    others.verify().await;
}

#[tokio::test]
async fn what_is_broken_for_one_is_stored_for_the_others() {
    let house = House::start().await;
    let (broken, talk) = (house.conversation().await, house.conversation().await);
    let mut db = house.db().await;
    // A row in the way of the next id: nothing else can break the statement.
    sqlx::query(
        "insert into ai_message (tenant_id, conversation_id, message_id, role, turn, token_estimate, text_bytes, content,
             content_digest)
         select tenant_id, conversation_id, 1, 1, 1, 1, 1, '[]', '' from ai_conversation where conversation_id = $1",
    )
    .bind(broken.id.parse::<Uuid>().expect("an id"))
    .execute(&mut db)
    .await
    .expect("inserts");
    for number in 0..10 {
        let name = format!("r{number}");
        let channel = house.channel();
        let (refused, stored) =
            tokio::join!(append(&channel, one(&broken.id, &name, "x")), append(&channel, one(&talk.id, &name, "x")));
        assert_eq!(refused.expect_err("cannot be stored").code(), Code::Internal);
        assert_eq!(stored.expect("is stored").messages[0].message_id, number + 1);
    }
    let ask = pb::GetQueueStatsRequest {};
    let stats = OperatorServiceClient::new(house.channel()).get_queue_stats(ask).await.expect("answers");
    let waiting: i64 = stats.into_inner().queues.iter().map(|queue| queue.waiting).sum();
    assert_eq!(waiting, 1, "one conversation has something to count");
    eventually("the house is idle", async || house.run_jobs_until_idle().await == 0).await;
}
