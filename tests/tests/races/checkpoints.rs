//! A checkpoint's commit beside what changes its ground: separators, other checkpoints.

use anneal_core::{cut::Trigger, digest, job::JobKind, message::MessageId, tokens::Tokens};
use anneal_store::{CheckpointDraft, ClaimedJob, Finished, StoreError};
use anneal_tests::{House, JOBS, Talk, pb, sentence};
use pb::{JobKind as Kind, JobState as State};

use crate::{claim_one, end_leases, jobs, summary};

/// A conversation with a checkpoint job that is due.
async fn full(house: &House) -> Talk<'_> {
    let policy = pb::Policy { max_message_count: Some(10), keep_recent_turns: Some(1), ..Default::default() };
    let talk = house.conversation_under(policy).await;
    for n in 0..5 {
        talk.turn(&sentence(2 * n), &sentence(2 * n + 1)).await;
    }
    let claimed = claim_one(house, JobKind::CountTokens).await;
    let counted = crate::counted(house, &claimed).await;
    let caused = house.store.record_counts_alone(&counted).await.expect("records").caused;
    assert_eq!(caused, [JobKind::Checkpoint]);
    talk
}

/// What a worker would commit now: a summary of all but the last turn.
async fn drafted(house: &House, job: &ClaimedJob) -> CheckpointDraft {
    let material = house.store.checkpoint_material(job).await.expect("reads").expect("is there");
    let last = MessageId(material.last_message_id.0 - 2);
    let after = material.previous.as_ref().map_or(material.separator.unwrap_or_default(), |previous| previous.last);
    let sources = house.store.checkpoint_sources(job, &material.policy, after, last).await.expect("reads");
    let read = sources.iter().map(|source| (source.id, source.content_digest.as_slice()));
    CheckpointDraft {
        separator: material.separator,
        previous: material.previous.as_ref().map(|previous| previous.last),
        last,
        summary: summary("Reports were filed."),
        source_first: after.next(),
        source_digest: digest::of_sources(read),
        tokens_before: Tokens::new(200),
        tokens_after: Tokens::new(50),
        generation: material.previous.as_ref().map_or(0, |previous| previous.generation) + 1,
        trigger: Some(Trigger::Messages),
    }
}

/// The boundaries of all checkpoints, and whether they hold.
async fn boundaries(talk: &Talk<'_>) -> Vec<(i64, bool)> {
    talk.checkpoints().await.iter().map(|checkpoint| (checkpoint.last_message_id, checkpoint.valid)).collect()
}

/// Nothing is left to do, and every promise is kept.
async fn settled(talk: &Talk<'_>) {
    talk.house.run_jobs_until_idle().await;
    assert!(jobs(talk).await.is_empty());
    talk.context().await.assert_covers(talk.conversation().await.message_count);
    talk.verify().await;
}

#[tokio::test]
async fn a_separator_that_comes_after_a_checkpoint_sets_it_aside() {
    let house = House::start().await;
    let talk = full(&house).await;
    let job = claim_one(&house, JobKind::Checkpoint).await;
    let draft = drafted(&house, &job).await;
    let held = house.holding(JOBS, talk.uuid()).await;
    let (committed, separator, ()) = tokio::join!(
        // Its checkpoint is stored, it waits to end its job.
        house.store.commit_checkpoint(&job, &draft),
        async {
            house.waiting(1).await;
            talk.separate().await
        },
        async {
            house.waiting(2).await;
            held.let_go().await;
        },
    );
    let committed = committed.expect("commits");
    assert!(committed.kept);
    assert_eq!(committed.finished, Finished::Done);
    assert_eq!(separator.after_message_id, 10);
    assert_eq!(boundaries(&talk).await, [(8, false)]);
    settled(&talk).await;
    assert_eq!(talk.join(10).await, 8, "without the separator it holds again");
    settled(&talk).await;
}

#[tokio::test]
async fn a_checkpoint_that_comes_after_a_separator_is_discarded() {
    let house = House::start().await;
    let talk = full(&house).await;
    let job = claim_one(&house, JobKind::Checkpoint).await;
    let draft = drafted(&house, &job).await;
    // The separator stops at the row of its mark.
    let mark = "insert into ai_separator (tenant_id, conversation_id, after_message_id)
        select tenant_id, conversation_id, 10 from ai_conversation where conversation_id = $1";
    let held = house.holding(mark, talk.uuid()).await;
    let (separator, committed, ()) = tokio::join!(
        talk.separate(),
        async {
            house.waiting(1).await;
            house.store.commit_checkpoint(&job, &draft).await
        },
        async {
            house.waiting(2).await;
            held.let_go().await;
        },
    );
    let committed = committed.expect("commits that there is none");
    assert!(!committed.kept);
    assert_eq!(committed.finished, Finished::Again, "it looks again at what is there now");
    assert_eq!(separator.after_message_id, 10);
    assert_eq!(boundaries(&talk).await, []);
    settled(&talk).await;
    assert_eq!(boundaries(&talk).await, [], "the tail behind the separator is empty");
}

