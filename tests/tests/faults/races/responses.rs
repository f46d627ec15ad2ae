//! A response of the OpenAI protocol is stored, moved, ended, cancelled or deleted beside another
//! such call, or beside the deletion of its conversation.

use anneal_core::{caller::ConversationId, message::MessageId};
use anneal_store::{
    Entity, NewResponse, PutResponse, ResponseEnd, ResponseTurn, StoreError, StoredResponse,
};
use anneal_testkit::{LOCK_CONVERSATION, LOCK_JOBS, TestApp, TestConversation};
use uuid::Uuid;

use crate::races::{
    CALLER,
    changes::run_in_order,
    deletions::{assert_no_rows, delete_conversation},
};

/// Stores a response with this id, as [`new_response`] does.
const INSERT: &str = "insert into ai_response (tenant_id, response_id, conversation_id, request_id,
        after_message_id, is_chain, background, request, request_digest)
    select tenant_id, $1, conversation_id, 'resp', 0, true, false, '{}', decode(repeat('01', 32), 'hex')
    from ai_conversation limit 1";
/// Locks a response.
const LOCK_RESPONSE: &str = "select from ai_response where response_id = $1 for update";

/// A response of a chain.
fn new_response(conversation: &TestConversation<'_>) -> NewResponse {
    NewResponse {
        response_id: Uuid::new_v4(),
        conversation_id: ConversationId(conversation.uuid()),
        request_id: "resp".into(),
        previous_response_id: None,
        after_message_id: MessageId::NONE,
        is_chain: true,
        background: false,
        request: "{}".into(),
        request_digest: [1; 32],
    }
}

async fn put(conversation: &TestConversation<'_>) -> Uuid {
    let response = new_response(conversation);
    let put = conversation.app.store.put_response(CALLER, &response).await;
    assert!(matches!(put, Ok(PutResponse::Stored(_))), "{put:?}");
    response.response_id
}

async fn get(app: &TestApp, id: Uuid) -> StoredResponse {
    app.store.get_response(CALLER, id).await.expect("is there")
}

/// The turn of a response that [`new_response`] or [`INSERT`] stores.
const fn turn(id: Uuid) -> ResponseTurn<'static> {
    ResponseTurn {
        response_id: id,
        request_id: "resp",
    }
}

fn end_with(outcome: &str) -> ResponseEnd {
    ResponseEnd {
        question: None,
        answer: None,
        outcome: outcome.into(),
    }
}

#[tokio::test]
async fn of_two_calls_with_one_id_the_second_gets_what_the_first_has_stored() {
    let app = TestApp::start().await;
    let conversation = app.conversation().await;
    let response = new_response(&conversation);
    let other = NewResponse {
        request_digest: [2; 32],
        ..response.clone()
    };
    let held = app.hold_lock(INSERT, response.response_id).await;
    let (same, other, ()) = tokio::join!(
        app.store.put_response(CALLER, &response),
        app.store.put_response(CALLER, &other),
        async {
            app.wait_for_lock_waiters(2).await;
            held.commit().await;
        }
    );
    let stored = get(&app, response.response_id).await;
    assert_eq!(same.expect("replays"), PutResponse::Exists(stored));
    assert!(
        matches!(other, Err(StoreError::RequestIdReused)),
        "{other:?}"
    );
}

