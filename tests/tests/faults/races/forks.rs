//! A conversation is forked while another call changes or deletes it, or uses the same request id.
//! A fork and a change do not wait for each other: the fork has the messages from before the change
//! or from after it. A deletion and a fork wait for each other. A fork waits for the erasure of its
//! user; the erasure passes over the source while it is forked.

use anneal_core::caller::ConversationId;
use anneal_testkit::{
    LOCK_JOBS, OpenTransaction, TestApp, TestConversation, assert_refused, pb, status_details,
};
use tonic::{Code, Status};
use uuid::Uuid;

use crate::races::{
    CALLER,
    changes::{one, run_in_order, run_jobs_and_verify, withdraw},
    deletions::delete_conversation,
    erasures::{erase_anna, read_erased_count},
};

/// Inserts the job of a conversation that does not exist yet: its fork, which enqueues the job
/// after it has copied all rows, waits for the end of the transaction.
const INSERT_JOB: &str = "insert into ai_job (tenant_id, kind, conversation_id)
    values ('00000000-0000-7000-8000-000000000001', 1, $1)";
/// Claims the id of a fork.
const CLAIM_ID: &str = "insert into ai_fork (tenant_id, conversation_id, source_id)
    values ('00000000-0000-7000-8000-000000000001', $1, $1)";
/// Creates a conversation with this id.
const CREATE: &str =
    "insert into ai_conversation (tenant_id, conversation_id, agent_id, user_id, title, pinned, metadata,
        system_prompt, system_prompt_tokens, policy, encoding)
    select tenant_id, $1, '', '', '', false, '{}', '', 0, '{}', 1 from ai_conversation limit 1";

/// A request for a fork at the newest message, with a request id.
fn repeatable() -> pb::ForkConversationRequest {
    pb::ForkConversationRequest {
        request_id: "r".into(),
        ..Default::default()
    }
}

async fn fork(source: &TestConversation<'_>) -> Result<pb::Conversation, Status> {
    source.try_fork(repeatable()).await
}

/// Creates a conversation of one turn. Returns it with the id that its fork will have.
async fn create_source(app: &TestApp) -> (TestConversation<'_>, Uuid) {
    create_source_of(app, "").await
}

/// [`create_source`] for this user.
async fn create_source_of<'a>(app: &'a TestApp, user_id: &str) -> (TestConversation<'a>, Uuid) {
    let ask = pb::CreateConversationRequest {
        user_id: user_id.into(),
        ..Default::default()
    };
    let source = app.conversation_with(ask).await;
    source.turn("a", "b").await;
    let made = fork(&source).await.expect("forks");
    let made = app.conversation_by_id(&made.conversation_id);
    delete_conversation(&made).await;
    (source, made.uuid())
}

/// Stops the next fork of the source after it has copied the rows.
async fn hold_fork(app: &TestApp, id: Uuid) -> OpenTransaction {
    app.hold_lock(INSERT_JOB, id).await
}

/// The ids of the messages that stand.
async fn standing(conversation: &TestConversation<'_>) -> Vec<i64> {
    let messages = conversation.messages().await;
    messages.iter().map(|message| message.message_id).collect()
}

#[tokio::test]
async fn an_append_does_not_wait_for_a_fork_which_lacks_its_message() {
    let app = TestApp::counted_by_workers().await;
    let (source, id) = create_source(&app).await;
    let held = hold_fork(&app, id).await;
    let (forked, ()) = tokio::join!(fork(&source), async {
        app.wait_for_lock_waiters(1).await;
        let appended = source.append("c").await;
        assert_eq!(appended.messages[0].message_id, 3);
        held.rollback().await;
    });
    let fork = app.conversation_by_id(&forked.expect("forks").conversation_id);
    assert_eq!(fork.uuid(), id);
    assert_eq!(standing(&fork).await, [1, 2]);
    run_jobs_and_verify(&fork).await;
    run_jobs_and_verify(&source).await;
}

