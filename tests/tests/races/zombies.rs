//! A worker that was away for so long that all it holds has passed to others, or is gone and there again: whatever it does
//! when it wakes, nothing of it is seen. Generations begin anew with every row; the lease does not come again.

use anneal_core::{job::JobKind, message::MessageId};
use anneal_store::{MessageSummary, StoreError};
use anneal_tests::{CONVERSATION, House, Talk, pb, user};

use crate::{claim_one, counted, end_leases, jobs, summary, uncounted};
use pb::{JobKind as Kind, JobState as State};

/// The generation of a conversation's counting job.
async fn generation(talk: &Talk<'_>) -> i64 {
    let row = sqlx::query_scalar("select generation from ai_job where conversation_id = $1").bind(talk.uuid());
    row.fetch_one(&mut talk.house.db().await).await.expect("a job is there")
}

#[tokio::test]
async fn a_job_that_was_done_and_came_again_is_not_the_zombies() {
    let house = House::start().await;
    let talk = house.conversation().await;
    talk.turn("a", "b").await;
    let zombies = claim_one(&house, JobKind::CountTokens).await;
    let stale = counted(&house, &zombies).await;
    assert_eq!(generation(&talk).await, 1);
    end_leases(&house).await;
    assert_eq!(house.store.rescue_jobs(100).await.expect("rescues").waiting, 1);
    house.run_jobs_until_idle().await;
    talk.append("c").await;
    assert_eq!(generation(&talk).await, 1, "the same generation as the zombie's, of another row");
    // Waiting first, then running for somebody else.
    let mut running = None;
    for state in [State::Waiting, State::Running] {
        if state == State::Running {
            running = Some(claim_one(&house, JobKind::CountTokens).await);
        }
        let recorded = house.store.record_counts_alone(&stale).await;
        assert!(matches!(recorded, Err(StoreError::LeaseLost)), "{recorded:?}");
        let together = house.store.record_counts(std::slice::from_ref(&stale)).await;
        assert!(matches!(together, Err(StoreError::LeaseLost)), "{together:?}");
        let finished = house.store.finish_job(&zombies).await;
        assert!(matches!(finished, Err(StoreError::LeaseLost)), "{finished:?}");
        let failed = house.store.fail_job(&zombies, "it was long ago", 0, 1).await;
        assert!(matches!(failed, Err(StoreError::LeaseLost)), "{failed:?}");
        assert_eq!(house.store.heartbeat(std::slice::from_ref(&zombies)).await.expect("asks"), [false]);
        house.store.release_jobs(std::slice::from_ref(&zombies), 0).await.expect("asks");
        house.store.defer_job(&zombies, "it was long ago", 0).await.expect("asks");
        let attempts = i32::from(state == State::Running);
        assert_eq!(jobs(&talk).await, [(Kind::CountTokens, state, attempts)]);
        assert_eq!(uncounted(&talk).await, 1);
    }
    let holder = running.expect("somebody holds it");
    let fresh = counted(&house, &holder).await;
    house.store.record_counts_alone(&fresh).await.expect("is the holder's");
    assert!(jobs(&talk).await.is_empty());
    talk.verify().await;
}

/// A conversation made with this request id: its id is the same each time.
async fn made<'a>(house: &'a House, said: &str) -> Talk<'a> {
    let talk = made_empty(house).await;
    talk.append_all(vec![user(said)]).await;
    talk
}

async fn made_empty(house: &House) -> Talk<'_> {
    let ask = pb::CreateConversationRequest {
        request_id: "the same".into(),
        policy: Some(pb::Policy { large_message_threshold: Some(1), ..Default::default() }),
        ..Default::default()
    };
    house.conversation_with(ask).await
}

#[tokio::test]
async fn counts_of_messages_that_a_conversation_made_again_does_not_have_are_refused_as_a_lost_lease() {
    let house = House::start().await;
    let old = made(&house, "what was said before").await;
    let zombies = claim_one(&house, JobKind::CountTokens).await;
    let stale = counted(&house, &zombies).await;
    let ask = pb::DeleteConversationRequest { conversation_id: old.id.clone(), ..Default::default() };
    house.conversations().delete_conversation(ask).await.expect("deletes");
    let new = made_empty(&house).await;
    assert_eq!(new.id, old.id);
    let together = house.store.record_counts(std::slice::from_ref(&stale)).await;
    assert!(matches!(together, Err(StoreError::LeaseLost)), "{together:?}");
    let alone = house.store.record_counts_alone(&stale).await;
    assert!(matches!(alone, Err(StoreError::LeaseLost)), "{alone:?}");
    new.verify().await;
}