/// A checkpoint of the test's at the place of [`drafted`]'s.
const SAME_PLACE: &str = "insert into ai_conversation_checkpoint (tenant_id, conversation_id, first_message_id,
        last_message_id, summary, token_usage, kind, model, prompt_version, source_first_message_id, source_digest,
        tokens_before, tokens_after, generation, trigger_kind, focus, duration_ms)
    select tenant_id, conversation_id, 1, 8, 'said', 1, 2, '', 1, 1, '', 2, 1, 1, 1, '', 0
    from ai_conversation where conversation_id = $1";

/// A worker that has lost its job to another, which has drafted the same checkpoint.
async fn twice(house: &House) -> ([ClaimedJob; 2], CheckpointDraft) {
    let late = claim_one(house, JobKind::Checkpoint).await;
    let draft = drafted(house, &late).await;
    end_leases(house).await;
    assert_eq!(house.store.rescue_jobs(100).await.expect("rescues").waiting, 1);
    let holder = claim_one(house, JobKind::Checkpoint).await;
    ([late, holder], draft)
}

#[tokio::test]
async fn of_two_checkpoints_the_one_without_a_lease_is_undone_though_it_comes_first() {
    let house = House::start().await;
    let talk = full(&house).await;
    let ([late, holder], draft) = twice(&house).await;
    let held = house.holding(SAME_PLACE, talk.uuid()).await;
    let (undone, committed, ()) = tokio::join!(
        // It has the conversation, and waits to store its checkpoint; that its job is no longer its own is found after that.
        house.store.commit_checkpoint(&late, &draft),
        async {
            house.waiting(1).await;
            house.store.commit_checkpoint(&holder, &draft).await
        },
        async {
            house.waiting(2).await;
            held.let_go().await;
        },
    );
    assert!(matches!(undone, Err(StoreError::LeaseLost)), "{undone:?}");
    assert!(committed.expect("commits").kept);
    assert_eq!(boundaries(&talk).await, [(8, true)]);
    settled(&talk).await;
}

#[tokio::test]
async fn of_two_checkpoints_the_one_without_a_lease_changes_nothing_when_it_comes_second() {
    let house = House::start().await;
    let talk = full(&house).await;
    let ([late, holder], draft) = twice(&house).await;
    let held = house.holding(JOBS, talk.uuid()).await;
    let (committed, undone, ()) = tokio::join!(
        house.store.commit_checkpoint(&holder, &draft),
        async {
            house.waiting(1).await;
            house.store.commit_checkpoint(&late, &draft).await
        },
        async {
            house.waiting(2).await;
            held.let_go().await;
        },
    );
    assert!(committed.expect("commits").kept);
    assert!(matches!(undone, Err(StoreError::LeaseLost)), "{undone:?}");
    assert_eq!(boundaries(&talk).await, [(8, true)]);
    assert!(jobs(&talk).await.is_empty(), "nor did it mark the conversation");
    settled(&talk).await;
}

async fn import(talk: &Talk<'_>, last_message_id: i64) -> Result<pb::Checkpoint, tonic::Status> {
    let ask = pb::ImportCheckpointRequest {
        conversation_id: talk.id.clone(),
        last_message_id,
        summary: "They spoke.".into(),
        model: "elsewhere-1".into(),
        request_id: "r".into(),
        ..Default::default()
    };
    Ok(talk.house.contexts().import_checkpoint(ask).await?.into_inner())
}

#[tokio::test]
async fn a_checkpoint_that_comes_after_an_imported_one_is_discarded_and_made_anew() {
    let house = House::start().await;
    let talk = full(&house).await;
    let job = claim_one(&house, JobKind::Checkpoint).await;
    let draft = drafted(&house, &job).await;
    // The import stops where it remembers its request.
    let request = "insert into ai_request (tenant_id, conversation_id, method, request_id, request_digest)
        select tenant_id, conversation_id, 'import_checkpoint', 'r', '' from ai_conversation where conversation_id = $1";
    let held = house.holding(request, talk.uuid()).await;
    let (imported, committed, ()) = tokio::join!(
        import(&talk, 4),
        async {
            house.waiting(1).await;
            house.store.commit_checkpoint(&job, &draft).await
        },
        async {
            house.waiting(2).await;
            held.let_go().await;
        },
    );
    assert_eq!(imported.expect("imports").last_message_id, 4);
    assert!(!committed.expect("commits that there is none").kept);
    assert_eq!(boundaries(&talk).await, [(4, true)]);
    assert_eq!(jobs(&talk).await, [(Kind::Checkpoint, State::Waiting, 0)]);
    settled(&talk).await;
}

#[tokio::test]
async fn an_import_that_comes_after_a_checkpoint_at_the_same_place_is_refused() {
    let house = House::start().await;
    let talk = full(&house).await;
    let job = claim_one(&house, JobKind::Checkpoint).await;
    let draft = drafted(&house, &job).await;
    let held = house.holding(JOBS, talk.uuid()).await;
    let (committed, imported, ()) = tokio::join!(
        house.store.commit_checkpoint(&job, &draft),
        async {
            house.waiting(1).await;
            import(&talk, 8).await
        },
        async {
            house.waiting(2).await;
            held.let_go().await;
        },
    );
    assert!(committed.expect("commits").kept);
    imported.expect_err("the boundary is there already");
    assert_eq!(boundaries(&talk).await, [(8, true)]);
    settled(&talk).await;
}
