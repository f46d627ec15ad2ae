//! Responses of the OpenAI protocol as the store keeps them: stored once per id, ended once, deleted
//! with their conversation, with a message that is erased, or by themselves. Their calls over HTTP
//! are tested in `tests/tests/api/openai/`, their races in `tests/tests/faults/races/responses.rs`.

use anneal_core::{
    admission::{CallLimits, CallPurpose},
    caller::{Caller, ConversationId, TenantId},
    message::MessageId,
    tokens::Tokens,
};
use anneal_store::{
    CallAsk, DeletedResponse, Entity, InputAppends, NewResponse, PutResponse, ResponseEnd,
    ResponseTurn, StoreError, StoredResponse,
};
use anneal_testkit::{TestApp, TestConversation, pb};
use uuid::Uuid;

const CALLER: Caller = Caller::of(TenantId::DEFAULT);

fn id_of(conversation: &TestConversation<'_>) -> ConversationId {
    ConversationId(conversation.uuid())
}

/// A response whose input begins after this message.
fn new_response(conversation: &TestConversation<'_>, after: i64) -> NewResponse {
    NewResponse {
        response_id: Uuid::new_v4(),
        conversation_id: id_of(conversation),
        request_id: "resp".into(),
        previous_response_id: None,
        after_message_id: MessageId(after),
        is_chain: false,
        background: false,
        request: "{}".into(),
        request_digest: [1; 32],
    }
}

/// The turn of a response that [`new_response`] makes.
const fn turn(id: Uuid) -> ResponseTurn<'static> {
    ResponseTurn {
        response_id: id,
        request_id: "resp",
    }
}

fn end_with(outcome: &str, answer: Option<i64>) -> ResponseEnd {
    ResponseEnd {
        question: None,
        answer: answer.map(MessageId),
        outcome: outcome.into(),
    }
}

/// Stores a response that is new.
async fn put(app: &TestApp, response: NewResponse) -> Uuid {
    let put = app.store.put_response(CALLER, &response).await;
    let stored = get(app, response.response_id).await;
    assert_eq!(put.expect("stores"), PutResponse::Stored(stored));
    response.response_id
}

async fn get(app: &TestApp, id: Uuid) -> StoredResponse {
    app.store.get_response(CALLER, id).await.expect("is there")
}

async fn find(app: &TestApp, id: Uuid) -> Option<StoredResponse> {
    match app.store.get_response(CALLER, id).await {
        Ok(stored) => Some(stored),
        Err(StoreError::NotFound(Entity::Response)) => None,
        Err(error) => panic!("{error}"),
    }
}

async fn delete(app: &TestApp, id: Uuid) -> DeletedResponse {
    let deleted = app.store.delete_response(CALLER, id).await;
    deleted.expect("is there")
}

#[tokio::test]
async fn a_response_is_read_as_it_was_stored() {
    let app = TestApp::start().await;
    let conversation = app.conversation().await;
    let response = NewResponse {
        previous_response_id: Some(Uuid::new_v4()),
        is_chain: true,
        background: true,
        // As it came: order of keys, a key twice, spaces, and a character that jsonb refuses.
        request: r#"{"b": 1,  "a": "\u0000", "a": 2.50}"#.into(),
        ..new_response(&conversation, 7)
    };
    let id = put(&app, response.clone()).await;
    let stored = get(&app, id).await;
    assert_eq!(stored.conversation_id, response.conversation_id);
    assert_eq!(stored.request_id, response.request_id);
    assert_eq!(stored.previous_response_id, response.previous_response_id);
    assert_eq!(stored.after_message_id, response.after_message_id);
    assert_eq!(stored.request, response.request);
    assert_eq!(stored.request_digest, response.request_digest);
    assert!(stored.is_chain && stored.background && stored.created.0 > 0);
    assert_eq!(
        (stored.question_last_id, stored.answer_message_id),
        (None, None)
    );
    assert_eq!(
        (stored.cancelled, stored.ended, &stored.outcome),
        (None, None, &None)
    );

    let again = app.store.put_response(CALLER, &response).await;
    assert_eq!(again.expect("replays"), PutResponse::Exists(stored));
    let other = NewResponse {
        request_digest: [2; 32],
        ..response
    };
    let refused = app.store.put_response(CALLER, &other).await;
    assert!(
        matches!(refused, Err(StoreError::RequestIdReused)),
        "{refused:?}"
    );
    let nowhere = NewResponse {
        response_id: Uuid::new_v4(),
        conversation_id: ConversationId(Uuid::now_v7()),
        ..other
    };
    let refused = app.store.put_response(CALLER, &nowhere).await;
    let no_conversation = matches!(refused, Err(StoreError::NotFound(Entity::Conversation)));
    assert!(no_conversation, "{refused:?}");
}

