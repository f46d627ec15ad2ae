//! Simultaneous appends share a transaction. An append that is refused, repeated, blocked by a lock
//! or fails does not affect the others.

use std::{collections::BTreeMap, slice, time::Duration};

use anneal_core::{
    caller::{Caller, ConversationId, TenantId},
    message::{Message, Part, Role},
};
use anneal_store::{Append, Grouping};
use anneal_testkit::{
    OwnPostgres, TestApp, append_grouping, eventually, pb, status_details, user,
    with_longest_deadline,
};
use futures::future::join_all;
use pb::{
    message_service_client::MessageServiceClient, operator_service_client::OperatorServiceClient,
};
use sqlx::{Connection as _, PgConnection};
use tonic::{Code, Status, transport::Channel};
use uuid::Uuid;

async fn append(
    channel: &Channel,
    ask: pb::AppendMessagesRequest,
) -> Result<pb::AppendMessagesResponse, Status> {
    Ok(MessageServiceClient::new(channel.clone())
        .append_messages(with_longest_deadline(ask))
        .await?
        .into_inner())
}

fn append_request(
    conversation_id: &str,
    request_id: &str,
    text: &str,
) -> pb::AppendMessagesRequest {
    pb::AppendMessagesRequest {
        conversation_id: conversation_id.into(),
        request_id: request_id.into(),
        messages: vec![user(text)],
        ..Default::default()
    }
}

/// The runtime has one thread. Therefore all appends wait in the queue before the batcher takes the
/// first of them.
#[tokio::test]
async fn simultaneous_appends_share_a_few_transactions() {
    let postgres = OwnPostgres::start().await;
    let mut db = PgConnection::connect(&postgres.url)
        .await
        .expect("connects");
    sqlx::raw_sql("alter database anneal set log_statement = 'all'")
        .execute(&mut db)
        .await
        .expect("logs");
    let app = TestApp::on_database(&postgres.url).await;
    let mut ids = Vec::new();
    for _ in 0..64 {
        ids.push(ConversationId(app.conversation().await.uuid()));
    }
    // Appends of tool calls are batched too, because these conversations keep tool messages.
    let call = Message {
        role: Role::Assistant,
        parts: vec![Part::ToolUse {
            id: "a".into(),
            name: "look".into(),
            input: "{}".into(),
        }],
        metadata: BTreeMap::new(),
    };
    let rounds = 10;
    for round in 0..rounds {
        let appends = ids.iter().map(async |id| {
            let append = Append::new(
                *id,
                Some(format!("r{round}")),
                None,
                slice::from_ref(&call),
                None,
            );
            app.store
                .append(Caller::of(TenantId::DEFAULT), &append)
                .await
                .expect("is stored")
        });
        join_all(appends).await;
    }
    let statements = postgres
        .statements()
        .iter()
        // The first lines of `store/sql/append.sql` and `store/sql/append_one.sql`.
        .filter(|entry| {
            entry.contains("-- Appends to conversations")
                || entry.contains("-- Appends to one conversation")
        })
        .count();
    println!("{} appends in {statements} statements", 64 * rounds);
    if append_grouping() == Grouping::Off {
        assert_eq!(statements, 64 * rounds);
    } else {
        // On average, at least four appends share a statement.
        assert!(statements <= 64 * rounds / 4, "{statements} statements");
    }
}

#[tokio::test]
async fn each_append_of_a_batch_gets_its_own_answer() {
    let app = TestApp::start().await;
    let (channel, mut calls) = (app.channel(), Vec::new());
    let accepted: Vec<String> =
        join_all((0..8).map(async |_| app.conversation().await.id.clone())).await;
    // Conversations that get a repeated append, an append whose request id has another body, and an
    // append that expects another last message.
    let (repeated, reused, outdated) = (
        app.conversation().await,
        app.conversation().await,
        app.conversation().await,
    );
    append(
        &app.channel(),
        append_request(&repeated.id, "r", "said before"),
    )
    .await
    .expect("is stored");
    append(
        &app.channel(),
        append_request(&reused.id, "r", "said before"),
    )
    .await
    .expect("is stored");
    append(
        &app.channel(),
        append_request(&outdated.id, "r", "said before"),
    )
    .await
    .expect("is stored");
    let missing = Uuid::now_v7().to_string();
    calls.extend(accepted.iter().map(|id| append_request(id, "r", "hello")));
    calls.push(append_request(&repeated.id, "r", "said before"));
    calls.push(append_request(&reused.id, "r", "something else"));
    calls.push(pb::AppendMessagesRequest {
        expected_last_message_id: Some(7),
        ..append_request(&outdated.id, "s", "hello")
    });
    calls.push(append_request(&missing, "r", "hello"));
    for _ in 0..20 {
        let answers = join_all(calls.iter().map(|ask| append(&channel, ask.clone()))).await;
        for answer in &answers[..8] {
            assert_eq!(
                answer.as_ref().expect("is stored").messages[0].message_id,
                1
            );
        }
        let repeated = answers[8].as_ref().expect("is answered again");
        assert!(
            repeated.replayed && repeated.messages[0].message_id == 1,
            "{repeated:?}"
        );
        let reasons = answers[9..]
            .iter()
            .map(|answer| status_details(answer.as_ref().expect_err("is refused")).reason);
        assert_eq!(
            reasons.collect::<Vec<_>>(),
            [
                "REQUEST_ID_REUSED",
                "LAST_MESSAGE_MISMATCH",
                "CONVERSATION_NOT_FOUND"
            ]
        );
    }
    for id in &accepted {
        let ask = pb::ListMessagesRequest {
            conversation_id: id.clone(),
            page_size: 10,
            ..Default::default()
        };
        let page = MessageServiceClient::new(app.channel())
            .list_messages(ask)
            .await
            .expect("lists");
        assert_eq!(
            page.into_inner().messages.len(),
            1,
            "repeated appends store nothing"
        );
    }
}

