//! Watchers get each event once and in order, while many tasks append and the watchers reconnect to
//! one server or another.

use anneal_core::job::JobKind;
use anneal_testkit::{
    SeededRandom, TestApp, TestConversation, Watch, appended_ids, eventually, pb, prose, user,
};
use futures::future::join_all;
use pb::conversation_event::Event;
use tokio_util::sync::CancellationToken;

/// How many tasks append at the same time.
const APPENDERS: usize = 8;
/// How many appends each task makes.
const APPENDS: usize = 20;

/// Makes [`APPENDS`] appends, each through a random one of the two servers. An append has one to
/// three short messages, and sometimes a large one. Returns the number of messages.
async fn append_at_both_servers(apps: [&TestApp; 2], id: &str, appender: usize) -> usize {
    let mut chance = SeededRandom(appender as u64);
    let mut messages = 0;
    for round in 0..APPENDS {
        let conversation = TestConversation {
            app: apps[chance.index(2)],
            id: id.to_owned(),
        };
        let mut batch: Vec<_> = (0..=chance.below(3))
            .map(|index| user(&format!("{appender} {round} {index}")))
            .collect();
        if chance.below(10) == 0 {
            batch.push(user(&prose(appender * 100 + round, 40)));
        }
        messages += batch.len();
        conversation.append_all(batch).await;
    }
    messages
}

/// Returns the events before the first `JobDead`. After every few events it reconnects to a random
/// one of the two servers.
async fn read_with_reconnects(apps: [&TestApp; 2], id: &str, seed: u64) -> Vec<Event> {
    let mut chance = SeededRandom(seed);
    let mut conversation = TestConversation {
        app: apps[0],
        id: id.to_owned(),
    };
    let mut watch: Watch = conversation.watch_after(0).await;
    let mut events = Vec::new();
    loop {
        for _ in 0..=chance.below(31) {
            let event = watch.next().await;
            if matches!(event, Event::JobDead(_)) {
                return events;
            }
            events.push(event);
        }
        conversation.app = apps[chance.index(2)];
        watch = conversation.watch_from(&watch.position).await;
    }
}

/// The results of a conversation's jobs that watchers are told of, as sorted message ids.
#[derive(Debug)]
struct JobResults {
    /// The summarized messages.
    summaries: Vec<i64>,
    /// The last messages of the checkpoints.
    checkpoints: Vec<i64>,
}

async fn read_job_results(conversation: &TestConversation<'_>) -> JobResults {
    let summarized = conversation
        .messages()
        .await
        .into_iter()
        .filter(|message| message.summary.is_some());
    let mut checkpoints: Vec<i64> = conversation
        .checkpoints()
        .await
        .iter()
        .map(|checkpoint| checkpoint.last_message_id)
        .collect();
    checkpoints.sort_unstable();
    JobResults {
        summaries: summarized.map(|message| message.message_id).collect(),
        checkpoints,
    }
}

fn assert_each_event_once(events: &[Event], messages: i64, expected: &JobResults) {
    assert_eq!(
        appended_ids(events),
        (1..=messages).collect::<Vec<_>>(),
        "each message once, in order"
    );
    let (mut newest, mut counted) = (0, 0);
    let (mut summaries, mut checkpoints) = (Vec::new(), Vec::new());
    for event in events {
        let message_id = match event {
            Event::MessageAppended(message) => {
                newest = message.message_id;
                continue;
            }
            Event::TokensCounted(count) => {
                assert!(
                    count.through_message_id > counted,
                    "each count reaches further than the one before"
                );
                counted = count.through_message_id;
                counted
            }
            Event::SummaryReady(ready) => {
                summaries.push(ready.message_id);
                ready.message_id
            }
            Event::CheckpointCreated(created) => {
                checkpoints.push(created.last_message_id);
                created.last_message_id
            }
            other => panic!("unexpected event: {other:?}"),
        };
        assert!(
            message_id <= newest,
            "{event:?} comes before message {message_id}"
        );
    }
    assert_eq!(
        counted,
        messages - 1,
        "all messages except the last are counted"
    );
    assert!(
        checkpoints.is_sorted(),
        "checkpoints in the order of their creation"
    );
    summaries.sort_unstable();
    assert_eq!(
        (&summaries, &checkpoints),
        (&expected.summaries, &expected.checkpoints),
        "each summary and each checkpoint once"
    );
}