#[tokio::test]
async fn a_fork_does_not_wait_for_an_append_whose_message_it_lacks() {
    let app = TestApp::counted_by_workers().await;
    let (source, _) = create_source(&app).await;
    let held = app.hold_lock(LOCK_JOBS, source.uuid()).await;
    let (appended, forked) = tokio::join!(source.append("c").send(), async {
        app.wait_for_lock_waiters(1).await;
        let forked = fork(&source).await;
        held.rollback().await;
        forked
    });
    assert_eq!(appended.expect("appends").messages[0].message_id, 3);
    let forked = forked.expect("forks");
    assert_eq!(forked.message_count, 2);
    let fork = app.conversation_by_id(&forked.conversation_id);
    run_jobs_and_verify(&fork).await;
    run_jobs_and_verify(&source).await;
}

#[tokio::test]
async fn a_withdrawal_does_not_wait_for_a_fork_which_keeps_the_message() {
    let app = TestApp::counted_by_workers().await;
    let (source, id) = create_source(&app).await;
    let held = hold_fork(&app, id).await;
    let (forked, ()) = tokio::join!(fork(&source), async {
        app.wait_for_lock_waiters(1).await;
        withdraw(&source, one(2)).await.expect("withdraws");
        held.rollback().await;
    });
    let fork = app.conversation_by_id(&forked.expect("forks").conversation_id);
    assert_eq!(standing(&fork).await, [1, 2]);
    assert_eq!(standing(&source).await, [1]);
    run_jobs_and_verify(&fork).await;
    run_jobs_and_verify(&source).await;
}

#[tokio::test]
async fn a_fork_does_not_wait_for_a_withdrawal_and_sees_all_of_it_or_nothing() {
    let app = TestApp::counted_by_workers().await;
    let (source, _) = create_source(&app).await;
    let held = app.hold_lock(LOCK_JOBS, source.uuid()).await;
    let (withdrawn, before) = tokio::join!(withdraw(&source, one(2)), async {
        app.wait_for_lock_waiters(1).await;
        let forked = fork(&source).await.expect("forks");
        held.rollback().await;
        forked
    });
    withdrawn.expect("withdraws");
    assert_eq!(before.withdrawn_messages, 0);
    let before = app.conversation_by_id(&before.conversation_id);
    assert_eq!(standing(&before).await, [1, 2]);
    let after = source.fork(0).await;
    assert_eq!(standing(&after).await, [1]);
    for conversation in [&before, &after, &source] {
        run_jobs_and_verify(conversation).await;
    }
}

#[tokio::test]
async fn a_deletion_waits_for_a_fork_and_leaves_it() {
    let app = TestApp::counted_by_workers().await;
    let (source, id) = create_source(&app).await;
    let held = hold_fork(&app, id).await;
    let (forked, ()) = run_in_order(&app, held, fork(&source), delete_conversation(&source)).await;
    let fork = app.conversation_by_id(&forked.expect("forks").conversation_id);
    assert_eq!(standing(&fork).await, [1, 2]);
    assert_eq!(app.list_tables_with_rows(source.uuid()).await, [""; 0]);
    run_jobs_and_verify(&fork).await;
}

#[tokio::test]
async fn a_fork_that_comes_after_a_deletion_finds_no_conversation() {
    let app = TestApp::counted_by_workers().await;
    let (source, id) = create_source(&app).await;
    let held = app.hold_lock(LOCK_JOBS, source.uuid()).await;
    let ((), forked) = run_in_order(&app, held, delete_conversation(&source), fork(&source)).await;
    assert_refused(forked, Code::NotFound, "CONVERSATION_NOT_FOUND", "");
    for id in [source.uuid(), id] {
        assert_eq!(app.list_tables_with_rows(id).await, [""; 0]);
    }
}

#[tokio::test]
async fn the_erasure_of_a_user_passes_over_what_is_being_forked_and_then_deletes_the_fork_too() {
    let app = TestApp::counted_by_workers().await;
    let (source, id) = create_source_of(&app, "anna").await;
    let erasure = erase_anna(&app, "").await.expect("begins");
    let held = hold_fork(&app, id).await;
    let (forked, ()) = tokio::join!(fork(&source), async {
        app.wait_for_lock_waiters(1).await;
        app.run_erasures().await;
        assert_eq!(standing(&source).await, [1, 2]);
        held.rollback().await;
    });
    assert_eq!(forked.expect("forks").conversation_id, id.to_string());
    app.run_erasures().await;
    for id in [source.uuid(), id] {
        assert_eq!(app.list_tables_with_rows(id).await, [""; 0]);
    }
    assert_eq!(read_erased_count(&app, &erasure).await, 2);
}

