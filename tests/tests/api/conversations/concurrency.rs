//! Many concurrent writers, readers and workers, and the same request from many callers.

use std::{
    collections::HashSet,
    sync::atomic::{AtomicBool, Ordering},
};

use anneal_testkit::{TestApp, TestConversation, assistant, pb, user};
use futures::future::join_all;

/// Tasks that append at the same time.
const WRITERS: usize = 16;
/// Appends of each writer.
const APPENDS: usize = 25;

/// Appends as one writer. Returns the message ids of each append.
async fn append_batches(conversation: &TestConversation<'_>, writer: usize) -> Vec<Vec<i64>> {
    let mut appended = Vec::new();
    for n in 0..APPENDS {
        let batch = (0..=n % 3)
            .map(|index| user(&format!("writer {writer}, append {n}, message {index}")))
            .collect();
        let done = conversation
            .append_all(batch)
            .request_id(&format!("{writer}-{n}"))
            .await;
        appended.push(
            done.messages
                .iter()
                .map(|message| message.message_id)
                .collect(),
        );
    }
    appended
}

/// Reads new messages until all writers are done, and returns their ids. Asserts that the ids come
/// in order and without gaps.
async fn read_new_messages(
    conversation: &TestConversation<'_>,
    all_written: &AtomicBool,
) -> Vec<i64> {
    let mut seen: Vec<i64> = Vec::new();
    loop {
        let written_before_read = all_written.load(Ordering::SeqCst);
        let ask = pb::ListMessagesRequest {
            conversation_id: conversation.id.clone(),
            after_message_id: seen.last().copied().unwrap_or(0),
            page_size: 37,
            ..Default::default()
        };
        let page = conversation
            .app
            .messages()
            .list_messages(ask)
            .await
            .expect("lists")
            .into_inner();
        for message in &page.messages {
            assert_eq!(
                message.message_id,
                seen.len() as i64 + 1,
                "a reader sees no message before those with lower ids"
            );
            seen.push(message.message_id);
        }
        if written_before_read && page.messages.is_empty() {
            return seen;
        }
        tokio::task::yield_now().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ids_of_sixteen_writers_have_no_gaps_and_readers_see_none() {
    let app = TestApp::start().await;
    let second = app.second_server().await;
    let conversation = app.conversation().await;
    let at_second_server = TestConversation {
        app: &second,
        id: conversation.id.clone(),
    };
    let all_written = AtomicBool::new(false);
    let writers = async {
        let written = join_all((0..WRITERS).map(|writer| {
            let conversation = if writer % 2 == 0 {
                &conversation
            } else {
                &at_second_server
            };
            append_batches(conversation, writer)
        }));
        let written = written.await;
        all_written.store(true, Ordering::SeqCst);
        written
    };
    let readers = join_all((0..4).map(|reader| {
        read_new_messages(
            if reader % 2 == 0 {
                &conversation
            } else {
                &at_second_server
            },
            &all_written,
        )
    }));
    let (written, read) = tokio::join!(writers, readers);
    let mut ids = HashSet::new();
    for (writer, appends) in written.iter().enumerate() {
        let mut newest = 0;
        for append in appends {
            assert!(
                append.windows(2).all(|pair| pair[1] == pair[0] + 1),
                "the messages of one append stay together: {append:?}"
            );
            assert!(
                append[0] > newest,
                "the appends of writer {writer} are in order"
            );
            newest = append[append.len() - 1];
            ids.extend(append);
        }
    }
    let count = ids.len() as i64;
    assert_eq!(
        ids,
        (1..=count).collect(),
        "ids are unique and without gaps"
    );
    for seen in read {
        assert_eq!(seen.len() as i64, count);
    }
    app.run_jobs_until_idle().await;
    let verified = conversation.verify().await;
    assert_eq!(verified.messages_checked, count);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_request_id_from_16_callers_on_two_servers_stores_once() {
    let app = TestApp::start().await;
    let second = app.second_server().await;
    let conversation = app.conversation().await;
    conversation.turn("a", "b").await;
    for round in 0..10 {
        let id = format!("r{round}");
        let calls = (0..16).map(|caller| {
            let app = if caller % 2 == 0 { &app } else { &second };
            let conversation = TestConversation {
                app,
                id: conversation.id.clone(),
            };
            let append = conversation
                .append_all(vec![user("same"), assistant("same")])
                .request_id(&id);
            async move { append.send().await.expect("appends") }
        });
        let answers = join_all(calls).await;
        assert_eq!(
            answers.iter().filter(|answer| !answer.replayed).count(),
            1,
            "one stored, the others replayed"
        );
        assert!(
            answers
                .iter()
                .all(|answer| answer.messages == answers[0].messages)
        );
        assert_eq!(
            conversation.conversation().await.message_count,
            2 + 2 * (round + 1)
        );
    }
    conversation.verify().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_16_appends_that_expect_the_same_last_message_one_succeeds() {
    let app = TestApp::start().await;
    let conversation = app.conversation().await;
    for round in 0..10 {
        let calls = (0..16).map(|caller| {
            conversation
                .append(&format!("from {caller}"))
                .expecting(round)
                .send()
        });
        let succeeded = join_all(calls)
            .await
            .iter()
            .filter(|outcome| outcome.is_ok())
            .count();
        assert_eq!(succeeded, 1);
    }
    assert_eq!(conversation.messages().await.len(), 10);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_create_request_from_16_callers_creates_one_conversation() {
    let app = TestApp::start().await;
    let second = app.second_server().await;
    let calls = (0..16).map(|caller| {
        let app = if caller % 2 == 0 { &app } else { &second };
        let ask = pb::CreateConversationRequest {
            request_id: "c1".into(),
            title: "one".into(),
            ..Default::default()
        };
        async move {
            app.conversations()
                .create_conversation(ask)
                .await
                .expect("creates")
                .into_inner()
                .conversation_id
        }
    });
    let ids: HashSet<String> = join_all(calls).await.into_iter().collect();
    assert_eq!(ids.len(), 1);
    let listed = app
        .conversations()
        .list_conversations(pb::ListConversationsRequest::default())
        .await;
    assert_eq!(listed.expect("lists").into_inner().conversations.len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn four_workers_count_each_message_once() {
    let app = TestApp::start().await;
    let second = app.second_server().await;
    let mut conversations = Vec::new();
    for n in 0..40 {
        let conversation = app.conversation().await;
        conversation.turn(&format!("question {n}"), "answer").await;
        conversations.push(conversation);
    }
    let ran = tokio::join!(
        app.run_jobs_until_idle(),
        app.run_jobs_until_idle(),
        second.run_jobs_until_idle(),
        second.run_jobs_until_idle(),
    );
    assert_eq!(ran.0 + ran.1 + ran.2 + ran.3, 40, "no job ran twice");
    for conversation in conversations {
        assert_eq!(
            conversation
                .conversation()
                .await
                .token_total
                .expect("has a total")
                .estimated_messages,
            0
        );
        conversation.verify().await;
    }
}