#[tokio::test]
async fn a_response_ends_once_and_is_not_cancelled_after_its_end() {
    let app = TestApp::start().await;
    let conversation = app.conversation().await;
    let id = put(&app, new_response(&conversation, 0)).await;
    let noted = app
        .store
        .note_question(CALLER, turn(id), MessageId(1))
        .await;
    noted.expect("notes");
    let first = end_with(r#"{"status":"completed"}"#, Some(2));
    let ended = app.store.end_response(CALLER, turn(id), &first).await;
    assert!(ended.expect("ends"));
    let second = end_with(r#"{"status":"failed"}"#, None);
    let ended = app.store.end_response(CALLER, turn(id), &second).await;
    assert!(!ended.expect("has ended"));
    let cancelled = app.store.cancel_response(CALLER, id).await;
    cancelled.expect("has ended");
    let stored = get(&app, id).await;
    assert_eq!(stored.question_last_id, Some(MessageId(1)));
    assert_eq!(stored.answer_message_id, first.answer);
    assert_eq!(stored.outcome.as_ref(), Some(&first.outcome));
    assert!(stored.ended.is_some() && stored.cancelled.is_none());

    let id = put(&app, new_response(&conversation, 2)).await;
    let cancelled = app.store.cancel_response(CALLER, id).await;
    cancelled.expect("cancels");
    let at = get(&app, id).await.cancelled.expect("is cancelled");
    let again = app.store.cancel_response(CALLER, id).await;
    again.expect("is cancelled already");
    let ended = app.store.end_response(CALLER, turn(id), &second).await;
    assert!(ended.expect("ends"));
    let stored = get(&app, id).await;
    assert_eq!(
        (stored.cancelled, stored.outcome),
        (Some(at), Some(second.outcome))
    );
}

#[tokio::test]
async fn a_turn_neither_ends_nor_discards_another_try_with_its_id() {
    let app = TestApp::start().await;
    let conversation = app.conversation().await;
    let id = put(&app, new_response(&conversation, 0)).await;
    let before = get(&app, id).await;
    let other = ResponseTurn {
        request_id: "earlier",
        ..turn(id)
    };
    let noted = app.store.note_question(CALLER, other, MessageId(1)).await;
    noted.expect("changes nothing");
    let end = end_with("{}", Some(2));
    let ended = app.store.end_response(CALLER, other, &end).await;
    assert!(!ended.expect("changes nothing"));
    let discarded = app.store.discard_response(CALLER, other).await;
    assert!(!discarded.expect("changes nothing"));
    assert_eq!(get(&app, id).await, before);
}

#[tokio::test]
async fn an_end_stores_the_last_message_of_the_input_unless_a_later_one_is_noted() {
    let app = TestApp::start().await;
    let conversation = app.conversation().await;
    for (noted, known, stored) in [
        (None, Some(3), 3),
        (Some(3), Some(2), 3),
        (Some(3), None, 3),
    ] {
        let id = put(&app, new_response(&conversation, 0)).await;
        if let Some(last) = noted {
            let noted = app.store.note_question(CALLER, turn(id), MessageId(last));
            noted.await.expect("notes");
        }
        let end = ResponseEnd {
            question: known.map(MessageId),
            ..end_with("{}", None)
        };
        let ended = app.store.end_response(CALLER, turn(id), &end).await;
        assert!(ended.expect("ends"));
        assert_eq!(
            get(&app, id).await.question_last_id,
            Some(MessageId(stored))
        );
    }
}

#[tokio::test]
async fn the_stored_input_is_found_by_the_request_ids_of_its_appends() {
    let app = TestApp::start().await;
    let conversation = app.conversation().await;
    conversation
        .append("before")
        .request_id("resp/input/0/0")
        .await;
    let find = async |after: i64| {
        let appends = InputAppends {
            after: MessageId(after),
            request_id: "resp",
            earlier_prefix: "resp/input/",
        };
        let found = app
            .store
            .find_input_end(CALLER, id_of(&conversation), appends);
        found.await.expect("reads").map(|last| last.0)
    };
    assert_eq!(find(1).await, None);
    conversation.append("a").request_id("resp/input/1/0").await;
    assert_eq!(find(1).await, Some(2));
    conversation.append("b").request_id("resp").await;
    conversation
        .append("of another client")
        .request_id("resp2")
        .await;
    assert_eq!(find(1).await, Some(3));
    conversation.withdraw(&[2, 3]).await;
    assert_eq!(find(1).await, Some(3), "withdrawn or not");
}

#[tokio::test]
async fn a_chain_goes_with_a_discarded_response_unless_something_else_is_in_it() {
    let app = TestApp::start().await;
    let of_chain = |conversation: &TestConversation<'_>, after: i64| NewResponse {
        is_chain: true,
        ..new_response(conversation, after)
    };
    let discard = async |id: Uuid| {
        let discarded = app.store.discard_response(CALLER, turn(id)).await;
        discarded.expect("discards")
    };
    let exists = async |conversation: &TestConversation<'_>| {
        !app.list_tables_with_rows(conversation.uuid())
            .await
            .is_empty()
    };
    let alone = app.conversation().await;
    alone.append("withdrawn").await;
    let id = put(&app, of_chain(&alone, 0)).await;
    alone.withdraw(&[1]).await;
    assert!(discard(id).await && !exists(&alone).await);
    assert!(!discard(id).await, "it is gone");

    let shared = app.conversation().await;
    let (first, second) = (
        put(&app, of_chain(&shared, 0)).await,
        put(&app, of_chain(&shared, 0)).await,
    );
    assert!(discard(first).await && exists(&shared).await);
    shared.append("of another client").await;
    assert!(discard(second).await && exists(&shared).await);
    assert_eq!(find(&app, second).await, None);

    let named = app.conversation().await;
    let id = put(&app, new_response(&named, 0)).await;
    assert!(discard(id).await && exists(&named).await);
}