/// Appends through two servers while a worker runs and readers reconnect. Checks which events these
/// receive.
async fn append_and_read_with_reconnects(app: &TestApp) {
    let second_server = app.second_server().await;
    let apps = [app, &second_server];
    let policy = pb::Policy {
        large_message_threshold: Some(200),
        max_message_count: Some(40),
        ..Default::default()
    };
    let conversation = app.conversation_with_policy(policy).await;
    let id = conversation.id.as_str();
    let stop = CancellationToken::new();
    let (worker, until) = (app.worker(), stop.clone());
    let working = tokio::spawn(async move { worker.run(until).await });
    let work = async {
        let appended =
            join_all((0..APPENDERS).map(|appender| append_at_both_servers(apps, id, appender)))
                .await;
        eventually("all jobs end", async || {
            conversation.jobs().await.is_empty()
        })
        .await;
        stop.cancel();
        working.await.expect("the worker stops");
        // The dead job tells the readers that no other event follows. The message is too large to
        // be counted by the server, so that it has a job.
        conversation.append(&prose(0, 400)).await;
        conversation.give_up_job(JobKind::CountTokens).await;
        appended.into_iter().sum::<usize>() as i64 + 1
    };
    let readers = join_all((0..4).map(|seed| read_with_reconnects(apps, id, seed)));
    let (messages, received) = tokio::join!(work, readers);
    let results = read_job_results(&conversation).await;
    assert!(
        !results.summaries.is_empty() && !results.checkpoints.is_empty(),
        "{results:?}"
    );
    for events in received {
        assert_each_event_once(&events, messages, &results);
    }
    println!(
        "{messages} messages, {} summaries, {} checkpoints",
        results.summaries.len(),
        results.checkpoints.len()
    );
    conversation.verify().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_that_reconnect_between_two_servers_get_each_event_once_in_order() {
    let app = TestApp::counted_by_workers().await;
    Box::pin(append_and_read_with_reconnects(&app)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_get_each_event_once_in_order_also_if_appends_are_counted_at_once() {
    let app = TestApp::start().await;
    Box::pin(append_and_read_with_reconnects(&app)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn change_ids_of_summaries_and_checkpoints_have_no_gaps() {
    let app = TestApp::counted_by_workers().await;
    let policy = pb::Policy {
        large_message_threshold: Some(200),
        max_message_count: Some(20),
        ..Default::default()
    };
    let conversation = app.conversation_with_policy(policy).await;
    for n in 0..5 {
        conversation.append(&prose(n * 40, 40)).await;
        conversation.append("short").await;
        conversation.turns(6).await;
        app.run_jobs_until_idle().await;
    }
    let mut db = app.db().await;
    let summaries = "select summary_change_id from ai_message where summary_change_id is not null";
    let mut change_ids: Vec<i64> = sqlx::query_scalar(summaries)
        .fetch_all(&mut db)
        .await
        .expect("reads");
    let checkpoints = "select change_id from ai_conversation_checkpoint";
    let checkpoints: Vec<i64> = sqlx::query_scalar(checkpoints)
        .fetch_all(&mut db)
        .await
        .expect("reads");
    assert!(
        !change_ids.is_empty() && checkpoints.len() > 1,
        "{change_ids:?} {checkpoints:?}"
    );
    change_ids.extend(checkpoints);
    change_ids.sort_unstable();
    let last: i64 = sqlx::query_scalar("select change_id from ai_conversation")
        .fetch_one(&mut db)
        .await
        .expect("reads");
    assert_eq!(change_ids, (1..=last).collect::<Vec<_>>());
}