#[tokio::test]
async fn a_response_has_the_first_of_two_ends() {
    let app = TestApp::start().await;
    let conversation = app.conversation().await;
    let id = put(&conversation).await;
    let held = app.hold_lock(LOCK_RESPONSE, id).await;
    let (completed, failed) = (end_with(r#"{"n":1}"#), end_with(r#"{"n":2}"#));
    let (first, second) = run_in_order(
        &app,
        held,
        app.store.end_response(CALLER, turn(id), &completed),
        app.store.end_response(CALLER, turn(id), &failed),
    )
    .await;
    assert!(first.expect("ends") && !second.expect("has ended"));
    assert_eq!(get(&app, id).await.outcome, Some(completed.outcome));
}

#[tokio::test]
async fn an_end_that_comes_before_a_cancellation_leaves_nothing_to_cancel() {
    let app = TestApp::start().await;
    let conversation = app.conversation().await;
    let id = put(&conversation).await;
    let held = app.hold_lock(LOCK_RESPONSE, id).await;
    let end = end_with("{}");
    let (ended, cancelled) = run_in_order(
        &app,
        held,
        app.store.end_response(CALLER, turn(id), &end),
        app.store.cancel_response(CALLER, id),
    )
    .await;
    assert!(ended.expect("ends"));
    cancelled.expect("changes nothing");
    assert_eq!(get(&app, id).await.cancelled, None);
}

#[tokio::test]
async fn a_cancellation_that_comes_before_an_end_stays() {
    let app = TestApp::start().await;
    let conversation = app.conversation().await;
    let id = put(&conversation).await;
    let held = app.hold_lock(LOCK_RESPONSE, id).await;
    let end = end_with("{}");
    let (cancelled, ended) = run_in_order(
        &app,
        held,
        app.store.cancel_response(CALLER, id),
        app.store.end_response(CALLER, turn(id), &end),
    )
    .await;
    cancelled.expect("cancels");
    assert!(ended.expect("ends"));
    let stored = get(&app, id).await;
    assert!(stored.cancelled.is_some() && stored.ended.is_some());
}

#[tokio::test]
async fn of_two_deletions_of_the_last_responses_the_second_leaves_the_chain_to_be_deleted() {
    let app = TestApp::start().await;
    let conversation = app.conversation().await;
    let (first, second) = (put(&conversation).await, put(&conversation).await);
    let held = app.hold_lock(LOCK_CONVERSATION, conversation.uuid()).await;
    let (deleted, last) = run_in_order(
        &app,
        held,
        app.store.delete_response(CALLER, first),
        app.store.delete_response(CALLER, second),
    )
    .await;
    assert!(deleted.expect("deletes").others);
    assert!(!last.expect("is the last").others);
    get(&app, second).await;
    delete_conversation(&conversation).await;
    assert_no_rows(&conversation).await;
}

#[tokio::test]
async fn a_response_that_is_discarded_leaves_a_chain_that_gets_a_message_meanwhile() {
    let app = TestApp::start().await;
    let conversation = app.conversation().await;
    let id = put(&conversation).await;
    let held = app.hold_lock(LOCK_CONVERSATION, conversation.uuid()).await;
    let (_, discarded) = run_in_order(
        &app,
        held,
        async { conversation.append("of another client").await },
        app.store.discard_response(CALLER, turn(id)),
    )
    .await;
    assert!(discarded.expect("discards"));
    let gone = app.store.get_response(CALLER, id).await;
    assert!(
        matches!(gone, Err(StoreError::NotFound(Entity::Response))),
        "{gone:?}"
    );
    assert_eq!(conversation.messages().await.len(), 1);
}

#[tokio::test]
async fn a_response_that_comes_after_the_deletion_of_its_conversation_is_refused() {
    let app = TestApp::counted_by_workers().await;
    let conversation = app.conversation().await;
    conversation.turn("a", "b").await;
    let held = app.hold_lock(LOCK_JOBS, conversation.uuid()).await;
    let response = new_response(&conversation);
    let ((), refused) = run_in_order(
        &app,
        held,
        delete_conversation(&conversation),
        app.store.put_response(CALLER, &response),
    )
    .await;
    let no_conversation = matches!(refused, Err(StoreError::NotFound(Entity::Conversation)));
    assert!(no_conversation, "{refused:?}");
    assert_no_rows(&conversation).await;
}

#[tokio::test]
async fn a_response_that_moves_away_outlives_its_first_conversation() {
    let app = TestApp::start().await;
    let (first, second) = (app.conversation().await, app.conversation().await);
    let id = put(&first).await;
    let held = app.hold_lock(LOCK_RESPONSE, id).await;
    let target = ConversationId(second.uuid());
    let (moved, ()) = run_in_order(
        &app,
        held,
        app.store.move_response(CALLER, id, target, MessageId::NONE),
        delete_conversation(&first),
    )
    .await;
    moved.expect("moves");
    assert_no_rows(&first).await;
    assert_eq!(get(&app, id).await.conversation_id, target);
    delete_conversation(&second).await;
    assert_no_rows(&second).await;
}
