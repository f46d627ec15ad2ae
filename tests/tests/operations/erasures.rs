//! The steps in which workers erase a user: they pass over conversations in use, and two workers
//! share the work. That an erasure ends once although everything is killed meanwhile:
//! `faults/campaigns/erasures.rs`.

use anneal_testkit::{LOCK_CONVERSATION, TestApp, TestConversation, pb};

/// The user whose conversations are erased.
const ANNA: &str = "anna";

/// A conversation of Anna, with a turn.
async fn annas_conversation(app: &TestApp) -> TestConversation<'_> {
    let ask = pb::CreateConversationRequest {
        user_id: ANNA.into(),
        ..Default::default()
    };
    let conversation = app.conversation_with(ask).await;
    conversation.turns(1).await;
    conversation
}

async fn begin_on(app: &TestApp) -> pb::Erasure {
    let ask = pb::EraseUserRequest {
        user_id: ANNA.into(),
        ..Default::default()
    };
    let begun = app.erasures().erase_user(ask).await.expect("begins");
    begun.into_inner()
}

async fn read_on(app: &TestApp, begun: &pb::Erasure) -> pb::Erasure {
    let ask = pb::GetErasureRequest {
        erasure_id: begun.erasure_id.clone(),
    };
    let read = app.erasures().get_erasure(ask).await.expect("is there");
    read.into_inner()
}

#[tokio::test]
async fn a_conversation_in_use_is_passed_over_and_deleted_by_a_later_step() {
    let app = TestApp::start().await;
    let (used, free) = (
        annas_conversation(&app).await,
        annas_conversation(&app).await,
    );
    let begun = begin_on(&app).await;
    let held = app.hold_lock(LOCK_CONVERSATION, used.uuid()).await;
    app.run_erasures().await;
    let erasure = read_on(&app, &begun).await;
    assert_eq!(
        (erasure.state(), erasure.erased_conversations),
        (pb::ErasureState::Running, 1)
    );
    assert_eq!(app.list_tables_with_rows(free.uuid()).await, [""; 0]);
    held.rollback().await;
    app.run_erasures().await;
    let erasure = read_on(&app, &begun).await;
    assert_eq!(
        (erasure.state(), erasure.erased_conversations),
        (pb::ErasureState::Done, 2)
    );
}

#[tokio::test]
async fn two_workers_share_the_erasures_and_each_conversation_counts_once() {
    let app = TestApp::start().await;
    for _ in 0..120 {
        annas_conversation(&app).await;
    }
    let second = app.second_server().await;
    let (one, other) = (begin_on(&app).await, begin_on(&app).await);
    // A worker may find everything in use, and stop before the end.
    loop {
        tokio::join!(app.run_erasures(), second.run_erasures());
        let erasures = [read_on(&app, &one).await, read_on(&app, &other).await];
        if erasures
            .iter()
            .all(|erasure| erasure.state() == pb::ErasureState::Done)
        {
            let counts = erasures.map(|erasure| erasure.erased_conversations);
            assert_eq!(counts.iter().sum::<i64>(), 120, "{counts:?}");
            return;
        }
    }
}
