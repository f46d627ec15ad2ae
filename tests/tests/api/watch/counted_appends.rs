//! Watchers of messages that the server counts when they are appended, without a worker.

use anneal_core::tokens::Encoding;
use anneal_testkit::{TestApp, appended_ids, pb, prose};
use pb::conversation_event::Event;

fn count(text: &str) -> u64 {
    Encoding::O200kBase.counter().count(text).get()
}

/// The event which says that all messages up to this one are counted, and have these tokens.
fn all_counted(through_message_id: i64, tokens: u64) -> Event {
    Event::TokensCounted(pb::TokensCounted {
        through_message_id,
        token_total: Some(pb::TokenTotal {
            tokens,
            estimated_messages: 0,
        }),
    })
}

fn is_count(event: &Event) -> bool {
    matches!(event, Event::TokensCounted(_))
}

/// The tokens of the appended messages among these events.
fn appended_tokens(events: &[Event]) -> Vec<pb::TokenCount> {
    let tokens = events.iter().filter_map(|event| match event {
        Event::MessageAppended(message) => message.tokens,
        _ => None,
    });
    tokens.collect()
}

#[tokio::test]
async fn an_append_that_is_counted_at_once_has_its_messages_with_counts_and_then_the_total() {
    let app = TestApp::start().await;
    let conversation = app.conversation().await;
    conversation.append("before").await;
    let mut watch = conversation.watch().await;
    let texts = ["What is 冷却?", "The slow loss of heat."];
    conversation.turn(texts[0], texts[1]).await;

    let mut total = count("before");
    for (id, text) in (2..).zip(texts) {
        let Event::MessageAppended(message) = watch.next().await else {
            panic!("a message")
        };
        assert_eq!(message, conversation.message(id).await, "as in GetMessage");
        let tokens = count(text);
        let exact = pb::TokenCount {
            tokens,
            estimated: false,
        };
        assert_eq!(message.tokens, Some(exact));
        total += tokens;
    }
    let before_count = watch.position.clone();
    assert_eq!(watch.next().await, all_counted(3, total));
    let stored = conversation.conversation().await.token_total;
    assert_eq!(stored.map(|stored| stored.tokens), Some(total));
    let mut resumed = conversation.watch_from(&before_count).await;
    assert_eq!(resumed.next().await, all_counted(3, total));

    // The job of the first append finds nothing to count, so it causes no event.
    app.run_jobs_until_idle().await;
    conversation.append("after").await;
    let jobs = conversation.jobs().await;
    assert!(jobs.is_empty(), "no worker has to count: {jobs:?}");
    total += count("after");
    for watch in [&mut watch, &mut resumed] {
        assert_eq!(appended_ids(&[watch.next().await]), [4]);
        assert_eq!(watch.next().await, all_counted(4, total));
    }
    let all = conversation.watch_after(0).await.until(is_count).await;
    assert_eq!(appended_ids(&all), [1, 2, 3, 4]);
    assert_eq!(all[4..], [all_counted(4, total)]);
}

#[tokio::test]
async fn messages_after_one_that_is_not_counted_are_counted_for_watchers_when_it_is() {
    let app = TestApp::start().await;
    let conversation = app.conversation().await;
    let mut watch = conversation.watch().await;
    let (large, small) = (prose(0, 400), "and this");
    conversation.append(&large).await;
    conversation.append(small).await;
    let events = [watch.next().await, watch.next().await];
    assert_eq!(appended_ids(&events), [1, 2]);
    let tokens = appended_tokens(&events);
    assert!(tokens.iter().all(|count| count.estimated), "{tokens:?}");

    app.run_jobs_until_idle().await;
    let mut total = count(&large) + count(small);
    let counted = watch.next().await;
    assert_eq!(counted, all_counted(2, total), "not before the worker");

    conversation.append("and that").await;
    total += count("and that");
    let events = watch.until(is_count).await;
    assert_eq!(appended_ids(&events), [3]);
    assert!(
        appended_tokens(&events)
            .iter()
            .all(|count| !count.estimated)
    );
    assert_eq!(events.last(), Some(&all_counted(3, total)));
}