#[tokio::test]
async fn a_fork_that_comes_after_a_step_of_the_erasure_of_its_user_finds_no_conversation() {
    let app = TestApp::counted_by_workers().await;
    let (source, id) = create_source_of(&app, "anna").await;
    let erasure = erase_anna(&app, "").await.expect("begins");
    let held = app.hold_lock(LOCK_JOBS, source.uuid()).await;
    let ((), forked) = run_in_order(&app, held, app.run_erasures(), fork(&source)).await;
    assert_refused(forked, Code::NotFound, "CONVERSATION_NOT_FOUND", "");
    for id in [source.uuid(), id] {
        assert_eq!(app.list_tables_with_rows(id).await, [""; 0]);
    }
    assert_eq!(read_erased_count(&app, &erasure).await, 1);
}

#[tokio::test]
async fn a_fork_repeated_while_it_is_made_waits_and_returns_the_same() {
    let app = TestApp::counted_by_workers().await;
    let (source, id) = create_source(&app).await;
    let held = hold_fork(&app, id).await;
    let (first, again) = run_in_order(&app, held, fork(&source), fork(&source)).await;
    let (first, again) = (first.expect("forks"), again.expect("is answered"));
    assert_eq!(first, again);
    assert_eq!(app.forks_of(&source.id).await, [first.conversation_id]);
    run_jobs_and_verify(&app.conversation_by_id(&again.conversation_id)).await;
}

#[tokio::test]
async fn a_call_with_the_same_request_id_and_another_body_waits_and_is_refused() {
    let app = TestApp::counted_by_workers().await;
    let (source, id) = create_source(&app).await;
    let held = hold_fork(&app, id).await;
    let other = pb::ForkConversationRequest {
        message_id: 1,
        ..repeatable()
    };
    let (forked, refused) = run_in_order(&app, held, fork(&source), source.try_fork(other)).await;
    assert_eq!(forked.expect("forks").message_count, 2);
    assert_refused(refused, Code::AlreadyExists, "REQUEST_ID_REUSED", "");
    assert_eq!(app.forks_of(&source.id).await.len(), 1);
}

#[tokio::test]
async fn a_fork_repeated_after_the_first_was_rolled_back_is_made() {
    let app = TestApp::counted_by_workers().await;
    let (source, id) = create_source(&app).await;
    // The first call of a server that dies: not committed, then rolled back.
    let dying = app.hold_lock(CLAIM_ID, id).await;
    let (forked, ()) = tokio::join!(fork(&source), async {
        app.wait_for_lock_waiters(1).await;
        dying.rollback().await;
    });
    assert_eq!(forked.expect("forks").message_count, 2);
    assert_eq!(app.forks_of(&source.id).await, [id.to_string()]);
}

#[tokio::test]
async fn of_a_fork_and_a_creation_with_one_request_id_the_second_is_refused() {
    let app = TestApp::counted_by_workers().await;
    let (source, id) = create_source(&app).await;
    let held = hold_fork(&app, id).await;
    let create = async || {
        let ask = pb::CreateConversationRequest {
            request_id: "r".into(),
            ..Default::default()
        };
        app.conversations().create_conversation(ask).await
    };
    let (forked, refused) = run_in_order(&app, held, fork(&source), create()).await;
    assert_refused(refused, Code::AlreadyExists, "REQUEST_ID_REUSED", "");
    let forked = app.conversation_by_id(&forked.expect("forks").conversation_id);
    delete_conversation(&forked).await;

    // A creation that is not committed yet.
    let creating = app.hold_lock(CREATE, id).await;
    let (refused, ()) = tokio::join!(fork(&source), async {
        app.wait_for_lock_waiters(1).await;
        creating.commit().await;
    });
    let refused = refused.expect_err("the id has created a conversation");
    assert_eq!(status_details(&refused).reason, "REQUEST_ID_REUSED");
    assert!(app.forks_of(&source.id).await.is_empty());
    let created = app.store.get_conversation(CALLER, ConversationId(id)).await;
    assert!(
        matches!(&created, Ok(created) if created.forked_from.is_none()),
        "{created:?}"
    );
}