#[tokio::test]
async fn a_response_moves_until_its_input_is_stored() {
    let app = TestApp::start().await;
    let (first, second) = (app.conversation().await, app.conversation().await);
    let id = put(&app, new_response(&first, 4)).await;
    let nowhere = ConversationId(Uuid::now_v7());
    let moved = app
        .store
        .move_response(CALLER, id, nowhere, MessageId(0))
        .await;
    assert!(matches!(moved, Err(StoreError::NotFound(_))), "{moved:?}");
    let moved = app
        .store
        .move_response(CALLER, id, id_of(&second), MessageId(2));
    moved.await.expect("moves");
    let stored = get(&app, id).await;
    assert_eq!(stored.conversation_id, id_of(&second));
    assert_eq!(stored.after_message_id, MessageId(2));
    let noted = app
        .store
        .note_question(CALLER, turn(id), MessageId(3))
        .await;
    noted.expect("notes");
    let moved = app
        .store
        .move_response(CALLER, id, id_of(&first), MessageId(4))
        .await;
    assert!(matches!(moved, Err(StoreError::NotFound(_))), "{moved:?}");
    assert_eq!(get(&app, id).await.conversation_id, id_of(&second));
}

#[tokio::test]
async fn a_turn_is_under_way_as_long_as_its_lease() {
    let app = TestApp::start().await;
    let conversation = app.conversation().await;
    let is_running = async |request_id: &str| {
        let running = app
            .store
            .is_turn_running(CALLER, id_of(&conversation), request_id);
        running.await.expect("reads")
    };
    assert!(!is_running("resp").await);
    let call = CallAsk {
        model: "a model",
        conversation: id_of(&conversation),
        is_stored: true,
        purpose: CallPurpose::Turn,
        tokens: Tokens::new(100),
        limits: CallLimits::default(),
        request_id: Some("resp"),
        replaces: None,
    };
    let admitted = app.store.admit_call(CALLER, &call).await;
    let _lease = admitted.expect("decides").expect("admits");
    assert!(is_running("resp").await);
    assert!(!is_running("another").await);
    sqlx::query("update ai_model_lease set lease_until_ts = now() - interval '1 second'")
        .execute(&mut app.db().await)
        .await
        .expect("ends the lease");
    assert!(!is_running("resp").await);
}

