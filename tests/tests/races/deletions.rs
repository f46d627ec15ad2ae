//! Deletion beside what is under way: nothing is left of a conversation, whichever comes first.

use anneal_core::{job::JobKind, message::MessageId};
use anneal_store::{ClaimedJob, MessageSummary, StoreError};
use anneal_tests::{CONVERSATION, DEAD_JOBS, House, JOBS, Talk, pb, prose};
use tonic::Code;

use crate::{claim, claim_one, counted, plant_dead, rows_left, summary};

async fn delete(talk: &Talk<'_>) {
    let ask = pb::DeleteConversationRequest { conversation_id: talk.id.clone(), ..Default::default() };
    talk.house.conversations().delete_conversation(ask).await.expect("deletes");
}

/// A conversation with a large message, and the claimed job that summarises it.
async fn summarizing(house: &House) -> (Talk<'_>, ClaimedJob, MessageSummary) {
    let policy = pb::Policy { large_message_threshold: Some(100), ..Default::default() };
    let talk = house.conversation_under(policy).await;
    talk.append(&prose(0, 30)).await;
    let job = claim_one(house, JobKind::CountTokens).await;
    let mut counted = counted(house, &job).await;
    counted.counts[0].1 = anneal_core::tokens::Tokens::new(700);
    let caused = house.store.record_counts_alone(&counted).await.expect("records").caused;
    assert_eq!(caused, [JobKind::SummarizeMessages]);
    let job = claim_one(house, JobKind::SummarizeMessages).await;
    (talk, job, MessageSummary { message: MessageId(1), summary: Some(summary("Reports were filed.")) })
}

#[tokio::test]
async fn a_summary_that_comes_before_a_deletion_goes_with_it() {
    let house = House::start().await;
    let (talk, job, made) = summarizing(&house).await;
    let held = house.holding(JOBS, talk.uuid()).await;
    let summaries = [made];
    let (recorded, (), ()) = tokio::join!(
        // Its summary is stored, it waits to end its job.
        house.store.record_summaries(&job, &summaries, false),
        async {
            house.waiting(1).await;
            delete(&talk).await;
        },
        async {
            house.waiting(2).await;
            held.let_go().await;
        },
    );
    recorded.expect("was first");
    assert_eq!(rows_left(&talk).await, 0);
}

#[tokio::test]
async fn a_summary_that_comes_after_a_deletion_leaves_nothing_behind() {
    let house = House::start().await;
    let (talk, job, made) = summarizing(&house).await;
    let held = house.holding(JOBS, talk.uuid()).await;
    let summaries = [made];
    let part = [7; 32];
    let ((), recorded, kept, ()) = tokio::join!(
        // Its messages are deleted, it waits for the job.
        delete(&talk),
        async {
            house.waiting(1).await;
            house.store.record_summaries(&job, &summaries, false).await
        },
        async {
            house.waiting(2).await;
            house.store.keep_summary_part(&job, &part, "Half of it.", anneal_store::ModelSpend::default()).await
        },
        async {
            house.waiting(3).await;
            held.let_go().await;
        },
    );
    assert!(matches!(recorded, Err(StoreError::NotFound(_))), "{recorded:?}");
    // Whatever it answers: nothing may be kept.
    drop(kept);
    assert_eq!(rows_left(&talk).await, 0);
    let late = house.store.keep_summaries(&job, &summaries).await;
    assert!(matches!(late, Err(StoreError::NotFound(_))), "{late:?}");
    let late = house.store.keep_summary_part(&job, &part, "Half of it.", anneal_store::ModelSpend::default()).await;
    assert!(late.is_ok(), "{late:?}");
    assert_eq!(rows_left(&talk).await, 0);
}

