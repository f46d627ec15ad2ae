//! The queue's own races: enqueue, claim, finish, rescue.

use anneal_core::job::{JobKind, MAX_ATTEMPTS};
use anneal_store::{Finished, Rescued, StoreError};
use anneal_tests::{DEAD_JOBS, House, JOBS, Talk, pb};
use pb::{JobKind as Kind, JobState as State};

use crate::{claim, claim_one, counted, end_leases, jobs, plant_dead, uncounted};

const LOST: fn(&StoreError) -> bool = |error| matches!(error, StoreError::LeaseLost);

#[tokio::test]
async fn an_append_that_comes_after_a_finish_queues_anew() {
    let house = House::start().await;
    let talk = house.conversation().await;
    talk.turn("a", "b").await;
    let job = claim_one(&house, JobKind::CountTokens).await;
    let counted = counted(&house, &job).await;
    let held = house.holding(JOBS, talk.uuid()).await;
    let (finished, appended, ()) = tokio::join!(
        // Has the conversation's lock, its counts are written, it waits for its job's row.
        house.store.record_counts_alone(&counted),
        async {
            house.waiting(1).await;
            talk.append("c").await
        },
        async {
            house.waiting(2).await;
            held.let_go().await;
        },
    );
    assert_eq!(finished.expect("records").finished, Finished::Done);
    assert_eq!(appended.messages[0].message_id, 3);
    assert_eq!(jobs(&talk).await, [(Kind::CountTokens, State::Waiting, 0)]);
    assert_eq!(uncounted(&talk).await, 1);
    settled(&talk).await;
}

#[tokio::test]
async fn a_finish_that_comes_after_an_append_leaves_the_job_waiting() {
    let house = House::start().await;
    let talk = house.conversation().await;
    talk.turn("a", "b").await;
    let job = claim_one(&house, JobKind::CountTokens).await;
    let counted = counted(&house, &job).await;
    let held = house.holding(JOBS, talk.uuid()).await;
    let (appended, finished, ()) = tokio::join!(
        // Has stored its message, and waits to mark the job.
        talk.append("c").send(),
        async {
            house.waiting(1).await;
            house.store.record_counts_alone(&counted).await
        },
        async {
            house.waiting(2).await;
            held.let_go().await;
        },
    );
    assert_eq!(appended.expect("appends").messages[0].message_id, 3);
    assert_eq!(finished.expect("records").finished, Finished::Again, "what was appended is seen");
    assert_eq!(jobs(&talk).await, [(Kind::CountTokens, State::Waiting, 0)]);
    assert_eq!(uncounted(&talk).await, 1, "what was read is counted, no more");
    settled(&talk).await;
}

/// A checkpoint job that has nothing to do, claimed.
async fn needless(house: &House) -> (Talk<'_>, anneal_store::ClaimedJob) {
    let talk = house.conversation().await;
    talk.turns(12).await;
    house.run_jobs_until_idle().await;
    compact(&talk).await;
    let job = claim_one(house, JobKind::Checkpoint).await;
    (talk, job)
}

async fn compact(talk: &Talk<'_>) {
    let ask = pb::CompactRequest { conversation_id: talk.id.clone(), ..Default::default() };
    talk.house.contexts().compact(ask).await.expect("queues");
}

#[tokio::test]
async fn a_compaction_asked_for_after_a_finish_without_results_is_not_lost() {
    let house = House::start().await;
    let (talk, job) = needless(&house).await;
    // It ends without the conversation's lock: only the job's row is between the two.
    plant_dead(&talk, JobKind::Checkpoint).await;
    let held = house.holding(DEAD_JOBS, talk.uuid()).await;
    let (finished, (), ()) = tokio::join!(
        house.store.finish_job(&job),
        async {
            house.waiting(1).await;
            compact(&talk).await;
        },
        async {
            house.waiting(2).await;
            held.let_go().await;
        },
    );
    assert_eq!(finished.expect("finishes"), Finished::Done);
    assert_eq!(jobs(&talk).await, [(Kind::Checkpoint, State::Waiting, 0)]);
    house.run_jobs_until_idle().await;
    assert_eq!(talk.checkpoints().await.len(), 1);
}

#[tokio::test]
async fn a_compaction_asked_for_before_a_finish_without_results_is_not_lost() {
    let house = House::start().await;
    let (talk, job) = needless(&house).await;
    let held = house.holding(JOBS, talk.uuid()).await;
    let ((), finished, ()) = tokio::join!(
        compact(&talk),
        async {
            house.waiting(1).await;
            house.store.finish_job(&job).await
        },
        async {
            house.waiting(2).await;
            held.let_go().await;
        },
    );
    assert_eq!(finished.expect("finishes"), Finished::Again);
    assert_eq!(jobs(&talk).await, [(Kind::Checkpoint, State::Waiting, 0)]);
    house.run_jobs_until_idle().await;
    assert_eq!(talk.checkpoints().await.len(), 1);
}

