//! Compact: a checkpoint by hand.

#![expect(non_snake_case, reason = "rows are named as docs/rows.md names them")]

use anneal_tests::{House, Talk, assistant, pb, sentence, user};
use pb::{CheckpointTrigger, CompactOutcome};

async fn talk_of(house: &House, messages: usize) -> Talk<'_> {
    let talk = house.conversation().await;
    for n in 0..messages {
        talk.append_all(vec![if n % 2 == 0 { user(&sentence(n)) } else { assistant(&sentence(n)) }]).await;
    }
    house.run_jobs_until_idle().await;
    talk
}

#[tokio::test]
async fn row_C4_nought_to_five_messages_are_compacted_where_something_can_go() {
    let house = House::start().await;
    for count in 0..=5_usize {
        let talk = talk_of(&house, count).await;
        let done = talk.compact("r1", "").await;
        let built = talk.context().await;
        built.assert_covers(count as i64);
        talk.verify().await;
        assert!(talk.jobs().await.is_empty());
        match done.outcome() {
            CompactOutcome::Created => {
                let made = done.checkpoint.clone().expect("with CREATED");
                assert!(count >= 2 && made.last_message_id < count as i64, "{count}: {made:?}");
                assert!(made.tokens_after < made.tokens_before);
                assert_eq!(made.trigger(), CheckpointTrigger::Manual);
                assert_eq!(talk.checkpoints().await, [made]);
            }
            CompactOutcome::NoProgress => assert!(talk.checkpoints().await.is_empty()),
            other => panic!("{other:?} with {count} messages"),
        }
        if count <= 1 {
            assert_eq!(done.outcome(), CompactOutcome::NoProgress, "{count} messages");
        }
    }
}

#[tokio::test]
async fn a_short_conversation_is_compacted_by_hand() {
    let house = House::start().await;
    let talk = talk_of(&house, 14).await;
    assert!(talk.checkpoints().await.is_empty(), "no threshold is reached");
    let done = talk.compact("r1", "").await;
    assert_eq!(done.outcome(), CompactOutcome::Created);
    let made = done.checkpoint.expect("with CREATED");
    assert_eq!(made.last_message_id, 4, "five turns stay");
    talk.context().await.assert_covers(14);
    talk.verify().await;
}

#[tokio::test]
async fn a_focus_is_kept_above_all() {
    let house = House::start().await;
    let talk = house.conversation().await;
    for n in 0..23 {
        let said = if n == 9 { "The locker code is 90210-K.".to_owned() } else { sentence(n) };
        talk.append_all(vec![user(&said), assistant(&sentence(n + 1))]).await;
    }
    house.run_jobs_until_idle().await;
    let made = talk.compact("r1", "the locker code").await.checkpoint.expect("with CREATED");
    assert_eq!(made.focus, "the locker code");
    assert!(made.summary.contains("90210-K"), "{}", made.summary);
}

#[tokio::test]
async fn a_repeated_request_gives_the_same_checkpoint() {
    let house = House::start().await;
    let talk = talk_of(&house, 14).await;
    let first = talk.compact("r1", "").await;
    assert_eq!(talk.compact("r1", "").await, first);
    assert_eq!(talk.compact_later("r1").await, first, "without waiting");
    assert_eq!(talk.checkpoints().await.len(), 1);
    let second = talk.compact("r2", "").await;
    assert_eq!(second.outcome(), CompactOutcome::Created, "another request compacts further");
    assert_eq!(second.checkpoint.expect("with CREATED").generation, 2);
    talk.context().await.assert_covers(14);
    talk.verify().await;
}

#[tokio::test]
async fn without_waiting_the_compaction_is_pending_until_the_worker_has_run() {
    let house = House::start().await;
    let talk = talk_of(&house, 14).await;
    assert_eq!(talk.compact_later("r1").await.outcome(), CompactOutcome::Pending);
    assert_eq!(talk.compact_later("r1").await.outcome(), CompactOutcome::Pending);
    let waiting = talk.jobs().await;
    assert_eq!(waiting.len(), 1);
    assert_eq!((waiting[0].kind(), waiting[0].state()), (pb::JobKind::Checkpoint, pb::JobState::Waiting));
    house.run_jobs_until_idle().await;
    let done = talk.compact_later("r1").await;
    assert_eq!(done.outcome(), CompactOutcome::Created);
    assert_eq!(talk.checkpoints().await, [done.checkpoint.expect("with CREATED")]);
}

#[tokio::test]
async fn one_message_cannot_be_compacted_and_stays() {
    let house = House::start().await;
    let talk = talk_of(&house, 1).await;
    for request in ["r1", "r1", "r2"] {
        assert_eq!(talk.compact(request, "").await.outcome(), CompactOutcome::NoProgress);
    }
    assert!(talk.checkpoints().await.is_empty() && talk.jobs().await.is_empty());
    assert_eq!(talk.context().await.said()[0].1, sentence(0));
}