#[tokio::test]
async fn a_claim_passes_over_a_job_that_is_being_deleted() {
    let house = House::start().await;
    let talk = house.conversation().await;
    talk.turn("a", "b").await;
    // The deletion has deleted the job, and stops at the dead one.
    plant_dead(&talk, JobKind::CountTokens).await;
    let held = house.holding(DEAD_JOBS, talk.uuid()).await;
    let ((), claimed) = tokio::join!(delete(&talk), async {
        house.waiting(1).await;
        let claimed = claim(&house, JobKind::CountTokens).await;
        held.let_go().await;
        claimed
    });
    assert!(claimed.is_empty(), "it did not wait, and took nothing");
    assert_eq!(rows_left(&talk).await, 0);
    assert!(claim(&house, JobKind::CountTokens).await.is_empty());
}

#[tokio::test]
async fn a_deletion_waits_for_a_claim_and_takes_the_job_from_under_it() {
    let house = House::start().await;
    let talk = house.conversation().await;
    talk.turn("a", "b").await;
    // A claim is one statement: this is what it does, and its commit is the test's.
    let claim = "update ai_job set state = 1, attempts = attempts + 1, lease = '00000000-0000-7000-8000-00000000000a',
            lease_until_ts = now() + interval '15 s', worker = 'by hand'
        where conversation_id = $1";
    let claiming = house.holding(claim, talk.uuid()).await;
    let ((), ()) = tokio::join!(delete(&talk), async {
        house.waiting(1).await;
        claiming.commit().await;
    });
    assert_eq!(rows_left(&talk).await, 0);
}

#[tokio::test]
async fn what_was_claimed_before_a_deletion_counts_nothing_after_it() {
    let house = House::start().await;
    let talk = house.conversation().await;
    talk.turn("a", "b").await;
    let job = claim_one(&house, JobKind::CountTokens).await;
    let counted = counted(&house, &job).await;
    let held = house.holding(JOBS, talk.uuid()).await;
    let ((), recorded, ()) = tokio::join!(
        delete(&talk),
        async {
            house.waiting(1).await;
            house.store.record_counts_alone(&counted).await
        },
        async {
            house.waiting(2).await;
            held.let_go().await;
        },
    );
    assert!(matches!(recorded, Err(StoreError::NotFound(_))), "{recorded:?}");
    assert_eq!(rows_left(&talk).await, 0);
}

#[tokio::test]
async fn an_append_that_comes_after_a_deletion_finds_nothing() {
    let house = House::start().await;
    let talk = house.conversation().await;
    talk.turn("a", "b").await;
    let held = house.holding(JOBS, talk.uuid()).await;
    let ((), appended, ()) = tokio::join!(
        delete(&talk),
        async {
            house.waiting(1).await;
            talk.append("c").request_id("r").send().await
        },
        async {
            house.waiting(2).await;
            held.let_go().await;
        },
    );
    assert_eq!(appended.expect_err("is gone").code(), Code::NotFound);
    assert_eq!(rows_left(&talk).await, 0);
}

#[tokio::test]
async fn an_append_that_comes_before_a_deletion_goes_with_it() {
    let house = House::start().await;
    let talk = house.conversation().await;
    talk.turn("a", "b").await;
    let held = house.holding(JOBS, talk.uuid()).await;
    let (appended, (), ()) = tokio::join!(
        talk.append("c").request_id("r").send(),
        async {
            house.waiting(1).await;
            delete(&talk).await;
        },
        async {
            house.waiting(2).await;
            held.let_go().await;
        },
    );
    assert_eq!(appended.expect("was first").messages[0].message_id, 3);
    assert_eq!(rows_left(&talk).await, 0);
}

#[tokio::test]
async fn deletions_at_once_delete_once() {
    let house = House::start().await;
    let talk = house.conversation().await;
    talk.turn("a", "b").await;
    let held = house.holding(CONVERSATION, talk.uuid()).await;
    let deleting = || house.store.delete_conversation(crate::CALLER, anneal_core::caller::ConversationId(talk.uuid()));
    let (first, second, ()) = tokio::join!(deleting(), deleting(), async {
        house.waiting(2).await;
        held.let_go().await;
    });
    let outcomes = [first, second];
    assert_eq!(outcomes.iter().filter(|outcome| outcome.is_ok()).count(), 1, "{outcomes:?}");
    assert_eq!(rows_left(&talk).await, 0);
}