#[tokio::test]
async fn a_rescue_passes_over_a_job_that_is_being_finished() {
    let house = House::start().await;
    let talk = house.conversation().await;
    talk.turn("a", "b").await;
    let job = claim_one(&house, JobKind::CountTokens).await;
    let counted = counted(&house, &job).await;
    end_leases(&house).await;
    plant_dead(&talk, JobKind::CountTokens).await;
    let held = house.holding(DEAD_JOBS, talk.uuid()).await;
    let (finished, rescued) = tokio::join!(house.store.record_counts_alone(&counted), async {
        house.waiting(1).await;
        let rescued = house.store.rescue_jobs(100).await.expect("rescues");
        held.let_go().await;
        rescued
    });
    assert_eq!(rescued, Rescued::default(), "it did not wait, and took nothing");
    assert_eq!(finished.expect("its lease was over, but nobody had taken it").finished, Finished::Done);
    assert!(jobs(&talk).await.is_empty());
    settled(&talk).await;
}

/// Two conversations whose jobs' leases have ended. The first job has been started too often; a dead one of it is there
/// already, which the test holds: who rescues them stops between the two, and has both rows locked.
async fn two_orphans(house: &House) -> (Talk<'_>, Talk<'_>) {
    let (first, second) = (house.conversation().await, house.conversation().await);
    first.turn("a", "b").await;
    second.turn("a", "b").await;
    assert_eq!(claim(house, JobKind::CountTokens).await.len(), 2);
    end_leases(house).await;
    let worn_out = "update ai_job set attempts = $1 where conversation_id = $2";
    let worn_out = sqlx::query(worn_out).bind(MAX_ATTEMPTS).bind(first.uuid());
    worn_out.execute(&mut house.db().await).await.expect("runs");
    plant_dead(&first, JobKind::CountTokens).await;
    (first, second)
}

#[tokio::test]
async fn a_finish_that_comes_after_a_rescue_writes_nothing() {
    let house = House::start().await;
    let (worn_out, talk) = (house.conversation().await, house.conversation().await);
    worn_out.turn("a", "b").await;
    talk.turn("a", "b").await;
    let claimed = claim(&house, JobKind::CountTokens).await;
    let job = claimed.iter().find(|job| job.conversation.0 == talk.uuid()).expect("is claimed");
    let counted = counted(&house, job).await;
    end_leases(&house).await;
    let starts = sqlx::query("update ai_job set attempts = $1 where conversation_id = $2").bind(MAX_ATTEMPTS);
    starts.bind(worn_out.uuid()).execute(&mut house.db().await).await.expect("runs");
    plant_dead(&worn_out, JobKind::CountTokens).await;
    let held = house.holding(DEAD_JOBS, worn_out.uuid()).await;
    let (rescued, finished, ()) = tokio::join!(
        house.store.rescue_jobs(100),
        async {
            house.waiting(1).await;
            house.store.record_counts_alone(&counted).await
        },
        async {
            house.waiting(2).await;
            held.let_go().await;
        },
    );
    assert_eq!(rescued.expect("rescues"), Rescued { waiting: 1, dead: 1 });
    assert!(finished.as_ref().is_err_and(LOST), "{finished:?}");
    assert_eq!(uncounted(&talk).await, 2, "the counts went with the lease");
    assert_eq!(jobs(&talk).await, [(Kind::CountTokens, State::Waiting, 1)], "attempts are kept");
    settled(&talk).await;
}

#[tokio::test]
async fn two_rescuers_free_each_job_once() {
    let house = House::start().await;
    let (first, second) = two_orphans(&house).await;
    let held = house.holding(DEAD_JOBS, first.uuid()).await;
    let (one, other) = tokio::join!(house.store.rescue_jobs(100), async {
        house.waiting(1).await;
        let other = house.store.rescue_jobs(100).await.expect("rescues");
        held.let_go().await;
        other
    });
    assert_eq!(other, Rescued::default(), "the second did not wait, and took nothing");
    assert_eq!(one.expect("rescues"), Rescued { waiting: 1, dead: 1 });
    assert_eq!(jobs(&first).await, [(Kind::CountTokens, State::Dead, i32::from(MAX_ATTEMPTS))]);
    assert_eq!(jobs(&second).await, [(Kind::CountTokens, State::Waiting, 1)]);
    assert_eq!(claim(&house, JobKind::CountTokens).await.len(), 1);
}

/// Everything is counted, nothing is left to do.
async fn settled(talk: &Talk<'_>) {
    talk.house.run_jobs_until_idle().await;
    assert_eq!(uncounted(talk).await, 0);
    assert!(jobs(talk).await.is_empty());
    talk.verify().await;
}
