//! Watchers of conversations in which messages are withdrawn, restored, edited and erased.

use std::collections::BTreeSet;

use anneal_core::job::JobKind;
use anneal_testkit::{SeededRandom, TestApp, TestConversation, appended_ids, id_range, pb, user};
use futures::future::join_all;
use pb::conversation_event::Event;

/// How many changes the task of [`change_messages`] makes.
const CHANGES: usize = 60;
/// How many tasks append meanwhile, and how many appends each makes.
const APPENDERS: usize = 3;
const APPENDS: usize = 25;

/// The messages of a change, as events have them.
fn messages_of(change: &pb::MessageChange) -> pb::MessagesChanged {
    assert!(!change.changed.is_empty(), "{change:?}");
    pb::MessagesChanged {
        messages: change.changed.clone(),
        change_id: change.change_id,
    }
}

fn withdrawn(change: &pb::MessageChange) -> Event {
    Event::MessagesWithdrawn(messages_of(change))
}

fn restored(change: &pb::MessageChange) -> Event {
    Event::MessagesRestored(messages_of(change))
}

/// A conversation of two turns, with the messages 1 to 4.
async fn conversation_of_two_turns(app: &TestApp) -> TestConversation<'_> {
    let conversation = app.conversation().await;
    conversation.turn("One?", "One.").await;
    conversation.turn("Two?", "Two.").await;
    conversation
}

/// The events other than counts: how many there are depends on when the watcher looks.
fn without_counts(events: Vec<Event>) -> Vec<Event> {
    events
        .into_iter()
        .filter(|event| !matches!(event, Event::TokensCounted(_)))
        .collect()
}

#[tokio::test]
async fn changes_are_streamed_in_their_order_from_whichever_server_makes_them() {
    let app = TestApp::start().await;
    let second_server = app.second_server().await;
    let conversation = conversation_of_two_turns(&app).await;
    let elsewhere = TestConversation {
        app: &second_server,
        id: conversation.id.clone(),
    };
    let mut watch = conversation.watch().await;
    let first = conversation.withdraw(&[2, 4]).await;
    assert_eq!(watch.next().await, withdrawn(&first));
    assert_eq!(first.changed, [id_range(2, 2), id_range(4, 4)]);
    let second = elsewhere.restore(&[4]).await;
    assert_eq!(watch.next().await, restored(&second));
    let third = elsewhere.rewind(2).await;
    assert_eq!(watch.next().await, withdrawn(&third));
    assert_eq!(third.changed, [id_range(3, 4)]);
    let nothing = conversation.rewind(2).await;
    assert_eq!(nothing.change_id, 0);
    let fourth = conversation.restore_range(1, 4).await;
    assert_eq!(
        watch.next().await,
        restored(&fourth),
        "a call that has changed nothing is no event"
    );
}

#[tokio::test]
async fn a_watch_resumes_between_any_two_changes() {
    let app = TestApp::start().await;
    let conversation = conversation_of_two_turns(&app).await;
    let mut position = conversation.watch().await.position;
    let changes = [
        withdrawn(&conversation.withdraw(&[1]).await),
        withdrawn(&conversation.rewind(2).await),
        restored(&conversation.restore_range(1, 3).await),
        withdrawn(&conversation.withdraw(&[2, 3]).await),
    ];
    for change in &changes {
        let mut watch = conversation.watch_from(&position).await;
        assert_eq!(watch.next().await, *change);
        position = watch.position;
    }
    let mut watch = conversation.watch_from(&position).await;
    conversation.turn("Three?", "Three.").await;
    let events = watch
        .until(|event| matches!(event, Event::MessageAppended(message) if message.message_id == 6))
        .await;
    assert_eq!(
        (appended_ids(&events), events.len()),
        (vec![5, 6], 2),
        "no change comes twice"
    );
}

#[tokio::test]
async fn messages_that_are_withdrawn_before_they_are_sent_are_passed_over() {
    let app = TestApp::start().await;
    let conversation = conversation_of_two_turns(&app).await;
    let mut watch = conversation.watch_after(0).await;
    assert_eq!(appended_ids(&[watch.next().await]), [1]);
    let position = watch.position;
    let undone = withdrawn(&conversation.withdraw(&[2, 3]).await);
    let mut watch = conversation.watch_from(&position).await;
    let events = watch.until(|event| *event == undone).await;
    assert_eq!(
        without_counts(events).as_slice(),
        [
            Event::MessageAppended(conversation.message(4).await),
            undone.clone()
        ]
    );
    let redone = restored(&conversation.restore(&[3]).await);
    assert_eq!(
        watch.next().await,
        redone,
        "a restored message is named, not sent"
    );
    let mut late = conversation.watch_after(0).await;
    let events = late.until(|event| *event == redone).await;
    assert_eq!(appended_ids(&events), [1, 3, 4]);
}

#[tokio::test]
async fn a_watch_after_a_message_gets_the_changes_of_older_messages() {
    let app = TestApp::start().await;
    let conversation = conversation_of_two_turns(&app).await;
    // A client that lists the messages, and watches what comes after the last one of them.
    let listed = conversation.messages().await;
    let last = listed.last().expect("four messages").message_id;
    let undone = withdrawn(&conversation.withdraw(&[1, 2]).await);
    let mut since_the_list = conversation.watch_after(last).await;
    assert_eq!(since_the_list.next().await, undone);
    let mut from_now_on = conversation.watch().await;
    conversation.append("And now?").await;
    assert_eq!(
        appended_ids(&[from_now_on.next().await]),
        [5],
        "a watch of new events gets no earlier change"
    );
}