#[tokio::test]
async fn a_conversation_that_was_deleted_and_made_again_gets_nothing_of_the_old_one() {
    let house = House::start().await;
    let old = made(&house, "what was said before, at some length").await;
    let zombies = claim_one(&house, JobKind::CountTokens).await;
    let stale = counted(&house, &zombies).await;
    let ask = pb::DeleteConversationRequest { conversation_id: old.id.clone(), ..Default::default() };
    house.conversations().delete_conversation(ask).await.expect("deletes");
    let new = made(&house, "something else").await;
    assert_eq!(new.id, old.id);
    let recorded = house.store.record_counts_alone(&stale).await;
    assert!(matches!(recorded, Err(StoreError::LeaseLost)), "{recorded:?}");
    assert_eq!(uncounted(&new).await, 1);
    let holder = claim_one(&house, JobKind::CountTokens).await;
    let recorded = house.store.record_counts_alone(&stale).await;
    assert!(matches!(recorded, Err(StoreError::LeaseLost)), "{recorded:?}");
    let fresh = counted(&house, &holder).await;
    house.store.record_counts_alone(&fresh).await.expect("is the holder's");
    // A summary of what the old one said.
    let summarizing = claim_one(&house, JobKind::SummarizeMessages).await;
    let summaries = [MessageSummary { message: MessageId(1), summary: Some(summary("of what was said before")) }];
    for job in [&zombies, &summarizing] {
        if job.kind == JobKind::SummarizeMessages {
            end_leases(&house).await;
            assert_eq!(house.store.rescue_jobs(100).await.expect("rescues").waiting, 1);
        }
        let kept = house.store.keep_summaries(job, &summaries).await;
        assert!(matches!(kept, Err(StoreError::LeaseLost)), "{kept:?}");
        let recorded = house.store.record_summaries(job, &summaries, false).await;
        assert!(matches!(recorded, Err(StoreError::LeaseLost)), "{recorded:?}");
    }
    let cached = sqlx::query_scalar("select count(summary_cache) from ai_message where conversation_id = $1");
    let cached: i64 = cached.bind(new.uuid()).fetch_one(&mut house.db().await).await.expect("asks");
    assert_eq!(cached, 0);
    new.verify().await;
}

#[tokio::test]
async fn a_zombie_that_waits_for_a_conversation_while_it_is_deleted_and_made_again_finds_nothing() {
    let house = House::start().await;
    let talk = made(&house, "what was said before, at some length").await;
    let id = talk.uuid();
    let zombies = claim_one(&house, JobKind::CountTokens).await;
    let stale = counted(&house, &zombies).await;
    let mut deleting = house.holding(CONVERSATION, id).await;
    let (recorded, ()) = tokio::join!(house.store.record_counts_alone(&stale), async {
        house.waiting(1).await;
        // Deleted, and made again with a message and its job, before the zombie gets the lock.
        for statement in [
            "create temporary table again on commit drop as select * from ai_conversation where conversation_id = $1",
            "delete from ai_job where conversation_id = $1",
            "delete from ai_conversation where conversation_id = $1",
            "insert into ai_conversation select * from again where conversation_id = $1",
            "insert into ai_job (tenant_id, kind, conversation_id)
                select tenant_id, 1, conversation_id from ai_conversation where conversation_id = $1",
        ] {
            assert_eq!(deleting.also(statement, id).await, 1, "{statement}");
        }
        deleting.commit().await;
    });
    assert!(matches!(recorded, Err(StoreError::NotFound(_) | StoreError::LeaseLost)), "{recorded:?}");
    assert_eq!(jobs(&talk).await, [(Kind::CountTokens, State::Waiting, 0)]);
    assert_eq!(uncounted(&talk).await, 1);
}