#[tokio::test]
async fn another_tenant_neither_reads_nor_changes_a_response() {
    let app = TestApp::start().await;
    let conversation = app.conversation().await;
    let response = new_response(&conversation, 0);
    let id = put(&app, response.clone()).await;
    let before = get(&app, id).await;
    let stranger = Caller::of(app.tenant("stranger").await);
    let store = &app.store;
    let read = store.get_response(stranger, id).await;
    assert!(
        matches!(read, Err(StoreError::NotFound(Entity::Response))),
        "{read:?}"
    );
    let put = store.put_response(stranger, &response).await;
    assert!(
        matches!(put, Err(StoreError::NotFound(Entity::Conversation))),
        "{put:?}"
    );
    let noted = store.note_question(stranger, turn(id), MessageId(1)).await;
    noted.expect("changes nothing");
    let ended = store
        .end_response(stranger, turn(id), &end_with("{}", Some(1)))
        .await;
    assert!(!ended.expect("changes nothing"));
    let cancelled = store.cancel_response(stranger, id).await;
    cancelled.expect("changes nothing");
    let moved = store
        .move_response(stranger, id, id_of(&conversation), MessageId(5))
        .await;
    assert!(
        matches!(moved, Err(StoreError::NotFound(Entity::Response))),
        "{moved:?}"
    );
    let deleted = store.delete_response(stranger, id).await;
    assert!(
        matches!(deleted, Err(StoreError::NotFound(Entity::Response))),
        "{deleted:?}"
    );
    assert_eq!(get(&app, id).await, before);
}

#[tokio::test]
async fn the_only_response_of_a_chain_stays_until_its_conversation_is_deleted() {
    let app = TestApp::start().await;
    let (chain, named) = (app.conversation().await, app.conversation().await);
    let of_chain = |after: i64| NewResponse {
        is_chain: true,
        ..new_response(&chain, after)
    };
    let first = put(&app, of_chain(0)).await;
    let second = put(&app, of_chain(2)).await;
    let of_named = put(&app, new_response(&named, 0)).await;

    let expected = |conversation: &TestConversation<'_>, is_chain, others| DeletedResponse {
        conversation: id_of(conversation),
        is_chain,
        others,
    };
    assert_eq!(delete(&app, first).await, expected(&chain, true, true));
    assert_eq!(find(&app, first).await, None);
    for _ in 0..2 {
        assert_eq!(delete(&app, second).await, expected(&chain, true, false));
        assert!(find(&app, second).await.is_some());
    }
    let deleted = app.store.delete_conversation(CALLER, id_of(&chain)).await;
    deleted.expect("deletes");
    assert_eq!(find(&app, second).await, None);
    assert_eq!(app.list_tables_with_rows(chain.uuid()).await, [""; 0]);

    assert_eq!(delete(&app, of_named).await, expected(&named, false, false));
    let again = app.store.delete_response(CALLER, of_named).await;
    assert!(
        matches!(again, Err(StoreError::NotFound(Entity::Response))),
        "{again:?}"
    );
}

#[tokio::test]
async fn an_erased_message_takes_its_response_with_it() {
    let app = TestApp::start().await;
    let conversation = app.conversation().await;
    for _ in 0..3 {
        conversation.turn("a", "b").await;
    }
    // Each is a turn: a question and its answer.
    let mut turns = Vec::new();
    for after in [0, 2, 4] {
        let id = put(&app, new_response(&conversation, after)).await;
        let noted = app
            .store
            .note_question(CALLER, turn(id), MessageId(after + 1))
            .await;
        noted.expect("notes");
        let end = end_with("{}", Some(after + 2));
        assert!(
            app.store
                .end_response(CALLER, turn(id), &end)
                .await
                .expect("ends")
        );
        turns.push(id);
    }
    // Nothing says which messages are its input.
    let unknown = put(&app, new_response(&conversation, 4)).await;
    let stored = async || {
        let mut stored = Vec::new();
        for id in turns.iter().chain([&unknown]) {
            stored.push(find(&app, *id).await.is_some());
        }
        stored
    };
    conversation.erase(&[3]).await;
    assert_eq!(stored().await, [true, false, true, true], "of a question");
    let change = conversation.erase(&[2]).await;
    assert_eq!(stored().await, [false, false, true, true], "of an answer");
    let ask = pb::GetErasureRequest {
        erasure_id: change.erasure_id,
    };
    let receipt = app.erasures().get_erasure(ask).await.expect("is there");
    assert_eq!(receipt.into_inner().rows.get("ai_response"), Some(&1));
    conversation.erase(&[6]).await;
    assert_eq!(stored().await, [false; 4], "of any later message");
}

#[tokio::test]
async fn each_tenant_has_a_seal_key_of_its_own() {
    let app = TestApp::start().await;
    let tenant = Caller::of(app.tenant("acme").await);
    let ours = app.store.read_seal_key(CALLER).await.expect("reads");
    let theirs = app.store.read_seal_key(tenant).await.expect("reads");
    assert_ne!(ours, theirs);
    assert_ne!(ours[..16], ours[16..]);
    assert_eq!(app.store.read_seal_key(CALLER).await.expect("reads"), ours);
}
