//! A batch counts the messages of several conversations in one transaction: which messages it
//! reads, which counts it writes, and which jobs it queues.

use std::collections::BTreeMap;

use anneal_core::{caller::TenantId, job::JobKind, message::MessageId, tokens::Tokens};
use anneal_store::{ClaimedJob, CountedMessages, StoreError};
use anneal_testkit::{TestApp, TestConversation, media, pb};
use uuid::Uuid;

use crate::jobs::counting::{append_four_messages, create_uncounted_conversations, list_jobs};

/// Claims the counting jobs of all conversations.
async fn claim(app: &TestApp) -> Vec<ClaimedJob> {
    let from_start = TenantId(Uuid::nil());
    app.store
        .claim_jobs(JobKind::CountTokens, 100, 100, from_start, "by hand", &[])
        .await
        .expect("claims")
        .jobs
}

#[tokio::test]
async fn a_batch_discards_counts_of_a_deleted_conversation_and_counts_with_a_wrong_start() {
    let app = TestApp::counted_by_workers().await;
    let conversations = create_uncounted_conversations(&app, 4).await;
    let claimed = claim(&app).await;
    let job = |conversation: &TestConversation<'_>| {
        let of_conversation = claimed
            .iter()
            .find(|job| job.conversation.0.to_string() == conversation.id);
        of_conversation.expect("is claimed").clone()
    };
    let claimed = [
        job(&conversations[0]),
        job(&conversations[1]),
        job(&conversations[2]),
        job(&conversations[3]),
    ];
    let ask = pb::DeleteConversationRequest {
        conversation_id: conversations[1].id.clone(),
        ..Default::default()
    };
    app.conversations()
        .delete_conversation(ask)
        .await
        .expect("deletes");
    let jobs: Vec<&ClaimedJob> = claimed.iter().collect();
    let read = app
        .store
        .read_uncounted_messages(&jobs)
        .await
        .expect("reads");
    assert_eq!(
        (read.len(), read.contains_key(&claimed[1].conversation)),
        (3, false)
    );
    append_four_messages(&conversations[2]).await;
    let counts: Vec<_> = (1..=4).map(|id| (MessageId(id), Tokens::new(10))).collect();
    // Counts of all four jobs. `counted_before` says for each job up to which message all were
    // counted before.
    let batch = |counted_before: [i64; 4]| -> Vec<CountedMessages<'_>> {
        let jobs = claimed.iter().zip(counted_before);
        jobs.map(|(job, last_counted)| CountedMessages {
            job,
            counted: MessageId(last_counted),
            counts: counts.clone(),
        })
        .collect()
    };
    // The fourth job claims that messages 1 and 2 were counted before, which is false.
    let recorded = app
        .store
        .record_counts(&batch([0, 0, 0, 2]))
        .await
        .expect("records");
    let finished: Vec<_> = recorded
        .iter()
        .map(|one| one.as_ref().map(|one| format!("{:?}", one.finished)))
        .collect();
    let expected =
        // None: the second conversation was deleted. The third has new messages, and the counts of
        // the fourth start after message 2, not after 0. So the jobs of these two run again.
        [Some("Done"), None, Some("Again"), Some("Again")].map(|one| one.map(str::to_owned));
    assert_eq!(finished, expected);
    let total = async |conversation: &TestConversation<'_>| {
        conversation
            .conversation()
            .await
            .token_total
            .expect("has a total")
    };
    assert_eq!(
        (
            total(&conversations[0]).await.tokens,
            total(&conversations[0]).await.estimated_messages
        ),
        (40, 0)
    );
    assert_eq!(total(&conversations[2]).await.estimated_messages, 4);
    assert_eq!(
        total(&conversations[3]).await.estimated_messages,
        4,
        "none of the fourth job's counts were written"
    );
    let repeated = app.store.record_counts(&batch([4, 0, 4, 2])).await;
    assert!(
        matches!(repeated, Err(StoreError::LeaseLost)),
        "{repeated:?}"
    );
}

#[tokio::test]
async fn a_message_with_a_large_data_uri_is_not_read_in_a_batch() {
    let app = TestApp::counted_by_workers().await;
    let conversations = create_uncounted_conversations(&app, 2).await;
    let picture = app.conversation().await;
    // Data that PostgreSQL cannot compress.
    let noise: Vec<u8> = (0..1_000_000_u64)
        .map(|n| (n.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as u8)
        .collect();
    let data: String = noise
        .iter()
        .map(|byte| char::from(b'a' + byte % 26))
        .collect();
    picture
        .append_all(vec![media(&format!("data:image/png;base64,{data}"))])
        .await;
    let jobs = claim(&app).await;
    assert_eq!(jobs.len(), 3);
    let read = app
        .store
        .read_uncounted_messages(&jobs.iter().collect::<Vec<_>>())
        .await
        .expect("reads");
    let is_in_batch = |conversation: &TestConversation<'_>| {
        read.keys().any(|id| id.0.to_string() == conversation.id)
    };
    assert!(conversations.iter().all(is_in_batch) && !is_in_batch(&picture));
}

#[tokio::test]
async fn a_counting_batch_queues_the_jobs_that_its_triggers_call_for() {
    let app = TestApp::counted_by_workers().await;
    let mut conversations = Vec::new();
    for index in 0..12 {
        // Each conversation gets eight messages. Every second one reaches its threshold.
        let threshold = if index % 2 == 0 { 8 } else { 9 };
        let policy = pb::Policy {
            max_message_count: Some(threshold),
            keep_recent_turns: Some(1),
            ..Default::default()
        };
        let conversation = app.conversation_with_policy(policy).await;
        for n in 0..4 {
            let question = format!(
                "Question {n}: what is the capital of country number {n}, and how many live there?"
            );
            conversation
                .turn(
                    &question,
                    &format!(
                        "The capital of country {n} is City-{n}; {n}00,000 people live there."
                    ),
                )
                .await;
        }
        conversations.push(conversation);
    }
    let claimed = claim(&app).await;
    let store = &app.store;
    let read = store
        .read_uncounted_messages(&claimed.iter().collect::<Vec<_>>())
        .await
        .expect("reads");
    let batch: Vec<_> = claimed
        .iter()
        .map(|job| {
            let uncounted = &read[&job.conversation];
            let counts = uncounted
                .messages
                .iter()
                .map(|(id, _, _)| (*id, Tokens::new(20)))
                .collect();
            CountedMessages {
                job,
                counted: uncounted.counted,
                counts,
            }
        })
        .collect();
    let recorded = store.record_counts(&batch).await.expect("records");
    let caused: BTreeMap<String, Vec<JobKind>> = claimed
        .iter()
        .zip(recorded)
        .map(|(job, committed)| {
            (
                job.conversation.0.to_string(),
                committed.expect("is recorded").caused,
            )
        })
        .collect();
    let conversations_with_jobs: Vec<String> = list_jobs(&app)
        .await
        .into_iter()
        .map(|job| job.conversation_id)
        .collect();
    for (index, conversation) in conversations.iter().enumerate() {
        let reaches_threshold = index % 2 == 0;
        assert_eq!(
            caused[&conversation.id],
            if reaches_threshold {
                vec![JobKind::Checkpoint]
            } else {
                Vec::new()
            }
        );
        assert_eq!(
            conversations_with_jobs.contains(&conversation.id),
            reaches_threshold
        );
    }
    app.run_jobs_until_idle().await;
    for (index, conversation) in conversations.iter().enumerate() {
        assert_eq!(
            conversation.checkpoints().await.len(),
            usize::from(index % 2 == 0)
        );
        conversation.verify().await;
    }
}
