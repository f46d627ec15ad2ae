//! One conversation through all steps: messages are appended and counted, a checkpoint is written,
//! and a context is built.

use anneal_testkit::{TestApp, assistant, pb, user};

#[tokio::test]
async fn a_conversation_is_stored_counted_checkpointed_and_built() {
    let app = TestApp::start().await;
    let policy = pb::Policy {
        max_message_count: Some(10),
        keep_recent_turns: Some(2),
        ..Default::default()
    };
    let conversation = app.conversation_with_policy(policy).await;
    for n in 0..5 {
        let question = format!(
            "Question {n}: what is the capital of country number {n}, and how many people live there?"
        );
        conversation.append_all(vec![
            user(&question),
            assistant(&format!(
                "The capital of country {n} is City-{n}; {n}00,000 people live there, as of 2020."
            )),
        ])
        .await;
    }
    app.run_jobs_until_idle().await;
    let checkpoints = conversation.checkpoints().await;
    assert_eq!(checkpoints.len(), 1, "{checkpoints:#?}");
    assert_eq!(checkpoints[0].last_message_id, 6);
    let built = conversation.context().await;
    built.assert_covers(10);
    assert_eq!(
        built.0.messages.len(),
        5,
        "a summary and two turns: {:#?}",
        built.texts_by_role()
    );
    assert!(!built.0.estimated);
    conversation.verify().await;
}