/// Begins a transaction on this connection and locks the conversation's row.
async fn begin_and_lock(db: &mut PgConnection, conversation_id: &str) {
    let id: Uuid = conversation_id.parse().expect("an id");
    sqlx::raw_sql("begin")
        .execute(&mut *db)
        .await
        .expect("begins");
    let lock = "select from ai_conversation where conversation_id = $1 for update";
    sqlx::query(lock).bind(id).execute(db).await.expect("locks");
}

#[tokio::test]
async fn a_locked_conversation_delays_only_its_own_appends() {
    let app = TestApp::start().await;
    let (locked, conversation) = (app.conversation().await, app.conversation().await);
    let mut db = app.db().await;
    begin_and_lock(&mut db, &locked.id).await;
    let waiting = tokio::spawn({
        let (channel, id) = (app.channel(), locked.id.clone());
        async move { append(&channel, append_request(&id, "r", "later")).await }
    });
    let channel = app.channel();
    for number in 0..100 {
        let answered = append(
            &channel,
            append_request(&conversation.id, &format!("r{number}"), "now"),
        );
        let answered = tokio::time::timeout(Duration::from_secs(10), answered)
            .await
            .expect("is not delayed");
        assert_eq!(
            answered.expect("is stored").messages[0].message_id,
            number + 1
        );
    }
    assert!(
        !waiting.is_finished(),
        "an append to a locked conversation waits"
    );
    sqlx::raw_sql("commit")
        .execute(&mut db)
        .await
        .expect("commits");
    assert_eq!(
        waiting.await.expect("ends").expect("is stored").messages[0].message_id,
        1
    );
}

#[tokio::test]
async fn appends_to_one_locked_conversation_do_not_exhaust_the_pool() {
    if append_grouping() == Grouping::Off {
        eprintln!(
            "skipped: without grouping, waiting appends hold the connections that other appends need"
        );
        return;
    }
    let app = TestApp::start().await;
    let (locked, conversation) = (app.conversation().await, app.conversation().await);
    let mut db = app.db().await;
    begin_and_lock(&mut db, &locked.id).await;
    let mut waiting = tokio::task::JoinSet::new();
    for number in 0..40 {
        let (channel, id) = (app.channel(), locked.id.clone());
        waiting.spawn(async move {
            append(
                &channel,
                append_request(&id, &format!("r{number}"), "later"),
            )
            .await
        });
    }
    eventually("an append waits for a connection", async || {
        app.store
            .pool_figures()
            .iter()
            .any(|(pool, figures)| *pool == "writes" && figures.waiting > 0)
    })
    .await;
    let channel = app.channel();
    for number in 0..20 {
        let answered = append(
            &channel,
            append_request(&conversation.id, &format!("r{number}"), "now"),
        )
        .await;
        assert_eq!(
            answered.expect("is stored").messages[0].message_id,
            number + 1
        );
    }
    sqlx::raw_sql("commit")
        .execute(&mut db)
        .await
        .expect("commits");
    let ended = waiting.join_all().await;
    assert!(
        ended.iter().any(Result::is_ok),
        "an append that waited with a connection is stored"
    );
    for refused in ended.into_iter().filter_map(Result::err) {
        assert_eq!(
            refused.code(),
            Code::Unavailable,
            "the client may retry the others: {refused}"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_appends_to_one_conversation_are_stored_once_and_without_gaps() {
    let app = TestApp::start().await;
    let (conversation, other) = (app.conversation().await, app.conversation().await);
    let calls = (0..200).map(|number| {
        let conversation = if number % 4 == 0 {
            &other
        } else {
            &conversation
        };
        let (channel, ask) = (
            app.channel(),
            append_request(
                &conversation.id,
                &format!("r{number}"),
                &format!("number {number}"),
            ),
        );
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
    app.run_jobs_until_idle().await;
    conversation.verify().await;
    other.verify().await;
}

#[tokio::test]
async fn a_failing_append_does_not_fail_the_rest_of_its_batch() {
    let app = TestApp::start().await;
    let (broken, conversation) = (app.conversation().await, app.conversation().await);
    let mut db = app.db().await;
    // A stored row that already has the next message id makes the insert fail.
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
        let request_id = format!("r{number}");
        let channel = app.channel();
        let (refused, stored) = tokio::join!(
            append(&channel, append_request(&broken.id, &request_id, "x")),
            append(&channel, append_request(&conversation.id, &request_id, "x"))
        );
        assert_eq!(
            refused.expect_err("cannot be stored").code(),
            Code::Internal
        );
        assert_eq!(
            stored.expect("is stored").messages[0].message_id,
            number + 1
        );
    }
    let ask = pb::GetQueueStatsRequest {};
    let stats = OperatorServiceClient::new(app.channel())
        .get_queue_stats(ask)
        .await
        .expect("answers");
    let waiting: i64 = stats
        .into_inner()
        .queues
        .iter()
        .map(|queue| queue.waiting)
        .sum();
    assert_eq!(waiting, 1, "one conversation has something to count");
    eventually("the app is idle", async || {
        app.run_jobs_until_idle().await == 0
    })
    .await;
}