#[tokio::test]
async fn a_change_of_many_ranges_is_one_event() {
    let app = TestApp::start().await;
    let conversation = app.conversation().await;
    for _ in 0..10 {
        conversation.append_all(vec![user("x"); 100]).await;
    }
    let mut watch = conversation.watch().await;
    let odd: Vec<i64> = (1..=1_000).step_by(2).collect();
    let change = conversation.withdraw(&odd).await;
    assert_eq!(change.changed.len(), 500);
    assert_eq!(watch.next().await, withdrawn(&change));
}

/// Records a change of message 2 with this kind and version, as edits and erasures do.
async fn record_change(app: &TestApp, kind: i16, version: Option<i32>) {
    sqlx::query(
        "with changed as (
             update ai_conversation set change_id = change_id + 1
             returning tenant_id, conversation_id, change_id
         )
         insert into ai_message_change (tenant_id, conversation_id, change_id, kind, first_ids, last_ids, version,
             void_checkpoints)
         select tenant_id, conversation_id, change_id, $1, array[2], array[2], $2, 0 from changed",
    )
    .bind(kind)
    .bind(version)
    .execute(&mut app.db().await)
    .await
    .expect("records");
}

#[tokio::test]
async fn edits_and_erasures_are_streamed_and_kinds_of_newer_versions_are_passed_over() {
    let app = TestApp::start().await;
    let conversation = conversation_of_two_turns(&app).await;
    let mut watch = conversation.watch().await;
    record_change(&app, 3, Some(2)).await;
    let edited = pb::MessageEdited {
        message_id: 2,
        version: 2,
        change_id: 1,
    };
    assert_eq!(watch.next().await, Event::MessageChanged(edited));
    record_change(&app, 99, None).await;
    record_change(&app, 4, None).await;
    let erased = pb::MessagesChanged {
        messages: vec![id_range(2, 2)],
        change_id: 3,
    };
    assert_eq!(watch.next().await, Event::MessagesErased(erased));
    conversation.append("Still there?").await;
    assert_eq!(appended_ids(&[watch.next().await]), [5]);
}

async fn append_turns(conversation: &TestConversation<'_>) {
    for _ in 0..APPENDS {
        conversation.turn("More?", "More.").await;
    }
}

/// Withdraws and restores random messages.
async fn change_messages(conversation: &TestConversation<'_>) {
    let mut random = SeededRandom(22);
    for _ in 0..CHANGES {
        let newest = conversation.conversation().await.message_count;
        let first = 1 + random.below(newest.unsigned_abs()).cast_signed();
        let last = newest.min(first + random.below(4).cast_signed());
        match random.below(5) {
            0 | 1 => conversation.withdraw_range(first, last).await,
            2 | 3 => conversation.restore_range(first, last).await,
            _ => conversation.rewind(newest - 1).await,
        };
    }
}

/// Follows the conversation until a job is dead, and reconnects after every few events to a random
/// one of the two servers. Returns the messages that stand then, as far as the events say.
async fn follow_with_reconnects(apps: [&TestApp; 2], id: &str, seed: u64) -> BTreeSet<i64> {
    let mut random = SeededRandom(seed);
    let mut conversation = TestConversation {
        app: apps[0],
        id: id.to_owned(),
    };
    let mut watch = conversation.watch_after(0).await;
    let mut standing = BTreeSet::new();
    let ids = |ranges: Vec<pb::IdRange>| {
        ranges
            .into_iter()
            .flat_map(|range| range.first_message_id..=range.last_message_id)
    };
    loop {
        for _ in 0..=random.below(7) {
            match watch.next().await {
                Event::MessageAppended(message) => {
                    standing.insert(message.message_id);
                }
                Event::MessagesWithdrawn(change) => {
                    for id in ids(change.messages) {
                        standing.remove(&id);
                    }
                }
                Event::MessagesRestored(change) => standing.extend(ids(change.messages)),
                Event::TokensCounted(_) => {}
                Event::JobDead(_) => return standing,
                other => panic!("unexpected event: {other:?}"),
            }
        }
        conversation.app = apps[random.index(2)];
        watch = conversation.watch_from(&watch.position).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_that_reconnect_know_which_messages_stand() {
    let app = TestApp::counted_by_workers().await;
    let second_server = app.second_server().await;
    let conversation = conversation_of_two_turns(&app).await;
    let id = conversation.id.as_str();
    let work = async {
        tokio::join!(
            join_all((0..APPENDERS).map(|_| append_turns(&conversation))),
            change_messages(&conversation)
        );
        conversation.append("The end").await;
        // The dead job tells the readers that no other event follows.
        conversation.give_up_job(JobKind::CountTokens).await;
    };
    let readers =
        join_all((0..4).map(|seed| follow_with_reconnects([&app, &second_server], id, seed)));
    let ((), received) = tokio::join!(work, readers);
    let listed: BTreeSet<i64> = conversation
        .messages()
        .await
        .iter()
        .map(|message| message.message_id)
        .collect();
    let all = conversation.conversation().await.message_count;
    assert!(
        listed.len() > 10 && (listed.len() as i64) < all,
        "{} of {all} messages stand",
        listed.len()
    );
    for standing in received {
        assert_eq!(standing, listed);
    }
    conversation.verify().await;
}
