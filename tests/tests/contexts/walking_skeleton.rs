//! The whole way once: say, count, summarise, cool, build.

use anneal_tests::{House, assistant, pb, user};

#[tokio::test]
async fn a_conversation_is_stored_counted_checkpointed_and_built() {
    let house = House::start().await;
    let policy = pb::Policy { max_message_count: Some(10), keep_recent_turns: Some(2), ..Default::default() };
    let talk = house.conversation_under(policy).await;
    for n in 0..5 {
        let asked = format!("Question {n}: what is the capital of country number {n}, and how many people live there?");
        talk.append_all(vec![
            user(&asked),
            assistant(&format!("The capital of country {n} is City-{n}; {n}00,000 people live there, as of 2020.")),
        ])
        .await;
    }
    house.run_jobs_until_idle().await;
    let checkpoints = talk.checkpoints().await;
    assert_eq!(checkpoints.len(), 1, "{checkpoints:#?}");
    assert_eq!(checkpoints[0].last_message_id, 6);
    let built = talk.context().await;
    built.assert_covers(10);
    assert_eq!(built.0.messages.len(), 5, "a summary and two turns: {:#?}", built.said());
    assert!(!built.0.estimated);
    talk.verify().await;
}
