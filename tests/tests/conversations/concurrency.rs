//! Many at once: writers, readers, the same request from everywhere.

use std::{
    collections::HashSet,
    sync::atomic::{AtomicBool, Ordering},
};

use anneal_tests::{House, Talk, assistant, pb, user};
use futures::future::join_all;

const WRITERS: usize = 16;
const APPENDS: usize = 25;

async fn write(talk: &Talk<'_>, writer: usize) -> Vec<Vec<i64>> {
    let mut appended = Vec::new();
    for n in 0..APPENDS {
        let batch = (0..=n % 3).map(|place| user(&format!("writer {writer}, append {n}, message {place}"))).collect();
        let done = talk.append_all(batch).request_id(&format!("{writer}-{n}")).await;
        appended.push(done.messages.iter().map(|message| message.message_id).collect());
    }
    appended
}

/// Reads what is new until everything was said; an id must never appear at or below one that was seen.
async fn tail(talk: &Talk<'_>, all_said: &AtomicBool) -> Vec<i64> {
    let mut seen: Vec<i64> = Vec::new();
    loop {
        let last_look = all_said.load(Ordering::SeqCst);
        let ask = pb::ListMessagesRequest {
            conversation_id: talk.id.clone(),
            after_message_id: seen.last().copied().unwrap_or(0),
            page_size: 37,
            ..Default::default()
        };
        let page = talk.house.messages().list_messages(ask).await.expect("lists").into_inner();
        for message in &page.messages {
            assert_eq!(message.message_id, seen.len() as i64 + 1, "a reader sees a prefix");
            seen.push(message.message_id);
        }
        if last_look && page.messages.is_empty() {
            return seen;
        }
        tokio::task::yield_now().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sixteen_writers_give_dense_ids_and_readers_see_a_prefix() {
    let house = House::start().await;
    let second = house.beside().await;
    let talk = house.conversation().await;
    let talk_beside = Talk { house: &second, id: talk.id.clone() };
    let all_said = AtomicBool::new(false);
    let writers = async {
        let written = join_all((0..WRITERS).map(|writer| {
            let talk = if writer % 2 == 0 { &talk } else { &talk_beside };
            write(talk, writer)
        }));
        let written = written.await;
        all_said.store(true, Ordering::SeqCst);
        written
    };
    let readers = join_all((0..4).map(|reader| tail(if reader % 2 == 0 { &talk } else { &talk_beside }, &all_said)));
    let (written, read) = tokio::join!(writers, readers);
    let mut ids = HashSet::new();
    for (writer, appends) in written.iter().enumerate() {
        let mut newest = 0;
        for append in appends {
            assert!(append.windows(2).all(|pair| pair[1] == pair[0] + 1), "a batch is contiguous: {append:?}");
            assert!(append[0] > newest, "writer {writer} said this later");
            newest = append[append.len() - 1];
            ids.extend(append);
        }
    }
    let count = ids.len() as i64;
    assert_eq!(ids, (1..=count).collect(), "dense, each once");
    for seen in read {
        assert_eq!(seen.len() as i64, count);
    }
    house.run_jobs_until_idle().await;
    let verified = talk.verify().await;
    assert_eq!(verified.messages_checked, count);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_request_id_from_16_callers_on_two_servers_stores_once() {
    let house = House::start().await;
    let second = house.beside().await;
    let talk = house.conversation().await;
    talk.turn("a", "b").await;
    for round in 0..10 {
        let id = format!("r{round}");
        let calls = (0..16).map(|caller| {
            let house = if caller % 2 == 0 { &house } else { &second };
            let talk = Talk { house, id: talk.id.clone() };
            let append = talk.append_all(vec![user("same"), assistant("same")]).request_id(&id);
            async move { append.send().await.expect("appends") }
        });
        let answers = join_all(calls).await;
        assert_eq!(answers.iter().filter(|answer| !answer.replayed).count(), 1, "one stored, the others replayed");
        assert!(answers.iter().all(|answer| answer.messages == answers[0].messages));
        assert_eq!(talk.conversation().await.message_count, 4 + 2 * round);
    }
    talk.verify().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_of_16_that_expect_the_same_newest_message_wins() {
    let house = House::start().await;
    let talk = house.conversation().await;
    for round in 0..10 {
        let calls = (0..16).map(|caller| talk.append(&format!("from {caller}")).expecting(round).send());
        let won = join_all(calls).await.iter().filter(|outcome| outcome.is_ok()).count();
        assert_eq!(won, 1);
    }
    assert_eq!(talk.messages().await.len(), 10);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_create_request_from_16_callers_makes_one_conversation() {
    let house = House::start().await;
    let second = house.beside().await;
    let calls =
        (0..16).map(|caller| {
            let house = if caller % 2 == 0 { &house } else { &second };
            let ask =
                pb::CreateConversationRequest { request_id: "c1".into(), title: "one".into(), ..Default::default() };
            async move {
                house.conversations().create_conversation(ask).await.expect("creates").into_inner().conversation_id
            }
        });
    let ids: HashSet<String> = join_all(calls).await.into_iter().collect();
    assert_eq!(ids.len(), 1);
    let listed = house.conversations().list_conversations(pb::ListConversationsRequest::default()).await;
    assert_eq!(listed.expect("lists").into_inner().conversations.len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn four_workers_count_everything_once() {
    let house = House::start().await;
    let second = house.beside().await;
    let mut talks = Vec::new();
    for n in 0..40 {
        let talk = house.conversation().await;
        talk.turn(&format!("question {n}"), "answer").await;
        talks.push(talk);
    }
    let ran = tokio::join!(
        house.run_jobs_until_idle(),
        house.run_jobs_until_idle(),
        second.run_jobs_until_idle(),
        second.run_jobs_until_idle(),
    );
    assert_eq!(ran.0 + ran.1 + ran.2 + ran.3, 40, "no job ran twice");
    for talk in talks {
        assert_eq!(talk.conversation().await.token_total.expect("has a total").estimated_messages, 0);
        talk.verify().await;
    }
}
